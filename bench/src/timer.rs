//! How a call is timed.

use commtrace_collectives::Result;
use std::time::Instant;

/// Times one call after another on one rank.
///
/// A communicator over device memory enqueues its work: its timer records an event at [`start`](Self::start) and one at
/// [`stop`](Self::stop), and waits for the latter there.
pub trait Timer {
    /// The call begins.
    ///
    /// # Errors
    ///
    /// The device's.
    fn start(&mut self) -> Result<()>;

    /// The call was made: its time in milliseconds, up to the end of its work.
    ///
    /// # Errors
    ///
    /// The device's.
    fn stop(&mut self) -> Result<f64>;
}

/// The host's monotonic clock, for calls that have done their work when they return.
#[derive(Debug)]
pub struct HostTimer {
    started: Instant,
}

impl Default for HostTimer {
    fn default() -> Self {
        Self { started: Instant::now() }
    }
}

impl Timer for HostTimer {
    fn start(&mut self) -> Result<()> {
        self.started = Instant::now();
        Ok(())
    }

    fn stop(&mut self) -> Result<f64> {
        Ok(self.started.elapsed().as_secs_f64() * 1e3)
    }
}
