//! What every rank does.

use crate::args::Args;
use crate::common::data::{Batches, Data, Samples};
use crate::common::loss::cross_entropy;
use crate::common::options::SlowRank;
use crate::device::{Device, Result};
use crate::groups::Groups;
use crate::model::{Activations, Mlp, Shape};
use crate::parameters::{Shard, pack, unpack};
use commtrace::prelude::*;
use ndarray::Array2;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Where training led.
#[derive(Debug)]
pub struct Outcome {
    pub rank: usize,
    /// On the test set, before the first step and after the last.
    pub before: Tested,
    pub after: Tested,
    /// The whole model's parameters after the last step.
    pub parameters: Vec<Array2<f32>>,
    /// Of every rank.
    pub hashes: Vec<Hashes>,
    /// Number of ranks that divide a replica.
    pub tensor_parallel: usize,
}

#[derive(Debug)]
pub struct Tested {
    /// Mean over samples.
    pub loss: f64,
    pub logits: Array2<f32>,
}

/// Hashes of parameters' bits.
#[derive(Debug, Clone, Copy)]
pub struct Hashes {
    /// Of those that every rank has.
    pub replicated: i64,
    /// Of those that are this rank's part.
    pub split: i64,
}

/// A rank's part in training. `speaks` says whether rank 0 prints.
pub fn train<D: Device>(
    device: &D,
    groups: &Groups<'_, D::Comm>,
    data: &Data,
    args: &Args,
    speaks: bool,
) -> Result<Outcome> {
    let (tensor, rank) = (groups.tensor(), groups.world.rank());
    let speaks = speaks && rank == 0;
    let shape = Shape {
        features: data.train.features.ncols(),
        hidden: args.hidden,
        layers: args.layers,
        classes: data.classes,
    };
    let mut model = Mlp::new(device, tensor, shape, 0)?;
    let count: usize = model.parameters().iter().map(|parameter| parameter.len()).sum();
    if speaks {
        println!(
            "{} ranks: {} tensor-parallel, {} data-parallel; {} steps of {} samples per replica; {count} parameters on rank 0",
            groups.world.size(),
            tensor.size(),
            groups.replicas(),
            args.steps,
            args.batch,
        );
    }

    let before = test(device, tensor, &model, shape, &data.test)?;
    let mut activations = Activations::new(device, tensor, shape, args.batch)?;
    let mut average = match &groups.data {
        Some(comm) => Some((comm, device.zeros(1, count)?, device.reduction(comm, count)?)),
        None => None,
    };
    let mut batches = Batches::new(data.train.len());
    for step in 0..args.steps {
        let _step = step_span!(step).entered();
        let rows = batches.next(groups.replica, groups.replicas(), args.batch);
        let Samples { features, labels } = data.train.select(&rows);
        model.forward(device, tensor, &mut activations, features)?;
        compute_span!("loss", stream = device.stream()).in_scope(|| {
            device.work(&mut activations.logits, [], move |mut logits, []| {
                cross_entropy(&mut logits, &labels);
            })
        })?;
        if let Some(SlowRank { rank: slow, delay }) = args.slow_rank
            && slow == rank
        {
            compute_span!("slow_rank_sleep", stream = device.stream()).in_scope(|| device.sleep(delay))?;
        }
        model.backward(device, tensor, &mut activations, args.overlap)?;
        if let Some((comm, bucket, reduction)) = &mut average {
            let mut parameters = model.parameters();
            pack(device, &parameters, bucket)?;
            device.all_reduce(comm, reduction, bucket, &ReduceOp::Avg)?;
            unpack(device, bucket, &mut parameters)?;
        }
        compute_span!("optimizer", stream = device.stream()).in_scope(|| {
            let mut parameters = model.parameters().into_iter();
            parameters.try_for_each(|parameter| parameter.update(device, args.learning_rate))
        })?;
    }
    let after = test(device, tensor, &model, shape, &data.test)?;

    let mut hashers = (DefaultHasher::new(), DefaultHasher::new());
    let mut parameters = Vec::new();
    for parameter in model.parameters() {
        let part = device.read(&parameter.value)?;
        let replicated = parameter.shard == Shard::Replicated;
        let hasher = if replicated { &mut hashers.0 } else { &mut hashers.1 };
        part.iter().for_each(|value| value.to_bits().hash(hasher));
        parameters.push(parameter.shard.gather(tensor, part)?);
    }
    let mine = groups.world.alloc_from(&[hashers.0.finish() as i64, hashers.1.finish() as i64])?;
    let mut all = groups.world.alloc_zeros(2 * groups.world.size())?;
    groups.world.all_gather(&mine, &mut all)?;
    let all = groups.world.to_vec(&all)?;
    let hashes = all.chunks(2).map(|pair| Hashes { replicated: pair[0], split: pair[1] }).collect();
    Ok(Outcome { rank, before, after, parameters, hashes, tensor_parallel: tensor.size() })
}

/// Every replica tests all samples.
fn test<D: Device>(
    device: &D,
    tensor: &D::Comm,
    model: &Mlp<D::Matrix>,
    shape: Shape,
    samples: &Samples,
) -> Result<Tested> {
    let mut activations = Activations::new(device, tensor, shape, samples.len())?;
    model.forward(device, tensor, &mut activations, samples.features.clone())?;
    let logits = device.read(&activations.logits)?;
    let score = cross_entropy(&mut logits.clone(), &samples.labels);
    Ok(Tested { loss: f64::from(score.loss_sum) / samples.len() as f64, logits })
}
