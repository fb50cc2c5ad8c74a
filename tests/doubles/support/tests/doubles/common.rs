//! Work for streams, and what the log says of it.

use cudarc::driver::{CudaContext, CudaStream, result};
use double_support::Piece;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Enqueues a function that sleeps.
pub fn sleep(stream: &CudaStream, milliseconds: u64) {
    extern "C" fn run(milliseconds: *mut c_void) {
        std::thread::sleep(Duration::from_millis(milliseconds as u64));
    }
    enqueue(stream, run, milliseconds as *mut c_void);
}

/// Enqueues a function.
pub fn enqueue(stream: &CudaStream, run: extern "C" fn(*mut c_void), data: *mut c_void) {
    stream.context().bind_to_thread().unwrap();
    // SAFETY: the functions of these tests take what they are given here.
    unsafe {
        result::stream::launch_host_function(
            stream.cu_stream(),
            std::mem::transmute::<extern "C" fn(*mut c_void), unsafe extern "C" fn(*mut c_void)>(run),
            data,
        )
    }
    .unwrap();
}

/// A stream's work that waits until the test lets it go on, so that what follows is there before.
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn on(stream: &CudaStream) -> Gate {
        extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: `on` gave up one reference for this one call.
            let gate = unsafe { Arc::from_raw(gate.cast::<(Mutex<bool>, Condvar)>()) };
            let (open, opened) = &*gate;
            drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        }
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        enqueue(stream, wait, Arc::into_raw(gate.clone()).cast_mut().cast());
        Gate(gate)
    }

    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// A stream of each of the first devices.
pub fn streams(devices: usize) -> Vec<Arc<CudaStream>> {
    (0..devices).map(|device| CudaContext::new(device).unwrap().new_stream().unwrap()).collect()
}

pub fn of_kind<'a>(pieces: &'a [Piece], kind: &str) -> Vec<&'a Piece> {
    pieces.iter().filter(|piece| piece.kind == kind).collect()
}
