//! An MPI library and its version.

use super::library;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int};

/// What was found of MPI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mpi {
    /// The library; `None` if it could not be loaded.
    pub path: Option<String>,
    /// What the loader says, if it could not, and it is not just missing.
    pub load_error: Option<String>,
    /// What it says of itself, the first line.
    pub version: Option<String>,
}

/// Longer than any library's text: the largest `MPI_MAX_LIBRARY_VERSION_STRING` is 8192.
const LONGEST: usize = 16 << 10;

/// Open MPI's names since version 1.x, then those of MPICH and its relatives.
const NAMES: [&str; 6] =
    ["libmpi.so.40", "libmpi.so", "libmpi.so.20", "libmpi.so.12", "libmpich.so.12", "libmpich.so"];

pub fn probe() -> Mpi {
    let loaded = match library::load(&NAMES) {
        Ok(loaded) => loaded,
        Err(errors) => {
            let load_error = (!library::not_there(&errors)).then(|| errors.join("; "));
            return Mpi { load_error, ..Mpi::default() };
        }
    };
    let mut found = Mpi { path: Some(loaded.path.clone()), ..Mpi::default() };
    type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: the type is that of the MPI standard.
    if let Ok(get) = unsafe { loaded.library.get::<GetVersion>(b"MPI_Get_library_version") } {
        let mut text = vec![0 as c_char; LONGEST];
        let mut length = 0;
        // SAFETY: both are places for the result, and the text's is longer than any. The standard allows
        // the call before MPI_Init.
        if unsafe { get(text.as_mut_ptr(), &mut length) } == 0 {
            // SAFETY: the last byte is 0 still.
            let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
            found.version = text.lines().next().map(str::to_owned);
        }
    }
    std::mem::forget(loaded);
    found
}
