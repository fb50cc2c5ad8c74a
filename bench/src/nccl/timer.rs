//! Times of work in a stream, by CUDA events, without the host's time to enqueue it.

use super::failed;
use crate::timer::Timer;
use commtrace_collectives::{NcclComm, ReduceOp, Result};
use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, result};
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longest that a stream is held back: where a call waits for the stream to be idle, it goes on all the same, and the
/// time has the host's share in it.
const LONGEST: Duration = Duration::from_secs(1);

/// Times calls on a communicator's stream.
///
/// The stream is held back while the host enqueues: a barrier of all ranks on the device, an event, the calls, another
/// event. So the time between the events begins on all ranks when the last one has come, and has no delays of the host in
/// it.
pub(super) struct NcclTimer<'c> {
    comm: &'c NcclComm,
    token: CudaSlice<u8>,
    start: CudaEvent,
    end: CudaEvent,
    gate: Option<Gate>,
}

impl<'c> NcclTimer<'c> {
    pub fn new(comm: &'c NcclComm) -> Result<Self> {
        let event = || comm.context().new_event(Some(CU_EVENT_DEFAULT));
        let made = || Ok((comm.stream().alloc_zeros(1)?, event()?, event()?));
        let (token, start, end) = made().map_err(|error| failed("making events", error))?;
        Ok(Self { comm, token, start, end, gate: None })
    }
}

impl Timer for NcclTimer<'_> {
    fn start(&mut self) -> Result<()> {
        let stream = self.comm.stream();
        self.gate = Some(Gate::close(&stream)?);
        self.comm.all_reduce_in_place(&mut self.token, &ReduceOp::Max)?;
        self.start.record(&stream).map_err(|error| failed("recording an event", error))
    }

    fn stop(&mut self) -> Result<f64> {
        let recorded = self.end.record(&self.comm.stream());
        // Opened whatever happened: the stream's other work waits behind it.
        drop(self.gate.take());
        recorded.map_err(|error| failed("recording an event", error))?;
        self.end.synchronize().map_err(|error| failed("waiting for the collective", error))?;
        let elapsed = self.start.elapsed_ms(&self.end).map_err(|error| failed("reading the time", error))?;
        Ok(f64::from(elapsed))
    }
}

/// Holds a stream back from the place where it was closed until it is dropped.
struct Gate(Arc<Shared>);

#[derive(Default)]
struct Shared {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn close(stream: &CudaStream) -> Result<Self> {
        unsafe extern "C" fn wait(shared: *mut c_void) {
            // SAFETY: `close` gave up one reference for this one call.
            let shared = unsafe { Arc::from_raw(shared.cast::<Shared>().cast_const()) };
            let open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = shared.opened.wait_timeout_while(open, LONGEST, |open| !*open);
        }
        let shared = Arc::new(Shared::default());
        let given = Arc::into_raw(Arc::clone(&shared));
        let enqueued = || {
            stream.context().bind_to_thread()?;
            // SAFETY: `wait` takes the reference that is given here, and calls nothing of CUDA.
            unsafe { result::stream::launch_host_function(stream.cu_stream(), wait, given.cast_mut().cast()) }
        };
        if let Err(error) = enqueued() {
            // SAFETY: nobody took the reference.
            drop(unsafe { Arc::from_raw(given) });
            return Err(failed("holding a stream back", error));
        }
        Ok(Self(shared))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_all();
    }
}
