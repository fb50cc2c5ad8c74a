//! Measuring both schedules on one rank.

use super::{Both, Buffers, Site};
use crate::collective::Collective;
use crate::event::{Measured, RankEvent, Subject};
use crate::measure::{Check, commit};
use crate::pattern::Pattern;
use crate::plan::{Fault, FaultKind, Plan};
use crate::product::{Real, Sizes};
use crate::record::Schedule;
use commtrace_collectives::{Communicator, Error, Result};

const SCHEDULES: [Schedule; 2] = [Schedule::Serial, Schedule::Overlapped];

/// Runs the experiment on this rank of `comm` with elements of type `T`, and says so to `say`. Every rank calls it.
///
/// The schedules take turns, repeat by repeat, with the same buffers and matrices, so that a machine that grows slower
/// does so for both; which of them comes first alternates. As with collectives, a repeat begins with a
/// barrier, and all results of the first and the last are checked.
///
/// # Errors
///
/// Those of the communicator and of what multiplies.
pub(crate) fn measure<C: Communicator, T: Real, S: Site<C>>(
    comm: &C,
    site: &mut S,
    plan: &Plan,
    fault: Option<Fault>,
    say: &mut dyn FnMut(RankEvent),
) -> Result<()> {
    let sizes = Sizes::new(plan.compute_dim.unwrap_or(0))
        .map_err(|problem| Error::Setup { library: "commtrace bench", problem })?;
    let mut both = site.both::<T>(sizes)?;
    let mut fault = fault.filter(|fault| fault.rank as usize == comm.rank());
    for &payload in &plan.payload_elements {
        let measured = measure_one(comm, site, &mut both, plan, payload, fault.take(), say)?;
        measured.into_iter().for_each(|measured| say(RankEvent::Measured(measured)));
    }
    Ok(())
}

fn measure_one<C: Communicator, T: Real, S: Site<C>>(
    comm: &C,
    site: &mut S,
    both: &mut S::Both<T>,
    plan: &Plan,
    payload_elements: u64,
    fault: Option<Fault>,
    say: &mut dyn FnMut(RankEvent),
) -> Result<[Measured; 2]> {
    let of =
        |schedule| Subject { collective: Collective::AllReduce, schedule: Some(schedule), payload_elements };
    let mut found = SCHEDULES.map(|schedule| (of(schedule), Vec::new(), Check::default()));
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let (rank, ranks) = (number(comm.rank()), number(comm.size()));
    let payload = usize::try_from(payload_elements).unwrap_or(usize::MAX);
    let mut buffers = Buffers::<C, T>::new(comm, payload)?;
    let total = plan.warmup.saturating_add(plan.repeats);
    for repeat in 0..total {
        if repeat == plan.warmup {
            fault.into_iter().for_each(commit);
        }
        for turn in 0..SCHEDULES.len() {
            let (subject, times_ms, check) = &mut found[(turn + repeat as usize) % SCHEDULES.len()];
            let schedule = subject.schedule.unwrap_or(Schedule::Serial);
            let checked = repeat == 0 || repeat + 1 == total;
            let pattern = Pattern::new(ranks, repeat.saturating_mul(2).saturating_add(number(turn)));
            if checked {
                say(RankEvent::Running(*subject));
                let mut input = pattern.input::<T>(rank, payload);
                if fault.is_some_and(|fault| fault.kind == FaultKind::WrongResult)
                    && let Some(last) = input.last_mut()
                {
                    *last = T::from_u8(if *last == T::from_u8(1) { 0 } else { 1 });
                }
                buffers.with(|send, recv| {
                    comm.write(&input, send)?;
                    comm.write(&Pattern::unwritten::<T>(payload), recv)
                })?;
                both.product().clear()?;
            }
            comm.barrier()?;
            site.timer().start()?;
            both.run(comm, schedule, &mut buffers)?;
            let time_ms = site.timer().stop()?;
            if repeat >= plan.warmup {
                times_ms.push(time_ms);
            }
            if checked {
                buffers.with(|_, recv| {
                    let expected = pattern.expected(subject.collective, rank, payload);
                    check.compare(&comm.to_vec(recv)?, &expected, comm.rank(), repeat);
                    Ok(())
                })?;
                let wrong = both.product().wrong_entries()?;
                check.wrong += wrong;
                if wrong > 0 {
                    check.first.get_or_insert_with(|| {
                        format!(
                            "{wrong} checked entries of the matrix product on rank {rank} (repeat {repeat})"
                        )
                    });
                }
            }
        }
    }
    Ok(found.map(|(subject, times_ms, Check { wrong, first })| Measured {
        subject,
        times_ms,
        wrong_elements: wrong,
        first_wrong: first,
    }))
}
