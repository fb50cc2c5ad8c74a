//! Work is cut into units; no cut may show in a result.

mod common;

use common::{Sample, reduced, values};
use commtrace_collectives::{Communicator, LocalComm, ReduceOp};
use proptest::prelude::*;

/// Lengths around the cuts: multiples of the 64 KiB unit and of the block within it, give or take a few.
fn length() -> impl Strategy<Value = usize> {
    let base = prop_oneof![Just(0), Just(2048), Just(8192), Just(16_384), Just(32_768), Just(65_536)];
    (base, 0..3_usize, -3..4_i64)
        .prop_map(|(base, times, off)| (base * times).saturating_add_signed(off as isize))
}

fn reduce_scatter<T: Sample>(ranks: usize, part: usize) {
    let whole = reduced::<T>(ReduceOp::Sum, ranks, part * ranks);
    let parts = LocalComm::run(ranks, |comm| {
        let mut recv = vec![T::default(); part];
        comm.reduce_scatter(&values::<T>(comm.rank(), part * ranks), &mut recv, &ReduceOp::Sum).unwrap();
        recv
    });
    assert_eq!(parts.concat(), whole);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn all_reduce_of_any_length(ranks in 1..5_usize, len in length()) {
        let expected = reduced::<half::bf16>(ReduceOp::Sum, ranks, len);
        let results = LocalComm::run(ranks, |comm| {
            let mut buffer = values::<half::bf16>(comm.rank(), len);
            comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
            buffer
        });
        prop_assert!(results.iter().all(|result| *result == expected));
    }

    #[test]
    fn reduce_scatter_of_any_length(ranks in 1..5_usize, part in length()) {
        reduce_scatter::<i32>(ranks, part / ranks);
        reduce_scatter::<u8>(ranks, part);
    }

    #[test]
    fn all_gather_and_all_to_all_of_any_length(ranks in 1..5_usize, part in length()) {
        let part = part / ranks;
        LocalComm::run(ranks, |comm| {
            let mut gathered = vec![0_i32; part * ranks];
            comm.all_gather(&values::<i32>(comm.rank(), part), &mut gathered).unwrap();
            let expected: Vec<i32> = (0..ranks).flat_map(|rank| values::<i32>(rank, part)).collect();
            assert_eq!(gathered, expected);

            let mut exchanged = vec![0_i32; part * ranks];
            comm.all_to_all(&values::<i32>(comm.rank(), part * ranks), &mut exchanged).unwrap();
            let first = comm.rank() * part;
            let expected: Vec<i32> = (0..ranks)
                .flat_map(|rank| (first..first + part).map(move |index| i32::sample(rank, index)))
                .collect();
            assert_eq!(exchanged, expected);
        });
    }

    #[test]
    fn all_to_all_v_of_any_counts(counts in prop::collection::vec(
        prop_oneof![4 => 0..5_usize, 1 => 0..40_000_usize], 16)
    ) {
        let ranks = 4;
        let count = |source: usize, target: usize| counts[source * ranks + target];
        LocalComm::run(ranks, |comm| {
            let me = comm.rank();
            let send_counts: Vec<usize> = (0..ranks).map(|target| count(me, target)).collect();
            let recv_counts: Vec<usize> = (0..ranks).map(|source| count(source, me)).collect();
            let send = values::<u8>(me, send_counts.iter().sum());
            let mut recv = vec![0; recv_counts.iter().sum()];
            comm.all_to_all_v(&send, &send_counts, &mut recv, &recv_counts).unwrap();
            let expected: Vec<u8> = (0..ranks)
                .flat_map(|source| {
                    let first: usize = (0..me).map(|target| count(source, target)).sum();
                    (first..first + count(source, me)).map(move |index| u8::sample(source, index))
                })
                .collect();
            assert_eq!(recv, expected);
        });
    }
}
