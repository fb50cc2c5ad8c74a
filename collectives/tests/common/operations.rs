//! Every operation on one rank of any communicator, compared with the naive version.

use super::{REDUCTIONS, Sample, reduced, values};
use commtrace_collectives::{Communicator, DType, Group, ReduceOp, Result};

/// How results are compared with those of a fold in rank order.
#[derive(Clone, Copy, PartialEq)]
pub enum Agree {
    /// Equal.
    Exactly,
    /// Equal, but for what rounding may do to sums and products of floating-point numbers whose order is
    /// the backend's.
    UpToRounding,
}

impl Agree {
    fn check<T: Sample>(self, what: &str, op: Option<ReduceOp>, got: &[T], expected: &[T]) {
        let exact = self == Self::Exactly || matches!(op, None | Some(ReduceOp::Min | ReduceOp::Max));
        let rounding = if exact { 0.0 } else { rounding(T::DTYPE) };
        let close = got.iter().zip(expected).all(|(got, expected)| {
            got == expected
                || (got.real() - expected.real()).abs() <= rounding * expected.real().abs().max(1.0)
        });
        assert!(
            close && got.len() == expected.len(),
            "{what} {op:?} of {}: {:?} and not {:?}",
            T::DTYPE,
            &got[..got.len().min(20)],
            &expected[..expected.len().min(20)]
        );
    }
}

/// Of a few additions or multiplications of numbers between -2 and 2, relative to results above 1.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::Float32 => 1e-5,
        DType::Float64 => 1e-13,
        // Rounded once, to 11 and 8 bits: neighbours where the f32 before it fell to another side.
        DType::Float16 => 1e-3,
        DType::BFloat16 => 8e-3,
        _ => 0.0,
    }
}

/// All reductions, by every operation.
pub fn reductions<T: Sample>(comm: &impl Communicator, len: usize, agree: Agree) -> Result<()> {
    REDUCTIONS.into_iter().try_for_each(|op| reduction::<T>(comm, len, op, agree))
}

/// All reductions of `len` elements.
pub fn reduction<T: Sample>(comm: &impl Communicator, len: usize, op: ReduceOp, agree: Agree) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.size());
    let expected = reduced::<T>(op, ranks, len);
    let root = ranks / 2;
    let at_root = me == root;
    let mine = values::<T>(me, len);
    let check = |what: &str, got: &[T], expected: &[T]| agree.check(what, Some(op), got, expected);

    let send = comm.alloc_from(&mine)?;
    let mut recv = comm.alloc_zeros(len)?;
    comm.all_reduce(&send, &mut recv, &op)?;
    check("all_reduce", &comm.to_vec(&recv)?, &expected);
    assert_eq!(comm.to_vec(&send)?, mine, "send is left as it is");

    let mut buffer = comm.alloc_from(&mine)?;
    comm.all_reduce_in_place(&mut buffer, &op)?;
    check("all_reduce_in_place", &comm.to_vec(&buffer)?, &expected);

    let mut recv = comm.alloc_zeros::<T>(len)?;
    comm.reduce(&send, at_root.then_some(&mut *recv), &op, root)?;
    let zeros = vec![T::default(); len];
    check("reduce", &comm.to_vec(&recv)?, if at_root { &expected } else { &zeros });

    let mut buffer = comm.alloc_from(&mine)?;
    comm.reduce_in_place(&mut buffer, &op, root)?;
    check("reduce_in_place", &comm.to_vec(&buffer)?, if at_root { &expected } else { &mine });

    let pending = comm.all_reduce_async(comm.alloc_from(&mine)?, comm.alloc_zeros(len)?, &op);
    let in_place = comm.all_reduce_in_place_async(comm.alloc_from(&mine)?, &op);
    let (send, recv) = pending.wait()?;
    let in_place = in_place.wait()?;
    assert_eq!(comm.to_vec(&send)?, mine);
    check("all_reduce_async", &comm.to_vec(&recv)?, &expected);
    check("all_reduce_in_place_async", &comm.to_vec(&in_place)?, &expected);

    let whole = reduced::<T>(op, ranks, len * ranks);
    let part = &whole[me * len..(me + 1) * len];
    let send = comm.alloc_from(&values::<T>(me, len * ranks))?;
    let mut recv = comm.alloc_zeros(len)?;
    comm.reduce_scatter(&send, &mut recv, &op)?;
    check("reduce_scatter", &comm.to_vec(&recv)?, part);
    let pending = comm.reduce_scatter_async(send, comm.alloc_zeros(len)?, &op);
    check("reduce_scatter_async", &comm.to_vec(&pending.wait()?.1)?, part);
    Ok(())
}

/// All calls that move `len` elements per rank.
pub fn moves<T: Sample>(comm: &impl Communicator, len: usize) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.size());
    let gathered: Vec<T> = (0..ranks).flat_map(|rank| values::<T>(rank, len)).collect();
    let root = ranks - 1;
    let mine = values::<T>(me, len);
    let buffer = || comm.alloc_from(&mine);
    let zeros = |len: usize| comm.alloc_zeros::<T>(len);
    let check = |what: &str, got: &[T], expected: &[T]| Agree::Exactly.check(what, None, got, expected);

    let (send, mut recv) = (buffer()?, zeros(len * ranks)?);
    comm.all_gather(&send, &mut recv)?;
    check("all_gather", &comm.to_vec(&recv)?, &gathered);
    let pending = comm.all_gather_async(buffer()?, zeros(len * ranks)?);
    check("all_gather_async", &comm.to_vec(&pending.wait()?.1)?, &gathered);

    let of_root = values::<T>(root, len);
    let send = buffer()?;
    let mut recv = zeros(len)?;
    comm.broadcast((me == root).then_some(&*send), &mut recv, root)?;
    check("broadcast", &comm.to_vec(&recv)?, &of_root);
    let mut in_place = buffer()?;
    comm.broadcast_in_place(&mut in_place, root)?;
    check("broadcast_in_place", &comm.to_vec(&in_place)?, &of_root);
    let pending = comm.broadcast_async((me == root).then_some(send), zeros(len)?, root);
    let (send, recv) = pending.wait()?;
    assert_eq!(send.is_some(), me == root);
    check("broadcast_async", &comm.to_vec(&recv)?, &of_root);
    let in_place = comm.broadcast_in_place_async(buffer()?, root).wait()?;
    check("broadcast_in_place_async", &comm.to_vec(&in_place)?, &of_root);

    // Rank i's part for rank j are the elements j * len.. of rank i's values.
    let send = comm.alloc_from(&values::<T>(me, len * ranks))?;
    let exchanged: Vec<T> = (0..ranks)
        .flat_map(|source| (me * len..(me + 1) * len).map(move |index| T::sample(source, index)))
        .collect();
    let mut recv = zeros(len * ranks)?;
    comm.all_to_all(&send, &mut recv)?;
    check("all_to_all", &comm.to_vec(&recv)?, &exchanged);
    let pending = comm.all_to_all_async(send, zeros(len * ranks)?);
    check("all_to_all_async", &comm.to_vec(&pending.wait()?.1)?, &exchanged);

    let (right, left) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
    let send = buffer()?;
    let mut from_left = zeros(len)?;
    comm.group(|g| {
        g.send(&send, right)?;
        g.recv(&mut from_left, left)
    })?;
    check("ring", &comm.to_vec(&from_left)?, &values::<T>(left, len));
    if ranks > 1 {
        chain::<T>(comm, len)?;
    }
    comm.barrier()
}

/// Messages outside of groups, blocking and not: from the first rank to the last along all others.
fn chain<T: Sample>(comm: &impl Communicator, len: usize) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.size());
    let sent = values::<T>(7, len);
    for blocking in [true, false] {
        let mut buffer = if me == 0 { comm.alloc_from(&sent)? } else { comm.alloc_zeros(len)? };
        if me > 0 && blocking {
            comm.recv(&mut buffer, me - 1)?;
        } else if me > 0 {
            buffer = comm.recv_async(buffer, me - 1).wait()?;
        }
        if me + 1 < ranks && blocking {
            comm.send(&buffer, me + 1)?;
        } else if me + 1 < ranks {
            buffer = comm.send_async(buffer, me + 1).wait()?;
        }
        Agree::Exactly.check("chain", None, &comm.to_vec(&buffer)?, &sent);
    }
    Ok(())
}

/// Parts of very different lengths, some empty, with room behind the last one.
pub fn all_to_all_v(comm: &impl Communicator, lengths: &[usize]) -> Result<()> {
    let (me, ranks) = (comm.rank(), comm.size());
    let count = |source: usize, target: usize| lengths[(source * 7 + target * 3 + ranks) % lengths.len()];
    let send_counts: Vec<usize> = (0..ranks).map(|target| count(me, target)).collect();
    let recv_counts: Vec<usize> = (0..ranks).map(|source| count(source, me)).collect();
    let send = comm.alloc_from(&values::<f32>(me, send_counts.iter().sum::<usize>() + 3))?;
    let fresh = || comm.alloc_from(&vec![-9.0_f32; recv_counts.iter().sum::<usize>() + 2]);
    let mut recv = fresh()?;
    comm.all_to_all_v(&send, &send_counts, &mut recv, &recv_counts)?;

    let mut expected = Vec::new();
    for source in 0..ranks {
        let start: usize = (0..me).map(|target| count(source, target)).sum();
        expected.extend((start..start + count(source, me)).map(|index| f32::sample(source, index)));
    }
    expected.extend([-9.0; 2]);
    assert_eq!(comm.to_vec(&recv)?, expected);

    let pending = comm.all_to_all_v_async(send, &send_counts, fresh()?, &recv_counts);
    assert_eq!(comm.to_vec(&pending.wait()?.1)?, expected);
    Ok(())
}
