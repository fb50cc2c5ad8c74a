//! Two passes over the same data at once.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What both return; `one` runs on a thread of its own, unless there is none to be had.
pub(super) fn side_by_side<A: Default + Send, B>(
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B,
) -> (A, B) {
    let one = Mutex::new(Some(one));
    let run = || {
        let one = one.lock().unwrap_or_else(PoisonError::into_inner).take();
        one.map_or_else(A::default, |one| one())
    };
    thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, run);
        let other = other();
        let one = match spawned {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => run(),
        };
        (one, other)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_run_once() {
        let numbers = [1, 2, 3];
        let mut seen = 0;
        let (sum, count) = side_by_side(
            || numbers.iter().sum::<i32>(),
            || {
                seen += 1;
                numbers.len()
            },
        );
        assert_eq!((sum, count, seen), (6, 3, 1));
    }

    #[test]
    #[should_panic(expected = "from the other thread")]
    fn a_panic_is_passed_on() {
        side_by_side(|| -> u8 { panic!("from the other thread") }, || ());
    }
}
