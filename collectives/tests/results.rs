//! Every operation against a naive version: element types, sizes, numbers of ranks.

mod common;

use common::operations::{self, Agree};
use common::{REDUCTIONS, Sample, values};
use commtrace_collectives::{Communicator, LocalComm, ReduceOp, Result};
use half::{bf16, f16};

/// Lengths of a buffer: empty, one, odd, and more than one unit of work (64 KiB) with a remainder.
const SMALL: [usize; 4] = [0, 1, 7, 1001];
const LARGE: usize = 66_003;

fn sizes(ranks: usize) -> Vec<usize> {
    let large = if cfg!(miri) { 101 } else { LARGE };
    let small = if cfg!(miri) { &SMALL[..3] } else { &SMALL[..] };
    small.iter().copied().chain((ranks == 3).then_some(large)).collect()
}

fn rank_counts() -> Vec<usize> {
    if cfg!(miri) { vec![1, 3] } else { (1..=8).collect() }
}

/// Runs the ranks; each must succeed.
fn on_ranks(ranks: usize, rank: impl Fn(LocalComm) -> Result<()> + Sync) {
    for result in LocalComm::run(ranks, rank) {
        result.unwrap();
    }
}

fn reductions<T: Sample>() {
    for ranks in rank_counts() {
        for len in sizes(ranks) {
            // The large size once per type: the others differ in arithmetic, which has no sizes.
            let ops = if len > 2000 || cfg!(miri) { &REDUCTIONS[..1] } else { &REDUCTIONS[..] };
            for op in ops {
                reduction::<T>(ranks, len, *op);
            }
        }
    }
}

fn reduction<T: Sample>(ranks: usize, len: usize, op: ReduceOp) {
    on_ranks(ranks, |comm| operations::reduction::<T>(&comm, len, op, Agree::Exactly));
}

#[test]
fn reductions_of_f32() {
    reductions::<f32>();
}

#[test]
fn reductions_of_f64() {
    reductions::<f64>();
}

#[test]
fn reductions_of_f16() {
    reductions::<f16>();
}

#[test]
fn reductions_of_bf16() {
    reductions::<bf16>();
}

#[test]
fn reductions_of_i32() {
    reductions::<i32>();
}

#[test]
fn reductions_of_i64() {
    reductions::<i64>();
}

#[test]
fn reductions_of_u8() {
    reductions::<u8>();
}

fn moves<T: Sample>() {
    for ranks in rank_counts() {
        for len in sizes(ranks) {
            on_ranks(ranks, |comm| operations::moves::<T>(&comm, len));
        }
    }
}

#[test]
fn moves_of_every_element_size() {
    moves::<u8>();
    moves::<bf16>();
    moves::<f32>();
    moves::<i64>();
}

#[test]
fn all_to_all_v() {
    let lengths: [usize; 5] = if cfg!(miri) { [0, 1, 3, 17, 0] } else { [0, 1, 1000, 70_001, 0] };
    for ranks in 1..=if cfg!(miri) { 3 } else { 6 } {
        on_ranks(ranks, |comm| operations::all_to_all_v(&comm, &lengths));
    }
}

/// Bits, not values: equal on all ranks, in two runs, and whichever thread did the work.
#[test]
fn results_are_bit_identical_on_all_ranks_and_in_all_runs() {
    let len = if cfg!(miri) { 90 } else { 100_003 };
    let run = || {
        LocalComm::run(5, |comm| {
            let mut buffer = values::<f32>(comm.rank(), len);
            comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
            buffer.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        })
    };
    let first = run();
    assert!(first.iter().all(|bits| *bits == first[0]));
    for _ in 0..if cfg!(miri) { 1 } else { 5 } {
        assert_eq!(run(), first);
    }
}

/// Any other order rounds to something else.
#[test]
fn values_are_added_in_rank_order() {
    let values = [1e8_f32, 1.0, -1e8, 1.0];
    let sums = LocalComm::run(4, |comm| {
        let mut buffer = [values[comm.rank()]];
        comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
        buffer[0]
    });
    assert_eq!(sums, [((1e8_f32 + 1.0) - 1e8) + 1.0; 4]);
}
