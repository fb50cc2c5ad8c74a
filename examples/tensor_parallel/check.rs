//! Whether training on many ranks did what it does on one.

use crate::args::Args;
use crate::common::data::Data;
use crate::device::Result;
use crate::groups::Groups;
use crate::host::Host;
use crate::train::{Hashes, Outcome, train};
use commtrace::prelude::*;
use ndarray::Array2;
use std::cmp::Ordering;

/// Most by which the logits of the untrained model may differ, relative to the largest: sums in another order differ
/// by some 1e-7 a layer.
const FORWARD_TOLERANCE: f32 = 1e-5;

/// The same for weights and logits after training, in which differences grow.
const TRAINED_TOLERANCE: f32 = 1e-4;

/// Checks what every rank knows, and on rank 0 that the whole model is as one rank makes it.
pub fn check(outcome: &Outcome, data: &Data, args: &Args) -> Result<()> {
    equal_on_all_ranks(&outcome.hashes, outcome.tensor_parallel)?;
    if outcome.rank != 0 {
        return Ok(());
    }
    let (before, after) = (outcome.before.loss, outcome.after.loss);
    println!("loss {before:.4} -> {after:.4} on data that was not trained on");
    // Also false where the loss is NaN.
    if !matches!(after.partial_cmp(&before), Some(Ordering::Less)) {
        return Err("the loss did not fall: try a lower --learning-rate".into());
    }
    println!("replicated parameters are bit-identical on all {} ranks", outcome.hashes.len());
    let unsplit = unsplit(data, args)?;
    compare("logits before training", FORWARD_TOLERANCE, [(&outcome.before.logits, &unsplit.before.logits)])?;
    compare(
        "parameters after training",
        TRAINED_TOLERANCE,
        outcome.parameters.iter().zip(&unsplit.parameters),
    )?;
    compare("logits after training", TRAINED_TOLERANCE, [(&outcome.after.logits, &unsplit.after.logits)])
}

/// What all ranks have must be equal everywhere, and what one rank of a replica has on the same rank of the others.
fn equal_on_all_ranks(hashes: &[Hashes], tensor_parallel: usize) -> Result<()> {
    for (rank, of_rank) in hashes.iter().enumerate() {
        if of_rank.replicated != hashes[0].replicated {
            return Err(
                format!("the replicated parameters of rank {rank} differ from those of rank 0").into()
            );
        }
        let first = rank % tensor_parallel;
        if of_rank.split != hashes[first].split {
            return Err(format!("the parameters of rank {rank} differ from those of rank {first}").into());
        }
    }
    Ok(())
}

/// The same training on a rank of its own.
fn unsplit(data: &Data, args: &Args) -> Result<Outcome> {
    let args = args.unsplit();
    let outcomes = LocalComm::run(1, |world| {
        let groups = Groups::new(&world, 1, LocalComm::split)?;
        train(&Host::new(), &groups, data, &args, false)
    });
    outcomes.into_iter().next().unwrap_or_else(|| Err("the unsplit model was not trained".into()))
}

/// Says by how much matrices differ, relative to the largest element of each pair.
fn compare<'a>(
    what: &str,
    tolerance: f32,
    pairs: impl IntoIterator<Item = (&'a Array2<f32>, &'a Array2<f32>)>,
) -> Result<()> {
    let mut worst = 0.0_f32;
    for (split, unsplit) in pairs {
        if split.dim() != unsplit.dim() {
            return Err(format!("{what}: {:?} are {:?} unsplit", split.dim(), unsplit.dim()).into());
        }
        let largest = unsplit.iter().fold(f32::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
        let difference = split.iter().zip(unsplit).fold(0.0, |most: f32, (split, unsplit)| {
            let difference = (split - unsplit).abs();
            // NaN is a difference.
            if difference <= most { most } else { difference }
        });
        let relative = difference / largest;
        worst = if relative <= worst { worst } else { relative };
    }
    if worst <= tolerance {
        println!("{what} are those of the unsplit model within {worst:.1e} of the largest");
        Ok(())
    } else {
        Err(format!("{what} differ from the unsplit model's by {worst:.1e} of the largest").into())
    }
}
