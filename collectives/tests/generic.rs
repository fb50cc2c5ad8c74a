//! Code that is written once for all backends.

use commtrace_collectives::{Communicator, Group, LocalComm, Pending, ReduceOp, Result};

/// Data-parallel gradient descent on y = w x + b, gradients reduced in buckets while the next is computed.
fn train<C: Communicator>(comm: &C, steps: usize) -> Result<Vec<f32>> {
    let mut start = comm.alloc_from(&[comm.rank() as f32, 9.0])?;
    comm.broadcast_in_place(&mut start, 0)?;
    let mut weights = comm.to_vec(&start)?;
    let points: Vec<f32> = (0..8).map(|i| (i * comm.size() + comm.rank()) as f32 / 16.0).collect();
    let scale = 1.0 / points.len() as f32;
    for _ in 0..steps {
        let errors: Vec<f32> = points.iter().map(|x| weights[0] * x + weights[1] - (3.0 * x - 1.0)).collect();
        let mut pending: Vec<Pending<C::Owned<f32>>> = Vec::new();
        for weight in 0..2 {
            let slope = |x: f32| if weight == 0 { x } else { 1.0 };
            let gradient: f32 = points.iter().zip(&errors).map(|(x, error)| error * slope(*x) * scale).sum();
            let bucket = comm.alloc_from(&[gradient])?;
            pending.push(comm.all_reduce_in_place_async(bucket, &ReduceOp::Avg));
        }
        for (weight, pending) in weights.iter_mut().zip(pending) {
            let (bucket, mut gradient) = (pending.wait()?, [0.0]);
            comm.read(&bucket, &mut gradient)?;
            *weight -= 0.5 * gradient[0];
        }
    }
    Ok(weights)
}

/// Every call that takes a buffer, with the buffers of the backend.
fn every_call<C: Communicator>(comm: &C) -> Result<Vec<i32>> {
    let (n, me) = (comm.size(), comm.rank());
    let part = comm.alloc_from(&[me as i32])?;
    let mut all = comm.alloc_zeros::<i32>(n)?;
    comm.all_gather(&part, &mut all)?;
    let mut exchanged = comm.alloc_zeros::<i32>(n)?;
    comm.all_to_all(&all, &mut exchanged)?;
    let ones = vec![1; n];
    comm.all_to_all_v(&exchanged, &ones, &mut all, &ones)?;
    let mut mine = comm.alloc_zeros::<i32>(1)?;
    comm.reduce_scatter(&all, &mut mine, &ReduceOp::Sum)?;
    let mut at_root = comm.alloc_zeros::<i32>(1)?;
    comm.reduce(&mine, (me == 0).then_some(&mut *at_root), &ReduceOp::Sum, 0)?;
    comm.broadcast((me == 0).then_some(&*at_root), &mut mine, 0)?;
    let mut largest = comm.alloc_zeros::<i32>(1)?;
    let mut from_left = comm.alloc_zeros::<i32>(1)?;
    comm.group(|g| {
        g.send(&part, (me + 1) % n)?;
        g.recv(&mut from_left, (me + n - 1) % n)?;
        g.all_reduce(&part, &mut largest, &ReduceOp::Max)
    })?;
    comm.write(&[comm.to_vec(&largest)?[0] + 1], &mut largest)?;
    comm.barrier()?;
    Ok([mine, largest, from_left]
        .iter()
        .map(|buffer| comm.to_vec(buffer))
        .collect::<Result<Vec<_>>>()?
        .concat())
}

#[test]
fn training_converges_to_the_same_weights_on_all_ranks() {
    let weights = LocalComm::run(4, |comm| train(&comm, if cfg!(miri) { 20 } else { 2000 }).unwrap());
    assert!(weights.iter().all(|rank| *rank == weights[0]), "{weights:?}");
    if !cfg!(miri) {
        assert!((weights[0][0] - 3.0).abs() < 1e-3 && (weights[0][1] + 1.0).abs() < 1e-3, "{weights:?}");
    }
}

#[test]
fn every_call_is_usable_without_knowing_the_backend() {
    let results = LocalComm::run(3, |comm| every_call(&comm).unwrap());
    // all_gather: 0 1 2 everywhere; all_to_all: rank r has r r r; all_to_all_v: 0 1 2 again;
    // reduce_scatter: 3 r; reduce and broadcast: 0 + 3 + 6.
    assert_eq!(results, [[9, 3, 2], [9, 3, 0], [9, 3, 1]]);
}
