//! Every operation against a naive version: element types, sizes, numbers of ranks.

mod common;

use common::{REDUCTIONS, Sample, reduced, values};
use commtrace_collectives::{Communicator, Group, LocalComm, ReduceOp, Result};
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
    let expected = reduced::<T>(op, ranks, len);
    let root = ranks / 2;
    on_ranks(ranks, |comm| {
        let send = values::<T>(comm.rank(), len);
        let mut recv = vec![T::default(); len];
        comm.all_reduce(&send, &mut recv, &op)?;
        assert_eq!(recv, expected, "all_reduce {op} of {} on {ranks} ranks", T::DTYPE);

        let mut buffer = send.clone();
        comm.all_reduce_in_place(&mut buffer, &op)?;
        assert_eq!(buffer, expected, "all_reduce_in_place");

        let at_root = comm.rank() == root;
        let mut recv = vec![T::default(); len];
        comm.reduce(&send, at_root.then_some(&mut *recv), &op, root)?;
        assert_eq!(recv, if at_root { expected.clone() } else { vec![T::default(); len] }, "reduce");

        let mut buffer = send.clone();
        comm.reduce_in_place(&mut buffer, &op, root)?;
        assert_eq!(buffer, if at_root { expected.clone() } else { send }, "reduce_in_place");

        let (pending, pending_in_place) = (
            comm.all_reduce_async(values::<T>(comm.rank(), len), vec![T::default(); len], &op),
            comm.all_reduce_in_place_async(values::<T>(comm.rank(), len), &op),
        );
        assert_eq!(pending.wait()?, (values(comm.rank(), len), expected.clone()), "all_reduce_async");
        assert_eq!(pending_in_place.wait()?, expected, "all_reduce_in_place_async");
        Ok(())
    });

    let whole = reduced::<T>(op, ranks, len * ranks);
    on_ranks(ranks, |comm| {
        let send = values::<T>(comm.rank(), len * ranks);
        let mine = &whole[comm.rank() * len..(comm.rank() + 1) * len];
        let mut recv = vec![T::default(); len];
        comm.reduce_scatter(&send, &mut recv, &op)?;
        assert_eq!(recv, mine, "reduce_scatter {op} of {} on {ranks} ranks", T::DTYPE);
        let pending = comm.reduce_scatter_async(send, vec![T::default(); len], &op);
        assert_eq!(pending.wait()?.1, mine, "reduce_scatter_async");
        Ok(())
    });
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
            moved::<T>(ranks, len);
        }
    }
}

fn moved<T: Sample>(ranks: usize, len: usize) {
    let gathered: Vec<T> = (0..ranks).flat_map(|rank| values::<T>(rank, len)).collect();
    let root = ranks - 1;
    on_ranks(ranks, |comm| {
        let me = comm.rank();
        let zeros = |len: usize| vec![T::default(); len];
        let mine = values::<T>(me, len);

        let mut recv = zeros(len * ranks);
        comm.all_gather(&mine, &mut recv)?;
        assert_eq!(recv, gathered, "all_gather of {} on {ranks} ranks", T::DTYPE);
        assert_eq!(comm.all_gather_async(mine.clone(), zeros(len * ranks)).wait()?.1, gathered);

        let of_root = values::<T>(root, len);
        let send = (me == root).then_some(&*mine);
        let mut recv = zeros(len);
        comm.broadcast(send, &mut recv, root)?;
        assert_eq!(recv, of_root, "broadcast");
        let mut buffer = mine.clone();
        comm.broadcast_in_place(&mut buffer, root)?;
        assert_eq!(buffer, of_root, "broadcast_in_place");
        let pending = comm.broadcast_async(send.map(<[T]>::to_vec), zeros(len), root);
        assert_eq!(pending.wait()?, (send.map(<[T]>::to_vec), of_root.clone()), "broadcast_async");
        assert_eq!(comm.broadcast_in_place_async(mine.clone(), root).wait()?, of_root);

        // Rank i's part for rank j are the elements j * len.. of rank i's values.
        let send = values::<T>(me, len * ranks);
        let exchanged: Vec<T> = (0..ranks)
            .flat_map(|source| (me * len..(me + 1) * len).map(move |index| T::sample(source, index)))
            .collect();
        let mut recv = zeros(len * ranks);
        comm.all_to_all(&send, &mut recv)?;
        assert_eq!(recv, exchanged, "all_to_all");
        assert_eq!(comm.all_to_all_async(send, zeros(len * ranks)).wait()?.1, exchanged);

        let mut from_left = zeros(len);
        let (right, left) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        comm.group(|g| {
            g.send(&mine, right)?;
            g.recv(&mut from_left, left)
        })?;
        assert_eq!(from_left, values::<T>(left, len), "ring");
        comm.barrier()
    });
}

#[test]
fn moves_of_every_element_size() {
    moves::<u8>();
    moves::<bf16>();
    moves::<f32>();
    moves::<i64>();
}

/// Parts of very different lengths, some empty, with room behind the last one.
#[test]
fn all_to_all_v() {
    let lengths: [usize; 5] = if cfg!(miri) { [0, 1, 3, 17, 0] } else { [0, 1, 1000, 70_001, 0] };
    for ranks in 1..=if cfg!(miri) { 3 } else { 6 } {
        let count = |source: usize, target: usize| lengths[(source * 7 + target * 3 + ranks) % lengths.len()];
        on_ranks(ranks, |comm| {
            let me = comm.rank();
            let send_counts: Vec<usize> = (0..ranks).map(|target| count(me, target)).collect();
            let recv_counts: Vec<usize> = (0..ranks).map(|source| count(source, me)).collect();
            let send = values::<f32>(me, send_counts.iter().sum::<usize>() + 3);
            let mut recv = vec![-9.0_f32; recv_counts.iter().sum::<usize>() + 2];
            comm.all_to_all_v(&send, &send_counts, &mut recv, &recv_counts)?;

            let mut expected = Vec::new();
            for source in 0..ranks {
                let start: usize = (0..me).map(|target| count(source, target)).sum();
                expected.extend((start..start + count(source, me)).map(|index| f32::sample(source, index)));
            }
            expected.extend([-9.0; 2]);
            assert_eq!(recv, expected);

            let fresh = vec![-9.0_f32; recv.len()];
            let pending = comm.all_to_all_v_async(send, &send_counts, fresh, &recv_counts);
            assert_eq!(pending.wait()?.1, expected);
            Ok(())
        });
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
