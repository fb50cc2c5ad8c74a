//! MPI itself: started with the first communicator, ended with the last one, and called by one thread at
//! a time where the library asks for that.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi;

use super::ops::UserOps;
use crate::{Error, Result};

/// MPI as this process uses it.
pub(super) struct Runtime {
    /// Whoever holds this ends MPI. `None` where the application started it: it ends it, too.
    universe: Option<Universe>,
    level: Threading,
    /// Held during each call below [`Threading::Multiple`].
    serial: Mutex<()>,
    /// A call was given up or failed, so that the other ranks may never come to the end of MPI.
    damaged: AtomicBool,
    ops: UserOps,
}

static CURRENT: Mutex<Weak<Runtime>> = Mutex::new(Weak::new());

impl Runtime {
    /// The process's MPI, started if nobody has.
    pub(super) fn get() -> Result<Arc<Self>> {
        let mut current = lock(&CURRENT);
        if let Some(runtime) = current.upgrade() {
            return Ok(runtime);
        }
        if mpi::is_finalized() {
            let problem = "MPI has been finalized and cannot be started again: keep a communicator (or the \
                           application's own handle of MPI) until the last call";
            return Err(Error::Setup { library: "MPI", problem: problem.to_owned() });
        }
        let (universe, level) = match mpi::initialize_with_threading(Threading::Multiple) {
            Some((universe, level)) => (Some(universe), level),
            None => (None, mpi::environment::threading_support()),
        };
        let runtime = Arc::new(Self {
            universe,
            level,
            serial: Mutex::new(()),
            damaged: AtomicBool::new(false),
            ops: UserOps::create()?,
        });
        *current = Arc::downgrade(&runtime);
        Ok(runtime)
    }

    /// Whether a thread of ours may call MPI beside the application's.
    pub(super) fn is_threaded(&self) -> bool {
        self.level >= Threading::Serialized
    }

    /// Whether a thread may wait within MPI. Where the threads' calls must exclude each other, that would keep
    /// the others out, and perhaps those whom the other ranks wait for.
    pub(super) fn may_block(&self) -> bool {
        self.level != Threading::Serialized
    }

    /// Whether MPI can be called now, on this thread.
    pub(super) fn check(&self) -> Result<(), String> {
        if mpi::is_finalized() {
            return Err("MPI has been finalized".to_owned());
        }
        if self.is_threaded() {
            return Ok(());
        }
        let mut main: c_int = 0;
        // SAFETY: MPI is initialized and not finalized; `main` outlives the call.
        unsafe { ffi::MPI_Is_thread_main(&mut main) };
        if main == 0 {
            return Err(format!(
                "MPI was started with thread level {:?}, so that only the thread that started it may call \
                 it; start it with Threading::Multiple, or leave that to MpiComm::world()",
                self.level
            ));
        }
        Ok(())
    }

    /// Held while one function of MPI is called. Nothing that waits for other ranks may be called under it.
    pub(super) fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        (self.level < Threading::Multiple).then(|| lock(&self.serial))
    }

    pub(super) fn set_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(super) fn ops(&self) -> &UserOps {
        &self.ops
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if std::thread::panicking() || self.is_damaged() || mpi::is_finalized() {
            // MPI_Finalize waits for the other ranks, and they for this one's next call: a process that
            // ends without it makes the launcher end the job.
            std::mem::forget(self.universe.take());
        } else {
            self.ops.free();
        }
    }
}

/// What MPI says about an error code.
pub(super) fn message(code: c_int) -> String {
    // Larger than MPI_MAX_ERROR_STRING of MPICH (512) and Open MPI (256).
    let mut text: [c_char; 4096] = [0; 4096];
    let mut length: c_int = 0;
    // SAFETY: the buffer holds the longest message of any implementation, and its last byte stays 0.
    let known = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr(), &mut length) } == 0;
    // SAFETY: the text ends with a zero within the buffer.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
    if known && !text.is_empty() { text.into_owned() } else { format!("error code {code}") }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
