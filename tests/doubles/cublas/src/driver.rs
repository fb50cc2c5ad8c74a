//! The stand-in driver's door for work of other libraries.

use crate::gemm::Gemm;
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

type Run = extern "C" fn(*mut c_void) -> c_int;
type Release = extern "C" fn(*mut c_void);
type Enqueue =
    extern "C" fn(usize, *const c_char, *const c_char, Option<Run>, Option<Release>, *mut c_void) -> c_int;

/// `double_cuda_enqueue`; `None` if the driver is missing or is another one.
pub fn enqueue_function() -> Option<Enqueue> {
    static FOUND: OnceLock<Option<Enqueue>> = OnceLock::new();
    let find = || {
        // SAFETY: opening the driver by its name runs nothing but its own initializers; it stays open.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library is open and the name ends with NUL.
        let address = unsafe { libc::dlsym(library, c"double_cuda_enqueue".as_ptr()) };
        // SAFETY: the symbol of this name is a function of this type.
        (!address.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Enqueue>(address) })
    };
    *FOUND.get_or_init(find)
}

/// Enqueues a product; whether the driver took it.
pub fn enqueue(stream: usize, work: Gemm) -> bool {
    let Some(enqueue) = enqueue_function() else { return false };
    let data = Box::into_raw(Box::new(work)).cast();
    enqueue(stream, c"kernel".as_ptr(), c"gemm".as_ptr(), Some(run), Some(release), data) == 0
}

extern "C" fn run(data: *mut c_void) -> c_int {
    const LAUNCH_FAILED: c_int = 719;
    // SAFETY: `data` is what `enqueue` boxed, and `release` has not run yet.
    let work = unsafe { &*data.cast::<Gemm>() };
    // SAFETY: whoever called `cublasGemmEx` keeps the matrices until the stream is through.
    let done = catch_unwind(AssertUnwindSafe(|| unsafe { work.run() }));
    if done.is_ok() { 0 } else { LAUNCH_FAILED }
}

extern "C" fn release(data: *mut c_void) {
    // SAFETY: `data` is what `enqueue` boxed, and the driver releases it once.
    drop(unsafe { Box::from_raw(data.cast::<Gemm>()) });
}
