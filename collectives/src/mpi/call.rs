//! From a call to its agreement and its data, alone or in a group.

use std::cell::RefCell;
use std::ffi::c_int;
use std::pin::Pin;
use std::sync::Arc;

use super::core::Core;
use super::maximum::Maximum;
use super::request::{Pace, drive};
use super::style::Style;
use crate::host::call::{Call, RawCall};
use crate::host::check::{Fault, own_problem};
use crate::host::key::{Key, Members};
use crate::host::{Backend, Departure, GroupedCall, Thread};
use crate::{Error, Op, Result};

impl Backend for Core {
    /// Else the process might end before the communication thread has ended MPI.
    const DROP_WAITS: bool = true;

    fn members(&self) -> &Members {
        &self.members
    }

    fn carry_out(
        &self,
        _rank: usize,
        key: Key,
        call: Call<'_>,
        thread: Thread,
        joined: impl FnOnce(),
    ) -> Result<()> {
        let call = &call.raw;
        self.usable(|| self.members.call_id(key, call.op))?;
        let pace = Pace::default();
        let result = match key {
            Key::Message { .. } => {
                joined();
                self.run(&pace, self.message_call(key, call, &pace))
            }
            Key::Collective { .. } | Key::Split { .. } => {
                // A communication thread that never lets others run would take a core from compute.
                let blocks = thread == Thread::Caller && self.runtime.may_block();
                let style = if blocks { Style::Blocking } else { Style::NonBlocking };
                let begun = self.begin(key, call, style);
                joined();
                begun.and_then(|begun| self.run(&pace, self.collective_call(key, call, begun, &pace)))
            }
        };
        self.leaves();
        result.map_err(|error| self.fail(error))
    }

    /// Starts all calls, then waits for them: messages side by side, collectives one after the other.
    fn carry_out_group(&self, _rank: usize, calls: Vec<GroupedCall<'_>>) -> Result<()> {
        if let Some(first) = calls.first() {
            self.usable(|| self.members.call_id(first.key, first.call.raw.op))?;
        }
        let pace = Pace::default();
        let results: Vec<RefCell<Option<Result<()>>>> = calls.iter().map(|_| RefCell::default()).collect();
        let mut announced = Vec::new();
        let mut parts: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
        for (GroupedCall { key, call, .. }, result) in calls.iter().zip(&results) {
            if let Key::Message { .. } = key {
                let pace = &pace;
                parts.push(Box::pin(async move {
                    let outcome = self.message_call(*key, &call.raw, pace).await;
                    *result.borrow_mut() = Some(outcome.map_err(|error| self.fail(error)));
                }));
            } else {
                announced.push((*key, &call.raw, result, self.begin(*key, &call.raw, Style::NonBlocking)));
            }
        }
        let pace_of_all = &pace;
        parts.push(Box::pin(async move {
            for (key, call, result, begun) in announced {
                let outcome = async {
                    self.usable(|| self.members.call_id(key, call.op))?;
                    self.collective_call(key, call, begun?, pace_of_all).await
                };
                let outcome = outcome.await;
                *result.borrow_mut() = Some(outcome.map_err(|error| self.fail(error)));
            }
        }));
        for (GroupedCall { span, .. }, result) in calls.iter().zip(&results) {
            span.in_scope(|| {
                let step = |context: &mut std::task::Context<'_>| {
                    parts.retain_mut(|part| part.as_mut().poll(context).is_pending());
                    result.borrow().is_some()
                };
                drive(&pace, step, || self.answer());
            });
        }
        self.leaves();
        drop(parts);
        results.into_iter().filter_map(RefCell::into_inner).collect()
    }

    fn leave(&self, rank: usize, how: Departure) {
        if how == Departure::Panicked {
            let call = self.members.call_id(Key::Split { count: 0 }, Op::Barrier);
            let rank = self.members.global(rank);
            self.fail(Error::RankLost { call, rank, panicked: true });
        }
    }
}

/// A collective that has begun.
enum Begun<'r> {
    Agreement(Maximum<'r>),
    Unchecked(Style),
}

impl Core {
    /// Begins a collective, which is the agreement on it where the ranks compare their calls.
    fn begin(&self, key: Key, call: &RawCall, style: Style) -> Result<Begun<'_>> {
        if !self.settings.checks {
            return Ok(Begun::Unchecked(style));
        }
        self.propose(call, self.problem(call).is_some(), style)
            .map(Begun::Agreement)
            .map_err(|failure| self.error(self.members.call_id(key, call.op), failure))
    }

    async fn collective_call(&self, key: Key, call: &RawCall, begun: Begun<'_>, pace: &Pace) -> Result<()> {
        let problem = self.problem(call);
        let style = match (begun, problem) {
            (Begun::Agreement(agreement), problem) => {
                self.waits_in(key);
                let style = self.settle(key, call, problem.as_deref(), agreement).await?;
                self.leaves();
                match call.op {
                    // All ranks have come.
                    Op::Barrier => return Ok(()),
                    Op::AllToAllV => self.settle_counts(key, call).await?,
                    _ => {}
                }
                style
            }
            (Begun::Unchecked(_), Some(problem)) => {
                let fault = Fault::Invalid(vec![(self.rank, problem)]);
                return Err(fault.into_error(&self.members, key, call.op));
            }
            (Begun::Unchecked(style), None) => style,
        };
        pace.moving();
        // SAFETY: the buffers are borrowed until the backend returns, which it does only when this
        // future is done or, unwinding, dropped. The arguments have been checked.
        let moved = unsafe { self.collective(call, style) }.await;
        moved.map_err(|failure| self.error(self.members.call_id(key, call.op), failure))
    }

    async fn message_call(&self, key: Key, call: &RawCall, pace: &Pace) -> Result<()> {
        let Key::Message { source, destination, count } = key else { return Ok(()) };
        let peer = if call.op == Op::Send { destination } else { source };
        if self.settings.checks {
            self.settle_message(key, call, peer).await?;
        }
        pace.moving();
        // Messages of one pair keep their order by the tag, however their agreements ended.
        let tag = (count % (1 << 15)) as c_int;
        // SAFETY: as for a collective; sender and receiver agree on the length.
        let moved = unsafe { self.message(call, peer, tag) }.await;
        moved.map_err(|failure| self.error(self.members.call_id(key, call.op), failure))
    }

    /// What is wrong with this rank's own arguments.
    fn problem(&self, call: &RawCall) -> Option<String> {
        let sum = |counts: &[usize]| counts.iter().fold(0_usize, |sum, &count| sum.saturating_add(count));
        own_problem(call, self.rank, self.members.size()).or_else(|| {
            let elements = sum(&call.send_counts).max(sum(&call.recv_counts));
            (elements > c_int::MAX as usize)
                .then(|| format!("{elements} elements are more than MPI_Ialltoallv can count (2147483647)"))
        })
    }
}

/// A communicator is shared with its communication thread.
const _: fn(Arc<Core>) -> Box<dyn Send + Sync> = |core| Box::new(core);
