//! `guard.finish(&comm)`: one report on all ranks, gathered over the job's own communicator.

use std::time::Instant;

use commtrace_instrument::{Exchange, ExchangeError, Guard, Report};
use tracing::Dispatch;

use crate::{Communicator, Result};

/// Ends recording over a communicator.
pub trait Finish {
    /// Ends recording and gathers what all ranks recorded over `comm`, so that its rank 0 reports on all of
    /// them although they share no folder. Every rank of `comm` calls it, those that do not record included,
    /// as the last thing that it does with `comm`; each must be a process of its own. Returns the report on
    /// rank 0.
    ///
    /// It does what [`Guard::finish_over`] says. The messages of the gathering are not recorded. Where all ranks
    /// are threads of this process ([`LocalComm`](crate::LocalComm), `NcclComm::from_devices`), there is nothing to
    /// gather: it then ends recording as dropping the guard does, on whichever thread has the guard.
    ///
    /// ```
    /// use commtrace_collectives::{Communicator, Finish, LocalComm};
    ///
    /// let guard = commtrace_instrument::init()?;
    /// let comm = LocalComm::world(1).remove(0); // or MpiComm::world()?
    /// comm.barrier()?;
    /// guard.finish(&comm);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// If a rank has died, the others go on without it where the backend's messages have a deadline (MPI, NCCL);
    /// otherwise when the backend's own timeout ends the wait.
    fn finish<C: Communicator>(self, comm: &C) -> Option<Report>;
}

impl Finish for Guard {
    fn finish<C: Communicator>(self, comm: &C) -> Option<Report> {
        if comm.is_one_process() {
            return self.into_report();
        }
        self.finish_over(&Messages(comm))
    }
}

/// Messages of bytes, without spans.
struct Messages<'c, C>(&'c C);

impl<C: Communicator> Messages<'_, C> {
    fn untraced<T>(&self, call: impl FnOnce(&C) -> Result<T>) -> Result<T, ExchangeError> {
        tracing::dispatcher::with_default(&Dispatch::none(), || call(self.0)).map_err(ExchangeError::from)
    }
}

impl<C: Communicator> Exchange for Messages<'_, C> {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn send(&self, to: usize, message: &[u8], deadline: Instant) -> Result<(), ExchangeError> {
        self.untraced(|comm| comm.send_bytes(message, to, deadline))
    }

    fn receive(&self, from: usize, deadline: Instant) -> Result<Vec<u8>, ExchangeError> {
        self.untraced(|comm| comm.receive_bytes(from, deadline))
    }
}
