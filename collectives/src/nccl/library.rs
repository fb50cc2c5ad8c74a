//! NCCL's library, found and loaded at run time.
//!
//! The functions are called through a table of our own, since cudarc's bindings panic where the library
//! or one of its functions is missing, and result codes that a newer library has would be undefined
//! behaviour as values of their enum.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use cudarc::nccl::sys::{cudaStream_t, ncclComm_t, ncclUniqueId};

use crate::{Error, Result};

/// The names that cudarc tries as well come first, so that both load the same file. PyPI's
/// `nvidia-nccl-*` has the last one only.
const NAMES: [&str; 2] = ["libnccl.so", "libnccl.so.2"];

/// `ncclSuccess`.
pub(super) const SUCCESS: c_int = 0;
/// `ncclInProgress`: a non-blocking communicator goes on in the background.
pub(super) const IN_PROGRESS: c_int = 7;

type Collective =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, ncclComm_t, cudaStream_t) -> c_int;
type Reducing =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> c_int;

macro_rules! library {
    (
        required { $($(#[$doc:meta])* $field:ident: $symbol:literal = $type:ty;)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident: $optional_symbol:literal = $optional_type:ty;)* }
    ) => {
        /// NCCL's functions. Enumerations are passed as the integers that they are in C.
        pub(super) struct Library {
            $($(#[$doc])* pub(super) $field: $type,)*
            $($(#[$optional_doc])* pub(super) $optional: Option<$optional_type>,)*
            /// Keeps the code that the functions above point to.
            _file: libloading::Library,
        }

        impl Library {
            fn functions_of(file: libloading::Library) -> Result<Self, String> {
                Ok(Self {
                    $(
                        // SAFETY: the type is that of the function of this name in nccl.h.
                        $field: *unsafe { file.get::<$type>($symbol) }
                            .map_err(|error| format!("it has no {}: {}", $symbol.to_string_lossy(), reason(&error)))?,
                    )*
                    $(
                        // SAFETY: as above.
                        $optional: unsafe { file.get::<$optional_type>($optional_symbol) }.ok().map(|found| *found),
                    )*
                    _file: file,
                })
            }
        }
    };
}

library! {
    required {
        get_version: c"ncclGetVersion" = unsafe extern "C" fn(*mut c_int) -> c_int;
        get_unique_id: c"ncclGetUniqueId" = unsafe extern "C" fn(*mut ncclUniqueId) -> c_int;
        comm_init_rank: c"ncclCommInitRank" =
            unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int) -> c_int;
        comm_abort: c"ncclCommAbort" = unsafe extern "C" fn(ncclComm_t) -> c_int;
        comm_count: c"ncclCommCount" = unsafe extern "C" fn(ncclComm_t, *mut c_int) -> c_int;
        comm_user_rank: c"ncclCommUserRank" = unsafe extern "C" fn(ncclComm_t, *mut c_int) -> c_int;
        get_error_string: c"ncclGetErrorString" = unsafe extern "C" fn(c_int) -> *const c_char;
        group_start: c"ncclGroupStart" = unsafe extern "C" fn() -> c_int;
        group_end: c"ncclGroupEnd" = unsafe extern "C" fn() -> c_int;
        all_reduce: c"ncclAllReduce" = Reducing;
        all_gather: c"ncclAllGather" = Collective;
        reduce_scatter: c"ncclReduceScatter" = Reducing;
        broadcast: c"ncclBroadcast" =
            unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> c_int;
        reduce: c"ncclReduce" = unsafe extern "C" fn(
            *const c_void, *mut c_void, usize, c_int, c_int, c_int, ncclComm_t, cudaStream_t,
        ) -> c_int;
        send: c"ncclSend" =
            unsafe extern "C" fn(*const c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> c_int;
        recv: c"ncclRecv" =
            unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, ncclComm_t, cudaStream_t) -> c_int;
    }
    optional {
        /// Since 2.13.
        get_last_error: c"ncclGetLastError" = unsafe extern "C" fn(ncclComm_t) -> *const c_char;
        /// Since 2.4.
        comm_get_async_error: c"ncclCommGetAsyncError" =
            unsafe extern "C" fn(ncclComm_t, *mut c_int) -> c_int;
        /// Since 2.18; the last argument is a configuration, for which null stands for the parent's.
        comm_split: c"ncclCommSplit" =
            unsafe extern "C" fn(ncclComm_t, c_int, c_int, *mut ncclComm_t, *mut c_void) -> c_int;
        /// Since 2.28.
        all_to_all: c"ncclAlltoAll" = Collective;
    }
}

impl Library {
    /// NCCL, loaded at the first call.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`] on this and every later call if it cannot be loaded.
    pub(super) fn get() -> Result<&'static Self> {
        static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
        LOADED
            .get_or_init(Self::load)
            .as_ref()
            .map_err(|problem| Error::Setup { library: "NCCL", problem: problem.clone() })
    }

    fn load() -> Result<Self, String> {
        let mut problems = Vec::new();
        for name in NAMES {
            // SAFETY: loading NCCL runs its initializers, which is what a program that uses it wants.
            match unsafe { libloading::Library::new(name) } {
                Ok(file) => return Self::functions_of(file).map_err(|problem| format!("{name}: {problem}")),
                Err(error) => problems.push(reason(&error)),
            }
        }
        Err(format!(
            "{}; install NCCL (package libnccl2, or nvidia-nccl-cu12 of PyPI) and put its folder into \
             LD_LIBRARY_PATH",
            problems.join("; ")
        ))
    }

    /// NCCL's own words for `code`, and what it said last of `comm` (null for the process).
    pub(super) fn describe(&self, code: c_int, comm: ncclComm_t) -> String {
        // SAFETY: any number may be asked for; the result is a string constant.
        let general = unsafe { text((self.get_error_string)(code)) };
        // SAFETY: `comm` is null or a communicator of this library; the text is NCCL's and stays until
        // the next error.
        let last = self.get_last_error.map(|last| unsafe { text(last(comm)) }).unwrap_or_default();
        if last.is_empty() { general } else { format!("{general}: {last}") }
    }

    /// The version as `(major, minor, patch)`.
    pub(super) fn version(&self) -> Result<(u32, u32, u32)> {
        let mut code = 0;
        // SAFETY: the pointer is to an integer of ours.
        let status = unsafe { (self.get_version)(&mut code) };
        if status != SUCCESS {
            return Err(self.error("asking for the version", status, std::ptr::null_mut()));
        }
        Ok(version_from(u32::try_from(code).unwrap_or(0)))
    }

    pub(super) fn error(&self, what: &str, code: c_int, comm: ncclComm_t) -> Error {
        Error::Native { library: "NCCL", what: what.to_owned(), code, message: self.describe(code, comm) }
    }
}

/// NCCL_VERSION_CODE of nccl.h: `X * 1000 + Y * 100 + Z` up to 2.8, `X * 10000 + Y * 100 + Z` since 2.9.
fn version_from(code: u32) -> (u32, u32, u32) {
    let major = if code < 10_000 { 1000 } else { 10_000 };
    (code / major, code % major / 100, code % 100)
}

/// What the loader said, which libloading keeps below its own words.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A copy of a C string; empty for null.
///
/// # Safety
///
/// `text` is null or points to a string that ends with a zero.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_codes_of_both_kinds_are_read() {
        assert_eq!(version_from(2708), (2, 7, 8));
        assert_eq!(version_from(22_803), (2, 28, 3));
        assert_eq!(version_from(21_805), (2, 18, 5));
    }
}
