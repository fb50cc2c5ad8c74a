//! Whose turn it is: the calls of one communicator run one after the other, in the order in which they
//! were made, whatever their streams.

use double_common::{lock, wait};
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex};

#[derive(Default)]
struct State {
    next: u64,
    serving: u64,
    /// Turns that nobody will come for.
    given_up: BTreeSet<u64>,
    over: bool,
}

/// The turns of a communicator.
#[derive(Default)]
pub struct Turns {
    state: Mutex<State>,
    moved: Condvar,
}

impl Turns {
    /// The turn after all that were taken.
    pub fn take(&self) -> u64 {
        let mut state = lock(&self.state);
        state.next += 1;
        state.next - 1
    }

    /// Waits for a turn; `false` if the communicator is over.
    pub fn wait_for(&self, turn: u64) -> bool {
        let mut state = lock(&self.state);
        while state.serving != turn && !state.over {
            state = wait(&self.moved, state);
        }
        !state.over
    }

    /// Ends a turn, or gives it up before it came.
    pub fn pass(&self, turn: u64) {
        let mut state = lock(&self.state);
        state.given_up.insert(turn);
        while let serving = state.serving
            && state.given_up.remove(&serving)
        {
            state.serving += 1;
        }
        drop(state);
        self.moved.notify_all();
    }

    /// Waits until every turn that was taken is over.
    pub fn wait_for_all(&self) {
        let mut state = lock(&self.state);
        while state.serving < state.next && !state.over {
            state = wait(&self.moved, state);
        }
    }

    /// Ends all waiting for good.
    pub fn end(&self) {
        lock(&self.state).over = true;
        self.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn turns_come_in_the_order_in_which_they_were_taken() {
        let turns = Arc::new(Turns::default());
        let (came, order) = channel();
        let taken: Vec<u64> = (0..8).map(|_| turns.take()).collect();
        let threads: Vec<_> = taken
            .into_iter()
            .rev()
            .map(|turn| {
                let (turns, came) = (turns.clone(), came.clone());
                std::thread::spawn(move || {
                    assert!(turns.wait_for(turn));
                    came.send(turn).unwrap();
                    turns.pass(turn);
                })
            })
            .collect();
        turns.wait_for_all();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(came);
        assert!(order.iter().eq(0..8));
    }

    #[test]
    fn a_turn_that_is_given_up_holds_nobody_up() {
        let turns = Turns::default();
        let (first, second, third) = (turns.take(), turns.take(), turns.take());
        turns.pass(second);
        turns.pass(first);
        assert!(turns.wait_for(third));
        turns.pass(third);
        turns.wait_for_all();
    }

    #[test]
    fn nobody_waits_once_it_is_over() {
        let turns = Turns::default();
        let (_, second) = (turns.take(), turns.take());
        turns.end();
        assert!(!turns.wait_for(second));
        turns.wait_for_all();
    }
}
