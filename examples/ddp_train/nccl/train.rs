//! What every rank does: as `crate::train`, with the work of compute and collectives in streams.
//!
//! The host only enqueues. It waits where it needs a number: for a line of progress, and at the end.

use super::model::{StreamMlp, Tally};
use crate::args::Args;
use crate::buckets::{Members, divide};
use crate::common::data::{Batches, Data, Samples, share};
use crate::common::gpu::memory::{Block, download, upload};
use crate::common::gpu::{Error, Streams};
use crate::common::loss::Score;
use crate::common::options::{Overlap, SlowRank};
use crate::model::Mlp;
use crate::train::{LOG_EVERY, Metrics, Outcome, broadcast_weights, over_ranks};
use commtrace::prelude::*;
use cudarc::driver::CudaSlice;

/// Gradients of some neighbouring layers.
struct Bucket {
    members: Members,
    /// Where backward computes them.
    gradients: Block,
    /// Where the communicator averages them.
    buffer: CudaSlice<f32>,
}

pub fn train(comm: &NcclComm, streams: &Streams, data: &Data, args: &Args) -> Result<Outcome, Error> {
    let hidden = args.hidden;
    let sizes = [data.train.features.ncols(), hidden, hidden, hidden, hidden, data.classes];
    // As if each rank had started with weights of its own; only those of rank 0 count.
    let mut initial = Mlp::new(&sizes, comm.rank() as u64);
    broadcast_weights(comm, &mut initial)?;
    let lens: Vec<usize> = initial.layers.iter().map(|layer| layer.len()).collect();
    let tests = share(comm.rank(), comm.world_size(), data.test.len()).len();
    let mut model = StreamMlp::new(&streams.compute, &initial, &sizes, args.batch.max(tests))?;
    let mut buckets = Vec::new();
    for members in divide(&lens, args.bucket_kib * 1024) {
        let gradients = model.block(members.len)?;
        let buffer = streams.compute.alloc_zeros::<f32>(members.len)?;
        buckets.push(Bucket { members, gradients, buffer });
    }
    if comm.rank() == 0 {
        println!(
            "{} ranks, {} steps of {} samples per rank, {} parameters in {} buckets, overlap {:?}",
            comm.world_size(),
            args.steps,
            args.batch,
            lens.iter().sum::<usize>(),
            buckets.len(),
            args.overlap,
        );
    }

    let before = evaluate(comm, streams, &model, &data.test)?;
    let mut batches = Batches::new(data.train.len());
    let (tally, mut samples) = (Tally::default(), 0);
    for step in 0..args.steps {
        let _step = step_span!(step).entered();
        let batch = data.train.select(&batches.next(comm.rank(), comm.world_size(), args.batch));
        train_step(comm, streams, &model, &mut buckets, batch, &tally, args)?;
        samples += args.batch;
        if (step + 1) % LOG_EVERY == 0 || step + 1 == args.steps {
            let Metrics { loss, accuracy } =
                over_ranks(comm, model.take(&tally)?, std::mem::take(&mut samples))?;
            if comm.rank() == 0 {
                println!("step {:>4}  loss {loss:.4}  accuracy {accuracy:.3}", step + 1);
            }
        }
    }
    let after = evaluate(comm, streams, &model, &data.test)?;

    let mine = Communicator::alloc_from(comm, &[model.hash()? as i64])?;
    let mut all = comm.alloc_zeros(comm.world_size())?;
    comm.all_gather(&*mine, &mut *all)?;
    Ok(Outcome { before, after, weights: comm.to_vec(&all)? })
}

fn train_step(
    comm: &NcclComm,
    Streams { compute, .. }: &Streams,
    model: &StreamMlp,
    buckets: &mut [Bucket],
    batch: Samples,
    tally: &Tally,
    args: &Args,
) -> Result<(), Error> {
    let rows = batch.len();
    let forward = compute_span!("forward", stream = compute).entered();
    model.forward(batch, tally)?;
    drop(forward);

    if let Some(SlowRank { rank, delay }) = args.slow_rank
        && rank == comm.rank()
    {
        compute_span!("slow_rank_sleep", stream = compute).in_scope(|| model.sleep(delay))?;
    }

    for bucket in &mut *buckets {
        for (layer, range) in &bucket.members.layers {
            let _backward = compute_span!("backward", stream = compute, label = *layer).entered();
            model.backward(*layer, rows, bucket.gradients.part(range.start, range.len()))?;
        }
        upload(compute, bucket.gradients, &mut bucket.buffer)?;
        // On a stream of its own, beside the backward of the layers before these.
        if args.overlap == Overlap::On {
            comm.all_reduce_in_place(&mut bucket.buffer, &ReduceOp::Avg)?;
        }
    }
    if args.overlap == Overlap::Off {
        for bucket in &mut *buckets {
            comm.all_reduce_in_place(&mut bucket.buffer, &ReduceOp::Avg)?;
        }
    }
    for bucket in &*buckets {
        // The buffer's own events make the compute stream wait for the average.
        download(compute, &bucket.buffer, bucket.gradients)?;
    }
    let _optimizer = compute_span!("optimizer", stream = compute).entered();
    for bucket in &*buckets {
        for (layer, range) in &bucket.members.layers {
            model.update(*layer, bucket.gradients.part(range.start, range.len()), args.learning_rate)?;
        }
    }
    Ok(())
}

/// Each rank evaluates its part of `samples`.
fn evaluate(
    comm: &NcclComm,
    Streams { compute, .. }: &Streams,
    model: &StreamMlp,
    samples: &Samples,
) -> Result<Metrics, Error> {
    let rows: Vec<usize> = share(comm.rank(), comm.world_size(), samples.len()).collect();
    let tally = Tally::default();
    compute_span!("evaluate", stream = compute).in_scope(|| model.forward(samples.select(&rows), &tally))?;
    let score: Score = model.take(&tally)?;
    Ok(over_ranks(comm, score, rows.len())?)
}
