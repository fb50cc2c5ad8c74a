//! Which MPI library it is.

use std::ffi::{CStr, c_char, c_int};

use mpi::ffi;

use super::MpiComm;

/// Longer than any library's text: the largest `MPI_MAX_LIBRARY_VERSION_STRING` is 8192.
const LONGEST: usize = 16 << 10;

impl MpiComm {
    /// What the MPI library says of itself, up to the first comma or line's end, for example `Open MPI v4.1.4`. May be
    /// called at any time. `None` if it says nothing.
    pub fn library_version() -> Option<String> {
        let mut text: Vec<c_char> = vec![0; LONGEST];
        let mut length: c_int = 0;
        // SAFETY: both are places for the result, and the text's is longer than any. The standard allows the call before
        // MPI_Init and after MPI_Finalize.
        if unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr(), &mut length) } != 0 {
            return None;
        }
        // SAFETY: the last byte is 0 still.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        let first = text.split([',', '\n']).next().unwrap_or_default().trim();
        (!first.is_empty()).then(|| first.to_owned())
    }
}
