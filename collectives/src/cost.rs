//! Bandwidths as nccl-tests defines them.
//!
//! Source: [PERFORMANCE.md of nccl-tests](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
//! The size S is the span's `bytes`: the buffer of one rank for all_reduce, broadcast, reduce and
//! point-to-point calls; the whole buffer of all ranks' parts for all_gather, reduce_scatter and
//! all_to_all.

use crate::Op;

/// Algorithm bandwidth in bytes per second: S / t.
///
/// `None` unless `seconds` is finite and positive.
///
/// ```
/// use commtrace_collectives::cost::algbw;
/// assert_eq!(algbw(1_000_000, 0.001), Some(1e9));
/// assert_eq!(algbw(1_000_000, 0.0), None);
/// ```
pub fn algbw(bytes: u64, seconds: f64) -> Option<f64> {
    (seconds.is_finite() && seconds > 0.0).then(|| bytes as f64 / seconds)
}

/// What [`algbw`] is multiplied by to give the bus bandwidth, for `ranks` ranks.
///
/// | op | factor |
/// | --- | --- |
/// | all_reduce | 2(n-1)/n |
/// | reduce_scatter, all_gather, all_to_all, all_to_all_v | (n-1)/n |
/// | broadcast, reduce, send, recv | 1 |
/// | barrier | 0: it moves no payload |
///
/// The factor makes figures of different collectives and rank counts comparable with the speed of the
/// links. With one rank nothing crosses a link, so the first two rows give 0. all_to_all_v is not in
/// nccl-tests; it takes all_to_all's factor, which is exact only where all parts have the same length.
pub fn bus_factor(op: Op, ranks: u32) -> f64 {
    let n = f64::from(ranks.max(1));
    match op {
        Op::AllReduce => 2.0 * (n - 1.0) / n,
        Op::ReduceScatter | Op::AllGather | Op::AllToAll | Op::AllToAllV => (n - 1.0) / n,
        Op::Broadcast | Op::Reduce | Op::Send | Op::Recv => 1.0,
        Op::Barrier => 0.0,
    }
}

/// Bus bandwidth in bytes per second: [`algbw`] times [`bus_factor`].
///
/// ```
/// use commtrace_collectives::{Op, cost::busbw};
/// // 4 ranks, 8 MB in 1 ms: 8 GB/s x 2 * 3 / 4.
/// assert_eq!(busbw(Op::AllReduce, 4, 8_000_000, 0.001), Some(12e9));
/// ```
pub fn busbw(op: Op, ranks: u32, bytes: u64, seconds: f64) -> Option<f64> {
    algbw(bytes, seconds).map(|bandwidth| bandwidth * bus_factor(op, ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of nccl-tests' PERFORMANCE.md for n = 8.
    #[test]
    fn factors_of_eight_ranks() {
        assert_eq!(bus_factor(Op::AllReduce, 8), 1.75);
        for op in [Op::ReduceScatter, Op::AllGather, Op::AllToAll, Op::AllToAllV] {
            assert_eq!(bus_factor(op, 8), 0.875, "{op}");
        }
        for op in [Op::Broadcast, Op::Reduce, Op::Send, Op::Recv] {
            assert_eq!(bus_factor(op, 8), 1.0, "{op}");
        }
    }

    #[test]
    fn one_rank_and_no_rank_use_no_bus() {
        for ranks in [0, 1] {
            assert_eq!(bus_factor(Op::AllReduce, ranks), 0.0);
            assert_eq!(bus_factor(Op::AllGather, ranks), 0.0);
        }
    }

    #[test]
    fn times_that_are_no_durations_give_nothing() {
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(busbw(Op::AllReduce, 2, 1, seconds), None);
        }
    }
}
