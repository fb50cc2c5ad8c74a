//! The stand-in driver's functions, found as the library is first used.

use crate::error::{Code, Error, Result};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// What a stream's thread calls.
pub type Run = extern "C" fn(*mut c_void) -> c_int;
/// What frees the data of a piece of work.
pub type Release = extern "C" fn(*mut c_void);

type Enqueue =
    extern "C" fn(usize, *const c_char, *const c_char, Option<Run>, Option<Release>, *mut c_void) -> c_int;

/// The functions that NCCL's stand-in needs. The stand-in driver checks every handle and address that
/// it is given, and places for results are references, so that none of them is unsafe to call.
pub struct Driver {
    init: extern "C" fn(u32) -> c_int,
    current: extern "C" fn(&mut usize) -> c_int,
    push: extern "C" fn(usize) -> c_int,
    pop: extern "C" fn(&mut usize) -> c_int,
    device: extern "C" fn(&mut c_int) -> c_int,
    retain: extern "C" fn(&mut usize, c_int) -> c_int,
    release: extern "C" fn(c_int) -> c_int,
    allocate: extern "C" fn(&mut u64, usize) -> c_int,
    free: extern "C" fn(u64) -> c_int,
    /// Only for attributes that are 64 bits wide.
    attribute: extern "C" fn(&mut u64, c_int, u64) -> c_int,
    is_capturing: extern "C" fn(usize, &mut u32) -> c_int,
    enqueue: Enqueue,
}

/// The loaded driver.
pub fn get() -> Result<&'static Driver> {
    static DRIVER: OnceLock<std::result::Result<Driver, String>> = OnceLock::new();
    DRIVER.get_or_init(load).as_ref().map_err(|text| Error::new(Code::SYSTEM_ERROR, text.clone()))
}

// The types are those of the fields.
#[allow(clippy::missing_transmute_annotations)]
fn load() -> std::result::Result<Driver, String> {
    // SAFETY: opening the driver by its name runs nothing but its own initializers; it stays open.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err("the stand-in NCCL found no libcuda.so.1".into());
    }
    let find = |name: &CStr| {
        // SAFETY: the library is open and the name ends with NUL.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) };
        if address.is_null() {
            let name = name.to_string_lossy();
            return Err(format!(
                "the stand-in NCCL needs the stand-in CUDA driver: libcuda.so.1 has no {name}"
            ));
        }
        Ok(address)
    };
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the symbol of this name is a function of the field's type.
            unsafe { std::mem::transmute::<*mut c_void, _>(find($name)?) }
        };
    }
    Ok(Driver {
        init: function!(c"cuInit"),
        current: function!(c"cuCtxGetCurrent"),
        push: function!(c"cuCtxPushCurrent_v2"),
        pop: function!(c"cuCtxPopCurrent_v2"),
        device: function!(c"cuCtxGetDevice"),
        retain: function!(c"cuDevicePrimaryCtxRetain"),
        release: function!(c"cuDevicePrimaryCtxRelease_v2"),
        allocate: function!(c"cuMemAlloc_v2"),
        free: function!(c"cuMemFree_v2"),
        attribute: function!(c"cuPointerGetAttribute"),
        is_capturing: function!(c"cuStreamIsCapturing"),
        enqueue: function!(c"double_cuda_enqueue"),
    })
}

fn check(what: &str, code: c_int) -> Result {
    if code == 0 {
        return Ok(());
    }
    Err(Error::new(Code::UNHANDLED_CUDA_ERROR, format!("{what} failed with CUDA error {code}")))
}

impl Driver {
    /// The calling thread's context and its device; as with NCCL, which uses the runtime, device 0's
    /// primary context if there is none, and then it was retained.
    pub fn current(&self) -> Result<(usize, c_int, bool)> {
        let (mut context, mut device) = (0, 0);
        check("cuInit", (self.init)(0))?;
        check("cuCtxGetCurrent", (self.current)(&mut context))?;
        if context == 0 {
            return Ok((self.retain(0)?, 0, true));
        }
        check("cuCtxGetDevice", (self.device)(&mut device))?;
        Ok((context, device, false))
    }

    /// Retains a device's primary context.
    pub fn retain(&self, device: c_int) -> Result<usize> {
        let mut context = 0;
        check("cuInit", (self.init)(0))?;
        check("cuDevicePrimaryCtxRetain", (self.retain)(&mut context, device))?;
        Ok(context)
    }

    /// Gives a device's primary context back.
    pub fn release(&self, device: c_int) {
        // A context that is gone needs no release.
        let _ = (self.release)(device);
    }

    pub fn allocate(&self, size: usize) -> Result<u64> {
        let mut address = 0;
        check("cuMemAlloc", (self.allocate)(&mut address, size))?;
        Ok(address)
    }

    pub fn free(&self, address: u64) -> Result {
        check("cuMemFree", (self.free)(address))
    }

    /// Whether all of `length` bytes from `address` are the device's.
    pub fn reaches(&self, address: usize, length: usize) -> bool {
        const RANGE_START: c_int = 11;
        const RANGE_SIZE: c_int = 12;
        let (mut base, mut size, at) = (0, 0, address as u64);
        let known = (self.attribute)(&mut base, RANGE_START, at) == 0
            && (self.attribute)(&mut size, RANGE_SIZE, at) == 0;
        let inside = || (at - base).checked_add(length as u64).is_some_and(|end| end <= size);
        length == 0 || known && inside()
    }

    /// Whether a stream of a context is being captured.
    pub fn is_capturing(&self, context: usize, stream: usize) -> Result<bool> {
        let mut status = 0;
        let code = self.within(context, || (self.is_capturing)(stream, &mut status))?;
        check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// Enqueues work in a stream of a context; `release` frees the data in any case.
    pub fn enqueue(
        &self,
        context: usize,
        stream: usize,
        name: &CStr,
        run: Run,
        release: Release,
        data: *mut c_void,
    ) -> Result {
        let enqueue =
            || (self.enqueue)(stream, c"nccl".as_ptr(), name.as_ptr(), Some(run), Some(release), data);
        let code = self.within(context, enqueue).inspect_err(|_| release(data))?;
        check("enqueueing in the stream", code)
    }

    /// Calls with a context that is current for as long.
    fn within<R>(&self, context: usize, call: impl FnOnce() -> R) -> Result<R> {
        check("cuCtxPushCurrent", (self.push)(context))?;
        let result = call();
        let mut popped = 0;
        (self.pop)(&mut popped);
        Ok(result)
    }
}
