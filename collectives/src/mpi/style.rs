//! The two ways in which MPI carries out a collective.

use std::ffi::c_int;

use mpi::ffi;

use super::core::Core;
use super::request::{Failure, Request};

/// Which of its two functions for a collective MPI is called by. A blocking and a non-blocking call do not
/// match, so all ranks of a call use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// The thread is in MPI until the call is done. MPI has its best algorithms here.
    Blocking,
    /// Other calls go on beside it, and its thread lets others run.
    NonBlocking,
}

/// Carries out a collective by the function of the style.
macro_rules! call {
    ($self:ident, $style:expr, $blocking:ident | $non_blocking:ident ($($argument:expr),* $(,)?)) => {
        match $style {
            Style::Blocking => succeeded(stringify!($blocking), ffi::$blocking($($argument),*)),
            Style::NonBlocking => {
                $self
                    .request(stringify!($non_blocking), |request| ffi::$non_blocking($($argument,)* request))
                    .await
            }
        }
    };
}

impl Core {
    /// # Safety
    ///
    /// As [`Request::start`].
    pub(super) async unsafe fn request(
        &self,
        function: &'static str,
        start: impl FnOnce(*mut ffi::MPI_Request) -> c_int,
    ) -> Result<(), Failure> {
        // SAFETY: passed on.
        unsafe { Request::start(&self.runtime, function, start) }?.await
    }
}
