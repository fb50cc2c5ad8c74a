//! All collectives, for all types and reductions, against arithmetic on the host.

use crate::machine::{Failure, Machine, RANKS};
use crate::verdict::Verdicts;
use commtrace::collectives::Element;
use commtrace::prelude::*;
use half::{bf16, f16};

/// Elements of one part. Odd, and enough for several threads.
const LEN: usize = 4099;

const REDUCTIONS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];

/// A type with values that every reduction of two is exact for.
trait Sample: Element {
    fn of(value: u8) -> Self;
}

macro_rules! samples {
    ($($type:ty: $from:expr),*) => {
        $(impl Sample for $type {
            fn of(value: u8) -> Self {
                $from(value)
            }
        })*
    };
}

samples!(
    f32: f32::from,
    f64: f64::from,
    i32: i32::from,
    i64: i64::from,
    u8: std::convert::identity,
    f16: |value| f16::from_f32(f32::from(value)),
    bf16: |value| bf16::from_f32(f32::from(value))
);

/// Even, so that the average of two is exact.
fn value(rank: usize, index: usize) -> u8 {
    ((rank * 7 + index * 3) % 5 * 2) as u8
}

fn reduced(op: ReduceOp, index: usize) -> u8 {
    let values = (0..RANKS).map(|rank| value(rank, index));
    match op {
        ReduceOp::Sum => values.sum(),
        ReduceOp::Prod => values.product(),
        ReduceOp::Max => values.max().unwrap_or(0),
        ReduceOp::Min => values.min().unwrap_or(0),
        ReduceOp::Avg => values.sum::<u8>() / RANKS as u8,
    }
}

pub fn check(machine: &Machine, verdicts: &mut Verdicts) {
    of_type::<f32>(machine, verdicts);
    of_type::<f64>(machine, verdicts);
    of_type::<f16>(machine, verdicts);
    of_type::<bf16>(machine, verdicts);
    of_type::<i32>(machine, verdicts);
    of_type::<i64>(machine, verdicts);
    of_type::<u8>(machine, verdicts);
}

fn of_type<T: Sample>(machine: &Machine, verdicts: &mut Verdicts) {
    let calls = machine.run(|comm, _stream| Rank::<T>::new(&comm).all());
    let calls = calls.map(|calls| format!("{} calls are right", calls.iter().sum::<usize>()));
    verdicts.of(&format!("collectives of {}", T::DTYPE), calls);
}

/// One rank's calls.
struct Rank<'c, T> {
    comm: &'c NcclComm,
    calls: usize,
    kind: std::marker::PhantomData<T>,
}

impl<'c, T: Sample> Rank<'c, T> {
    fn new(comm: &'c NcclComm) -> Self {
        Self { comm, calls: 0, kind: std::marker::PhantomData }
    }

    /// Values of `rank` from `first` on.
    fn values(rank: usize, first: usize, len: usize) -> Vec<T> {
        (first..first + len).map(|index| T::of(value(rank, index))).collect()
    }

    fn mine(&self, len: usize) -> Result<<NcclComm as Communicator>::Owned<T>, Failure> {
        Ok(self.comm.alloc_from(&Self::values(self.comm.rank(), 0, len))?)
    }

    fn zeros(&self, len: usize) -> Result<<NcclComm as Communicator>::Owned<T>, Failure> {
        Ok(self.comm.alloc_zeros(len)?)
    }

    fn is(
        &mut self,
        what: &str,
        buffer: &<NcclComm as Communicator>::Buffer<T>,
        expected: &[T],
    ) -> Result<(), Failure> {
        let found = self.comm.to_vec(buffer)?;
        if let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
            return Err(format!("{what}, element {at}: {:?} and not {:?}", found[at], expected[at]).into());
        }
        if found.len() != expected.len() {
            return Err(format!("{what}: {} elements and not {}", found.len(), expected.len()).into());
        }
        self.calls += 1;
        Ok(())
    }

    fn all(mut self) -> Result<usize, Failure> {
        let (comm, rank) = (self.comm, self.comm.rank());
        for op in REDUCTIONS {
            self.reductions(op)?;
        }
        for root in 0..RANKS {
            let (send, mut recv) = (self.mine(LEN)?, self.zeros(LEN)?);
            Communicator::broadcast(comm, (rank == root).then_some(&*send), &mut recv, root)?;
            self.is("broadcast", &recv, &Self::values(root, 0, LEN))?;
            let mut buffer = self.mine(LEN)?;
            Communicator::broadcast_in_place(comm, &mut buffer, root)?;
            self.is("broadcast_in_place", &buffer, &Self::values(root, 0, LEN))?;
        }
        let (send, mut recv) = (self.mine(LEN)?, self.zeros(LEN * RANKS)?);
        Communicator::all_gather(comm, &send, &mut recv)?;
        let all: Vec<T> = (0..RANKS).flat_map(|rank| Self::values(rank, 0, LEN)).collect();
        self.is("all_gather", &recv, &all)?;

        let (send, mut recv) = (self.mine(LEN * RANKS)?, self.zeros(LEN * RANKS)?);
        Communicator::all_to_all(comm, &send, &mut recv)?;
        let parts: Vec<T> = (0..RANKS).flat_map(|peer| Self::values(peer, rank * LEN, LEN)).collect();
        self.is("all_to_all", &recv, &parts)?;

        let (right, left) = ((rank + 1) % RANKS, (rank + RANKS - 1) % RANKS);
        let (send, mut recv) = (self.mine(LEN)?, self.zeros(LEN)?);
        comm.group(|g| {
            Group::send(g, &send, right)?;
            Group::recv(g, &mut recv, left)
        })?;
        self.is("send and recv in a group", &recv, &Self::values(left, 0, LEN))?;

        let pending = comm.all_reduce_in_place_async(self.mine(LEN)?, &ReduceOp::Sum);
        let sum = pending.wait()?;
        let sums: Vec<T> = (0..LEN).map(|index| T::of(reduced(ReduceOp::Sum, index))).collect();
        self.is("all_reduce_in_place_async", &sum, &sums)?;
        comm.barrier()?;
        Ok(self.calls)
    }

    fn reductions(&mut self, op: ReduceOp) -> Result<(), Failure> {
        let (comm, rank) = (self.comm, self.comm.rank());
        let expected: Vec<T> = (0..LEN * RANKS).map(|index| T::of(reduced(op, index))).collect();
        let (first, part) = (&expected[..LEN], &expected[rank * LEN..][..LEN]);
        let (send, mut recv) = (self.mine(LEN)?, self.zeros(LEN)?);
        Communicator::all_reduce(comm, &send, &mut recv, &op)?;
        self.is(&format!("all_reduce {op}"), &recv, first)?;
        let mut buffer = self.mine(LEN)?;
        Communicator::all_reduce_in_place(comm, &mut buffer, &op)?;
        self.is(&format!("all_reduce_in_place {op}"), &buffer, first)?;
        let (send, mut recv) = (self.mine(LEN * RANKS)?, self.zeros(LEN)?);
        Communicator::reduce_scatter(comm, &send, &mut recv, &op)?;
        self.is(&format!("reduce_scatter {op}"), &recv, part)?;
        for root in 0..RANKS {
            let (send, mut recv) = (self.mine(LEN)?, self.zeros(LEN)?);
            Communicator::reduce(comm, &send, (rank == root).then_some(&mut *recv), &op, root)?;
            let zeros = vec![T::default(); LEN];
            self.is(&format!("reduce {op}"), &recv, if rank == root { first } else { &zeros })?;
        }
        Ok(())
    }
}
