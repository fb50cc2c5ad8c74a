//! Non-blocking calls: enqueued like all others, and over when an event behind them has happened.

use cudarc::driver::CudaEvent;
use cudarc::nccl::result::NcclStatus;

use super::device::error_of;
use super::{NcclComm, group};
use crate::pending::{Completion, Pending};
use crate::{Error, Result};

/// A call that has been enqueued.
struct Enqueued<B> {
    // Dropped first.
    in_use: InUse,
    buffers: B,
}

/// What happens when the call is over.
struct InUse {
    after: CudaEvent,
}

impl NcclComm {
    /// Enqueues the call that `call` makes of `buffers`, which are the caller's again when it is over.
    pub(super) fn later<B: Send + 'static>(
        &self,
        mut buffers: B,
        call: impl FnOnce(&Self, &mut B) -> Result<NcclStatus>,
    ) -> Pending<B> {
        let enqueued = (|| {
            if group::current().is_some() {
                return Err(Error::Native {
                    library: "NCCL",
                    what: format!("a non-blocking call on communicator {}", self.name()),
                    code: 5,
                    message: "it cannot be part of a group, at whose end the work begins".to_owned(),
                });
            }
            call(self, &mut buffers)?;
            let after = self.shared.stream.record_event(None);
            after.map_err(|error| error_of("recording an event behind a non-blocking call", error))
        })();
        match enqueued {
            Ok(after) => Pending::new(Box::new(Enqueued { in_use: InUse { after }, buffers })),
            Err(error) => Pending::new(Box::new(Failed(error))),
        }
    }
}

impl<B: Send> Completion<B> for Enqueued<B> {
    fn wait(self: Box<Self>) -> Result<B> {
        let Self { in_use, buffers } = *self;
        let waited = in_use.after.synchronize();
        waited.map_err(|error| error_of("waiting for a non-blocking call", error))?;
        Ok(buffers)
    }

    fn is_finished(&self) -> bool {
        // After an error, `wait` returns at once as well.
        self.in_use.after.try_is_complete().unwrap_or(true)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // Else cudarc frees memory behind its last use.
        if !self.after.context().is_event_tracking() {
            let _ = self.after.synchronize();
        }
    }
}

/// A call that could not be enqueued.
struct Failed(Error);

impl<B> Completion<B> for Failed {
    fn wait(self: Box<Self>) -> Result<B> {
        Err(self.0)
    }

    fn is_finished(&self) -> bool {
        true
    }
}
