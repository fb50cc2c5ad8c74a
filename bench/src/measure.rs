//! Measuring collectives on one rank, whatever carries them.

use crate::collective::Collective;
use crate::element::Number;
use crate::event::{Measured, RankEvent, Subject};
use crate::pattern::Pattern;
use crate::plan::{Fault, FaultKind, Plan};
use crate::timer::Timer;
use commtrace_collectives::{Communicator, ReduceOp, Result};
use std::time::Duration;

/// Runs everything that `plan` asks for on this rank of `comm`, with elements of type `T`, and says so to `say`. Every
/// rank calls it.
///
/// Each repeat begins with a barrier; its time is that of the call alone. The very first call and the last timed one
/// start from new inputs and an overwritten result buffer, and all of their results are checked.
///
/// # Errors
///
/// The communicator's, after which it may be broken.
pub fn measure<C: Communicator, T: Number>(
    comm: &C,
    timer: &mut dyn Timer,
    plan: &Plan,
    mut fault: Option<Fault>,
    say: &mut dyn FnMut(RankEvent),
) -> Result<()> {
    fault = fault.filter(|fault| fault.rank as usize == comm.rank());
    for &collective in &plan.collectives {
        for &payload_elements in &plan.payload_elements {
            let subject = Subject { collective, schedule: None, payload_elements };
            say(RankEvent::Running(subject));
            let measured = measure_one::<C, T>(comm, timer, plan, subject, fault.take())?;
            say(RankEvent::Measured(measured));
        }
    }
    Ok(())
}

fn measure_one<C: Communicator, T: Number>(
    comm: &C,
    timer: &mut dyn Timer,
    plan: &Plan,
    subject: Subject,
    fault: Option<Fault>,
) -> Result<Measured> {
    let mut call = Call::<C, T>::new(comm, subject)?;
    let (mut times_ms, mut check) = (Vec::new(), Check::default());
    let total = plan.warmup.saturating_add(plan.repeats);
    for repeat in 0..total {
        let checked = repeat == 0 || repeat + 1 == total;
        let pattern = Pattern::new(u32::try_from(comm.size()).unwrap_or(u32::MAX), repeat);
        if checked {
            call.fill(pattern, fault.is_some_and(|fault| fault.kind == FaultKind::WrongResult))?;
        }
        if repeat == plan.warmup {
            fault.into_iter().for_each(commit);
        }
        comm.barrier()?;
        timer.start()?;
        call.make()?;
        let time_ms = timer.stop()?;
        if repeat >= plan.warmup {
            times_ms.push(time_ms);
        }
        if checked {
            check.compare(&call.result()?, &call.expected(pattern), comm.rank(), repeat);
        }
    }
    Ok(Measured { subject, times_ms, wrong_elements: check.wrong, first_wrong: check.first })
}

/// A collective with its buffers.
struct Call<'c, C: Communicator, T: Number> {
    comm: &'c C,
    collective: Collective,
    payload: usize,
    send: C::Owned<T>,
    /// Between the two parts of an all_reduce in two parts.
    middle: Option<C::Owned<T>>,
    recv: C::Owned<T>,
}

impl<'c, C: Communicator, T: Number> Call<'c, C, T> {
    fn new(comm: &'c C, subject: Subject) -> Result<Self> {
        let ranks = u32::try_from(comm.size()).unwrap_or(u32::MAX);
        // What does not fit the address space cannot be allocated either, which is then the error.
        let len = |elements: u64| usize::try_from(elements).unwrap_or(usize::MAX);
        let Subject { collective, payload_elements, .. } = subject;
        let payload = len(payload_elements);
        let middle = match collective {
            Collective::ReduceScatterAllGather => Some(comm.alloc_zeros(payload / comm.size().max(1))?),
            _ => None,
        };
        Ok(Self {
            comm,
            collective,
            payload,
            send: comm.alloc_zeros(payload)?,
            middle,
            recv: comm.alloc_zeros(len(collective.result_elements(payload_elements, ranks)))?,
        })
    }

    fn rank(&self) -> u32 {
        u32::try_from(self.comm.rank()).unwrap_or(u32::MAX)
    }

    /// New inputs, and results that are surely wrong.
    fn fill(&mut self, pattern: Pattern, wrong: bool) -> Result<()> {
        let mut input = pattern.input::<T>(self.rank(), self.payload);
        if wrong && let Some(last) = input.last_mut() {
            *last = T::from_u8(if *last == T::from_u8(1) { 0 } else { 1 });
        }
        self.comm.write(&input, &mut self.send)?;
        if let Some(middle) = &mut self.middle {
            let part = self.payload / self.comm.size().max(1);
            self.comm.write(&Pattern::unwritten::<T>(part), middle)?;
        }
        if self.collective == Collective::Broadcast && self.rank() == 0 {
            return self.comm.write(&input, &mut self.recv);
        }
        let result = self.result_len();
        self.comm.write(&Pattern::unwritten::<T>(result), &mut self.recv)
    }

    fn result_len(&self) -> usize {
        let ranks = self.comm.size().max(1);
        match self.collective {
            Collective::AllGather => self.payload * ranks,
            Collective::ReduceScatter => self.payload / ranks,
            _ => self.payload,
        }
    }

    fn make(&mut self) -> Result<()> {
        let sum = ReduceOp::Sum;
        let (comm, send, recv) = (self.comm, &self.send, &mut self.recv);
        match (self.collective, &mut self.middle) {
            (Collective::AllReduce, _) => comm.all_reduce(send, recv, &sum),
            (Collective::ReduceScatterAllGather, Some(middle)) => {
                comm.reduce_scatter(send, middle, &sum)?;
                comm.all_gather(middle, recv)
            }
            (Collective::ReduceScatterAllGather, None) => Ok(()),
            (Collective::AllGather, _) => comm.all_gather(send, recv),
            (Collective::ReduceScatter, _) => comm.reduce_scatter(send, recv, &sum),
            // In place: a copy within the root is no communication.
            (Collective::Broadcast, _) => comm.broadcast_in_place(recv, 0),
            (Collective::AllToAll, _) => comm.all_to_all(send, recv),
        }
    }

    fn result(&self) -> Result<Vec<T>> {
        self.comm.to_vec(&self.recv)
    }

    fn expected(&self, pattern: Pattern) -> Vec<T> {
        pattern.expected(self.collective, self.rank(), self.payload)
    }
}

/// Wrong elements so far.
#[derive(Debug, Default)]
pub(crate) struct Check {
    pub(crate) wrong: u64,
    pub(crate) first: Option<String>,
}

impl Check {
    /// Compares all elements of a result.
    pub(crate) fn compare<T: Number>(&mut self, result: &[T], expected: &[T], rank: usize, repeat: u32) {
        // A result that is too short is wrong where it ends.
        let missing = result.len().abs_diff(expected.len());
        let mut wrong = result.iter().zip(expected).enumerate().filter(|(_, (got, want))| got != want);
        let first = wrong.next();
        self.wrong += (usize::from(first.is_some()) + wrong.count() + missing) as u64;
        if self.first.is_none() {
            self.first = match first {
                Some((at, (got, want))) => Some(format!(
                    "element {at} on rank {rank} is {got:?} and should be {want:?} (repeat {repeat})"
                )),
                None if missing > 0 => {
                    Some(format!("{} elements on rank {rank} instead of {}", result.len(), expected.len()))
                }
                None => None,
            };
        }
    }
}

/// Does on purpose what must not happen.
pub(crate) fn commit(fault: Fault) {
    match fault.kind {
        FaultKind::WrongResult => {}
        FaultKind::Exit => std::process::exit(3),
        FaultKind::Panic => panic!("a fault on purpose (--fault)"),
        FaultKind::Hang => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_elements_are_counted_and_the_first_is_named() {
        let mut check = Check::default();
        check.compare(&[1, 2, 3], &[1, 2, 3], 0, 0);
        assert_eq!((check.wrong, &check.first), (0, &None));
        check.compare(&[1, 0, 3, 0], &[1, 2, 3, 4], 3, 7);
        assert_eq!(check.wrong, 2);
        assert_eq!(check.first.as_deref(), Some("element 1 on rank 3 is 0 and should be 2 (repeat 7)"));
        check.compare(&[f32::NAN], &[1.0], 0, 0);
        assert_eq!(check.wrong, 3, "NaN is equal to nothing");
        check.compare(&[1], &[1, 2], 0, 0);
        assert_eq!(check.wrong, 4);
    }
}
