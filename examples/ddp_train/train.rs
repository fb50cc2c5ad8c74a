//! What every rank does.

use crate::args::Args;
use crate::buckets::{Bucket, plan};
use crate::common::data::{Batches, Data, Samples, share};
use crate::common::loss::{Score, cross_entropy};
use crate::common::options::{Overlap, SlowRank};
use crate::model::Mlp;
use commtrace::collectives::Result;
use commtrace::prelude::*;
use std::thread;

/// Steps between two lines of progress.
pub const LOG_EVERY: usize = 20;

/// Where training led.
#[derive(Debug)]
pub struct Outcome {
    /// On the test set, before the first step and after the last.
    pub before: Metrics,
    pub after: Metrics,
    /// A hash of the weights of every rank.
    pub weights: Vec<i64>,
}

/// Means over samples.
#[derive(Debug, Clone, Copy)]
pub struct Metrics {
    pub loss: f64,
    pub accuracy: f64,
}

pub fn train<C: Communicator>(comm: &C, data: &Data, args: &Args) -> Result<Outcome> {
    let hidden = args.hidden;
    let sizes = [data.train.features.ncols(), hidden, hidden, hidden, hidden, data.classes];
    // As if each rank had started with weights of its own; only those of rank 0 count.
    let mut model = Mlp::new(&sizes, comm.rank() as u64);
    broadcast_weights(comm, &mut model)?;
    let mut buckets = plan(comm, &model.layers, args.bucket_kib * 1024)?;
    if comm.rank() == 0 {
        let parameters: usize = model.layers.iter().map(|layer| layer.len()).sum();
        println!(
            "{} ranks, {} steps of {} samples per rank, {parameters} parameters in {} buckets, overlap {:?}",
            comm.size(),
            args.steps,
            args.batch,
            buckets.len(),
            args.overlap,
        );
    }

    let before = evaluate(comm, &model, &data.test)?;
    let mut batches = Batches::new(data.train.len());
    let mut since_log = (Score::default(), 0);
    for step in 0..args.steps {
        let _step = step_span!(step).entered();
        let batch = data.train.select(&batches.next(comm.rank(), comm.size(), args.batch));
        let score = train_step(comm, &mut model, &mut buckets, batch, args)?;
        since_log.0.loss_sum += score.loss_sum;
        since_log.0.correct += score.correct;
        since_log.1 += args.batch;
        if (step + 1) % LOG_EVERY == 0 || step + 1 == args.steps {
            let (score, samples) = std::mem::take(&mut since_log);
            let Metrics { loss, accuracy } = over_ranks(comm, score, samples)?;
            if comm.rank() == 0 {
                println!("step {:>4}  loss {loss:.4}  accuracy {accuracy:.3}", step + 1);
            }
        }
    }
    let after = evaluate(comm, &model, &data.test)?;

    let mine = comm.alloc_from(&[model.hash() as i64])?;
    let mut all = comm.alloc_zeros(comm.size())?;
    comm.all_gather(&mine, &mut all)?;
    Ok(Outcome { before, after, weights: comm.to_vec(&all)? })
}

fn train_step<C: Communicator>(
    comm: &C,
    model: &mut Mlp,
    buckets: &mut [Bucket<C>],
    batch: Samples,
    args: &Args,
) -> Result<Score> {
    let forward = compute_span!("forward").entered();
    let mut values = model.forward(batch.features);
    let mut gradient = values.pop();
    let score = gradient.as_mut().map(|logits| cross_entropy(logits, &batch.labels)).unwrap_or_default();
    drop(forward);

    if let Some(SlowRank { rank, delay }) = args.slow_rank
        && rank == comm.rank()
    {
        compute_span!("slow_rank_sleep").in_scope(|| thread::sleep(delay));
    }

    for bucket in &mut *buckets {
        for (layer, range) in bucket.layers.clone() {
            let _backward = compute_span!("backward", label = layer).entered();
            if let Some(output_gradient) = gradient {
                let gradients = &mut bucket.gradients[range];
                let input = &values[layer];
                gradient = model.layers[layer].backward(input, &output_gradient, gradients, layer == 0);
            }
        }
        // The layers of this bucket are done; those before them still have backward ahead.
        if args.overlap == Overlap::On {
            bucket.start(comm)?;
        }
    }
    for bucket in &mut *buckets {
        bucket.finish(comm)?;
    }
    // After all buckets, not each bucket's part as it arrives: a rank that waits would get ahead with
    // its optimizer, begin the next step earlier, and wait again. So all ranks start the step together.
    let _optimizer = compute_span!("optimizer").entered();
    for bucket in buckets {
        for (layer, range) in bucket.layers.clone() {
            model.layers[layer].update(&bucket.gradients[range], args.learning_rate);
        }
    }
    Ok(score)
}

pub fn broadcast_weights<C: Communicator>(comm: &C, model: &mut Mlp) -> Result<()> {
    for layer in &mut model.layers {
        let mut values: Vec<f32> = layer.parameters().collect();
        let mut buffer = comm.alloc_from(&values)?;
        comm.broadcast_in_place(&mut buffer, 0)?;
        comm.read(&buffer, &mut values)?;
        layer.set_parameters(&values);
    }
    Ok(())
}

/// Each rank evaluates its part of `samples`.
fn evaluate<C: Communicator>(comm: &C, model: &Mlp, samples: &Samples) -> Result<Metrics> {
    let span = compute_span!("evaluate").entered();
    let rows: Vec<usize> = share(comm.rank(), comm.size(), samples.len()).collect();
    let part = samples.select(&rows);
    let logits = model.forward(part.features).pop();
    let score = logits.map(|mut logits| cross_entropy(&mut logits, &part.labels)).unwrap_or_default();
    drop(span);
    over_ranks(comm, score, rows.len())
}

/// Means over the samples of all ranks.
pub fn over_ranks<C: Communicator>(comm: &C, score: Score, samples: usize) -> Result<Metrics> {
    let mut sums = [f64::from(score.loss_sum), score.correct as f64, samples as f64];
    let mut buffer = comm.alloc_from(&sums)?;
    comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum)?;
    comm.read(&buffer, &mut sums)?;
    let [loss, correct, samples] = sums;
    Ok(Metrics { loss: loss / samples, accuracy: correct / samples })
}
