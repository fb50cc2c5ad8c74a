//! Which device NCCL means: the one whose context is current on the calling thread.

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};

use crate::Error;

/// Makes a context current until it is dropped, then the one that was current before.
///
/// Not `CudaContext::bind_to_thread`, which hands out the errors that cudarc has stored for the
/// application.
pub(super) struct CurrentContext {
    previous: sys::CUcontext,
}

impl CurrentContext {
    pub(super) fn enter(context: &CudaContext) -> Result<Self, Error> {
        let previous = result::ctx::get_current()
            .map_err(|error| error_of("asking for the current context", error))?
            .unwrap_or(std::ptr::null_mut());
        // SAFETY: a `CudaContext` holds its context for as long as it exists.
        unsafe { result::ctx::set_current(context.cu_ctx()) }
            .map_err(|error| error_of("making a context current", error))?;
        Ok(Self { previous })
    }
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        // SAFETY: it was current a moment ago, or null, which is none. If its owner has destroyed it
        // meanwhile, the driver says so and none is current.
        let _ = unsafe { result::ctx::set_current(self.previous) };
    }
}

/// An error of the driver as one of ours; `what` was done.
pub(super) fn error_of(what: &str, DriverError(code): DriverError) -> Error {
    Error::Native {
        library: "CUDA",
        what: what.to_owned(),
        code: code as i32,
        // `CUDA_ERROR_OUT_OF_MEMORY` and so on.
        message: format!("{code:?}"),
    }
}
