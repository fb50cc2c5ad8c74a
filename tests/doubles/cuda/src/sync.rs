//! A count that threads wait on.

use double_common::{lock, wait};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// How many items of a queue are done. One thread advances it, any number wait for a value.
#[derive(Default)]
pub struct Progress {
    done: AtomicU64,
    waiting: AtomicUsize,
    gate: Mutex<()>,
    moved: Condvar,
}

impl Progress {
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Sets the count. Without waiting threads this is one store and one load: in the sequentially
    /// consistent order either a waiter sees the new count or this thread sees the waiter.
    pub fn advance(&self, done: u64) {
        self.done.store(done, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.gate));
            self.moved.notify_all();
        }
    }

    /// Blocks until at least `count` items are done.
    pub fn wait_for(&self, count: u64) {
        if self.done() >= count {
            return;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut gate = lock(&self.gate);
        while self.done() < count {
            gate = wait(&self.moved, gate);
        }
        drop(gate);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn no_wait_misses_the_count_it_waits_for() {
        const COUNT: u64 = 20_000;
        let progress = Arc::new(Progress::default());
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let progress = progress.clone();
                std::thread::spawn(move || {
                    for count in 1..=COUNT {
                        progress.wait_for(count);
                        assert!(progress.done() >= count);
                    }
                })
            })
            .collect();
        (1..=COUNT).for_each(|count| progress.advance(count));
        // A wake-up that was lost would hang here.
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    }
}
