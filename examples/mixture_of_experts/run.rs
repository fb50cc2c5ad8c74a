//! What every rank does.

use crate::args::Args;
use crate::common::options::Overlap;
use crate::compute::Compute;
use crate::figures::{Counts, Figures};
use crate::layer::Layer;
use crate::model::{Model, joined};
use commtrace::prelude::*;
use ndarray::{Array2, Axis, concatenate};
use std::time::Instant;

/// Steps whose output is compared with that of all experts computed on this rank.
const CHECKED: usize = 4;

/// How a run ended, on one rank.
#[derive(Debug)]
pub struct Outcome {
    pub rank: usize,
    /// The largest difference of an output from the reference.
    pub difference: f32,
    pub checked_steps: usize,
    /// Over all ranks.
    pub figures: Figures,
}

pub fn run<C: Communicator, K: Compute<C>>(
    comm: &C,
    compute: K,
    model: &Model,
    args: &Args,
) -> Result<Outcome, K::Error> {
    let (rank, experts_per_rank) = (comm.rank(), args.experts_per_rank);
    if rank == 0 {
        println!(
            "{} ranks with {experts_per_rank} experts each, {} steps of {} tokens per rank, hidden {}, expert {} on \
             rank {} gets {} times the mean load, overlap {:?}",
            comm.size(),
            args.steps,
            args.tokens,
            args.hidden,
            model.hot_expert(),
            args.hot_rank,
            args.skew,
            args.overlap
        );
    }
    let mut layer = Layer { comm, compute, experts_per_rank, hidden: args.hidden };
    let mut counts = Counts::new(experts_per_rank);
    let (mut steps, mut outputs) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for step in 0..args.steps {
        let _step = step_span!(step).entered();
        let halves = model.tokens(step, rank);
        let (output, traffic) = match args.overlap {
            Overlap::Off => layer.blocking(halves)?,
            Overlap::On => layer.overlapped(halves)?,
        };
        counts.add(rank, &traffic);
        if step % args.steps.div_ceil(CHECKED) == 0 || step + 1 == args.steps {
            steps.push(step);
            outputs.push(output);
        }
    }
    let figures = counts.gather(comm, start.elapsed(), args.hidden * size_of::<f32>())?;

    let checked: Vec<Array2<f32>> = steps.iter().map(|&step| joined(&model.tokens(step, rank))).collect();
    let difference = largest_difference(&stacked(&outputs), &model.reference(&stacked(&checked)));
    Ok(Outcome { rank, difference, checked_steps: steps.len(), figures })
}

fn stacked(parts: &[Array2<f32>]) -> Array2<f32> {
    let parts: Vec<_> = parts.iter().map(|part| part.view()).collect();
    concatenate(Axis(0), &parts).expect("rows of the same length")
}

/// Relative to the larger of 1 and the expected value; NaN if there is any NaN.
fn largest_difference(values: &Array2<f32>, expected: &Array2<f32>) -> f32 {
    values.iter().zip(expected).fold(0.0, |largest, (value, expected)| {
        let difference = (value - expected).abs() / expected.abs().max(1.0);
        if difference.is_nan() || largest.is_nan() { f32::NAN } else { largest.max(difference) }
    })
}
