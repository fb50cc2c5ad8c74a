//! The handle of a non-blocking call.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::Result;

/// A non-blocking call under way. It owns the call's buffers until [`wait`](Self::wait) gives them back.
///
/// The call goes on whatever happens to the handle: dropped or leaked, the other ranks still get
/// their result, and the buffers are freed (or leaked) only after the call is over.
#[must_use = "the buffers come back from `wait`"]
pub struct Pending<B> {
    inner: Box<dyn Completion<B>>,
}

impl<B> Pending<B> {
    pub(crate) fn new(inner: Box<dyn Completion<B>>) -> Self {
        Self { inner }
    }

    /// Blocks until the call is over and gives its buffers back.
    ///
    /// # Errors
    ///
    /// Those of the blocking form of the call; its buffers are gone then.
    pub fn wait(self) -> Result<B> {
        self.inner.wait()
    }

    /// Whether [`wait`](Self::wait) would return at once.
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}

impl<B> fmt::Debug for Pending<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("finished", &self.is_finished()).finish()
    }
}

/// How a backend learns that a call is over.
pub(crate) trait Completion<B>: Send {
    fn wait(self: Box<Self>) -> Result<B>;
    fn is_finished(&self) -> bool;
}

/// A result handed from one thread to another, once.
pub(crate) struct Slot<B> {
    result: Mutex<Option<Result<B>>>,
    filled: Condvar,
}

impl<B> Slot<B> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { result: Mutex::new(None), filled: Condvar::new() })
    }

    pub(crate) fn fill(&self, result: Result<B>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.filled.notify_all();
    }
}

impl<B: Send> Completion<B> for Arc<Slot<B>> {
    fn wait(self: Box<Self>) -> Result<B> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match result.take() {
                Some(result) => return result,
                None => result = self.filled.wait(result).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}
