//! What the stand-ins for CUDA and NCCL share: handles that can be stale, symbols that can be missing,
//! and locks that outlive a panic.

pub mod handles;
pub mod symbols;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks; what a panicking thread left is taken as it is.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on a condition variable, under the same rule.
pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
