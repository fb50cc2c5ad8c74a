//! Memory that both the GPU and host functions work on, and host functions in a stream.

use super::Error;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut, PinnedHostSlice, result, sys};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A part of a [`Pool`]'s memory, used by the work of one stream alone, in its order.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    start: *mut f32,
    len: usize,
}

// SAFETY: the pointer is to pinned memory, which any thread may access; in what order is a matter of
// `values` and `values_mut`, which are `unsafe` by themselves.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The part of it from `first` with `len` elements.
    pub fn part(&self, first: usize, len: usize) -> Self {
        assert!(first + len <= self.len, "a part within the block");
        // SAFETY: the offset is within the allocation.
        Self { start: unsafe { self.start.add(first) }, len }
    }

    /// Its address on the device, which is the one on the host.
    pub fn address(&self) -> sys::CUdeviceptr {
        self.start as sys::CUdeviceptr
    }

    /// # Safety
    ///
    /// The pool exists, and no work that writes the block is under way or enqueued before the caller's
    /// own place in the stream.
    pub unsafe fn values<'a>(self) -> &'a [f32] {
        // SAFETY: the caller says so.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// # Safety
    ///
    /// As [`values`](Self::values), and nothing else uses the block meanwhile.
    pub unsafe fn values_mut<'a>(self) -> &'a mut [f32] {
        // SAFETY: the caller says so.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// Pinned memory for the work of one stream, which is waited for before the memory goes.
pub struct Pool {
    stream: Arc<CudaStream>,
    memory: Vec<PinnedHostSlice<f32>>,
}

impl Pool {
    pub fn new(stream: &Arc<CudaStream>) -> Self {
        Self { stream: Arc::clone(stream), memory: Vec::new() }
    }

    /// A block of zeros.
    pub fn block(&mut self, len: usize) -> Result<Block, Error> {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the memory is filled before it is used.
        let mut memory = unsafe { self.stream.context().alloc_pinned_with_flags::<f32>(len.max(1), flags) }?;
        memory.as_mut_slice()?.fill(0.0);
        let start = memory.as_mut_ptr()?;
        self.memory.push(memory);
        Ok(Block { start, len })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

/// Copies `from` to the device, in the order of `stream`.
pub fn upload(stream: &CudaStream, from: Block, to: &mut CudaSlice<f32>) -> Result<(), Error> {
    assert_eq!(from.len(), to.len());
    let (address, _written) = to.device_ptr_mut(stream);
    // SAFETY: both have the same length; the block is used by this stream's work alone.
    unsafe { result::memcpy_htod_async(address, from.values(), stream.cu_stream()) }?;
    Ok(())
}

/// Copies `from` to the host, in the order of `stream`.
pub fn download(stream: &CudaStream, from: &CudaSlice<f32>, to: Block) -> Result<(), Error> {
    assert_eq!(from.len(), to.len());
    let (address, _read) = from.device_ptr(stream);
    // SAFETY: as in `upload`.
    unsafe { result::memcpy_dtoh_async(to.values_mut(), address, stream.cu_stream()) }?;
    Ok(())
}

type Work = Box<dyn FnOnce() + Send>;

/// Has `work` run on the host when the stream comes to it. It must not use CUDA.
pub fn enqueue(stream: &CudaStream, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    unsafe extern "C" fn run(work: *mut c_void) {
        // SAFETY: it is the box that was given up below; the driver calls once.
        let work: Box<Work> = unsafe { Box::from_raw(work.cast()) };
        // A panic must not cross the driver's frames.
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            std::process::abort();
        }
    }
    let work: *mut Work = Box::into_raw(Box::new(Box::new(work)));
    // SAFETY: `run` takes what is given to it here.
    let launched = unsafe { result::stream::launch_host_function(stream.cu_stream(), run, work.cast()) };
    if let Err(error) = launched {
        // SAFETY: the driver did not take it.
        drop(unsafe { Box::from_raw(work) });
        return Err(error.into());
    }
    Ok(())
}
