//! Whether this process was told to end.
//!
//! A launcher ends all processes of a job of which one is gone: first it asks (SIGTERM), about a second later it does not
//! ask any more. That is enough for rank 0 to write down which one it was.

use std::sync::atomic::{AtomicBool, Ordering};

static TOLD: AtomicBool = AtomicBool::new(false);

/// Whether it was told so. Always `false` in a process that is not a rank of a launcher's job.
pub fn told_to_end() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// From now on, being told to end does not end this process, which must look at [`told_to_end`] instead. Not
/// inherited by the programs that it starts.
pub(crate) fn listen() {
    #[cfg(unix)]
    {
        extern "C" fn note(_: libc::c_int) {
            TOLD.store(true, Ordering::Relaxed);
        }
        // SAFETY: the handler only stores to an atomic, which is allowed in one.
        unsafe { libc::signal(libc::SIGTERM, note as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}
