//! Locks that outlive a panic, and a count that threads wait on.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks; what a panicking thread left is taken as it is.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on a condition variable, under the same rule.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

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
