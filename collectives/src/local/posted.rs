//! One rank's part in a round, and its share of the work.
//!
//! # Why sharing the callers' buffers is sound
//!
//! A [`Posted`] borrows its call's buffers and ends (by [`Posted::wait`] or by being dropped, also when
//! unwinding) only in one of two ways:
//!
//! - The round failed. Its calls, and with them all pointers, were dropped under the lock that the failure was
//!   published under. No unit ever runs: units exist only from the phase `RUNNING` on, and `GATHERING`
//!   goes either to `RUNNING` or to `FAILED`, under the lock.
//! - All units are done. From `RUNNING` on there is no way out but this one: every rank is inside its
//!   `Posted`, units neither wait nor run foreign code, and a panic in one would abort the process.
//!
//! So while a unit runs, all `Posted` of the round exist, hence all borrows do. A timeout, a lost rank
//! or a panic elsewhere can end a round only while it gathers.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::round::{COMPLETE, Core, FAILED, GATHERING, Gathering, RUNNING, Round, State};
use crate::{Error, Op, Result};

/// A rank's part in a round, whose buffers are borrowed for `'b`. See the module's head.
///
/// Not to be leaked, which is why it never leaves [`super`].
pub(super) struct Posted<'c, 'b> {
    core: &'c Core,
    rank: usize,
    round: Arc<Round>,
    op: Op,
    since: Instant,
    settled: bool,
    buffers: PhantomData<&'b mut ()>,
}

impl<'c> Posted<'c, '_> {
    /// The part of a rank that has just joined `round` with `op`.
    pub(super) fn new(core: &'c Core, rank: usize, round: Arc<Round>, op: Op) -> Self {
        Self { core, rank, round, op, since: Instant::now(), settled: false, buffers: PhantomData }
    }

    pub(super) fn round(&self) -> &Arc<Round> {
        &self.round
    }

    /// Whether [`wait`](Self::wait) waits for no rank that has not come yet.
    pub(super) fn is_ready(&self) -> bool {
        self.round.phase() != GATHERING
    }

    /// Waits until the round is over, and does its share of the work.
    pub(super) fn wait(mut self) -> Result<()> {
        self.settle();
        match self.round.phase() {
            FAILED => self.round.error.get().cloned().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    fn settle(&mut self) {
        if self.spin_while(GATHERING) {
            self.sleep_while(GATHERING, self.since.checked_add(self.core.timeout));
        }
        self.finish();
        self.settled = true;
    }

    /// From `RUNNING` to `COMPLETE`; nothing in any other phase.
    fn finish(&self) {
        if self.round.phase() == RUNNING {
            self.help();
            if self.spin_while(RUNNING) {
                self.sleep_while(RUNNING, None);
            }
        }
    }

    /// Does units until all are taken.
    fn help(&self) {
        let round = &*self.round;
        let Some(work) = round.work.get() else { return };
        let units = round.units.load(Ordering::Relaxed);
        loop {
            let unit = round.next.fetch_add(1, Ordering::Relaxed);
            if unit >= units {
                return;
            }
            let abort = AbortOnUnwind;
            // SAFETY: this unit is not done, so the round is `RUNNING` and not complete, hence all its
            // `Posted` exist and the buffers with them (module's head). Their borrows are exclusive
            // (recv) or shared (send), and the callers cannot use them before their `Posted` ends.
            // `fetch_add` gives each unit to one thread. The Acquire load of `RUNNING` makes visible what the
            // ranks wrote before they came.
            unsafe { work.run(unit) };
            std::mem::forget(abort);
            // Release, so that whoever sees `COMPLETE` sees every unit's writes; Acquire, so that the
            // last one passes on those of the others.
            if round.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
                let state = self.core.lock();
                round.phase.store(COMPLETE, Ordering::Release);
                self.core.wake_ranks(&state, round.key);
            }
        }
    }

    /// Waits a little for `phase` to end. Returns whether it still lasts.
    fn spin_while(&self, phase: u8) -> bool {
        for _ in 0..self.core.spins {
            if self.round.phase() != phase {
                return false;
            }
            std::hint::spin_loop();
        }
        self.round.phase() == phase
    }

    /// Sleeps until `phase` ends. If `GATHERING` lasts longer than the deadline, breaks the communicator.
    fn sleep_while(&self, phase: u8, deadline: Option<Instant>) {
        let Some(wake) = self.core.wake.get(self.rank) else { return };
        let mut state = self.core.lock();
        while self.round.phase() == phase {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if phase == GATHERING && left == Some(Duration::ZERO) {
                self.give_up(&mut state);
                return;
            }
            state.asleep[self.rank] = true;
            state = match left {
                None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.asleep[self.rank] = false;
        }
    }

    fn give_up(&self, state: &mut State) {
        let missing = state.gathering.get(&self.round.key).into_iter().flat_map(Gathering::missing);
        let error = Error::Timeout {
            call: self.core.call_id(self.round.key, self.op),
            waited: self.core.timeout,
            missing: missing.map(|rank| self.core.global(rank)).collect(),
        };
        self.core.break_with(state, error);
    }

    /// Leaves the round without waiting for ranks that have not come.
    fn abandon(&self) {
        let mut state = self.core.lock();
        if self.round.phase() == GATHERING {
            let error = Error::RankLost {
                call: self.core.call_id(self.round.key, self.op),
                rank: self.core.global(self.rank),
                panicked: std::thread::panicking(),
            };
            self.core.break_with(&mut state, error);
        }
        drop(state);
        self.finish();
    }
}

impl Drop for Posted<'_, '_> {
    fn drop(&mut self) {
        if !self.settled {
            self.abandon();
        }
    }
}

/// Other threads wait for the unit that this one does, and may not give up.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}
