//! What the writer and the resolver ask of and tell each other.

use crate::recorder::lock;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The resolver's orders and answers.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    finish: bool,
    done: bool,
    rounds_wanted: u64,
    rounds_done: u64,
}

impl Control {
    /// Asks for the end.
    pub fn finish(&self) {
        lock(&self.state).finish = true;
    }

    /// Waits a little for the end and says whether it has come.
    pub fn wait_done(&self, timeout: Duration) -> bool {
        let state = lock(&self.state);
        let until = |state: &mut State| !state.done;
        let (state, _) =
            self.changed.wait_timeout_while(state, timeout, until).unwrap_or_else(PoisonError::into_inner);
        state.done
    }

    /// Asks for a round and waits for it.
    pub fn round(&self, wake: impl FnOnce(), timeout: Duration) {
        let mut state = lock(&self.state);
        state.rounds_wanted += 1;
        let wanted = state.rounds_wanted;
        wake();
        let until = |state: &mut State| state.rounds_done < wanted && !state.done;
        drop(self.changed.wait_timeout_while(state, timeout, until));
    }

    /// Whether the end is asked for, and how many rounds.
    pub(super) fn orders(&self) -> (bool, u64) {
        let state = lock(&self.state);
        (state.finish, state.rounds_wanted)
    }

    /// Answers those who asked for one of the first `rounds` rounds.
    pub(super) fn rounds_done(&self, rounds: u64) {
        let mut state = lock(&self.state);
        if state.rounds_done < rounds {
            state.rounds_done = rounds;
            self.changed.notify_all();
        }
    }

    /// The thread has ended.
    pub(super) fn all_done(&self) {
        lock(&self.state).done = true;
        self.changed.notify_all();
    }
}
