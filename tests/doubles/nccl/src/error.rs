//! NCCL's error codes, and the text of the last error.

use double_common::lock;
use std::ffi::{CStr, CString, c_int};
use std::sync::Mutex;

/// A `ncclResult_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

impl Code {
    pub const UNHANDLED_CUDA_ERROR: Code = Code(1);
    pub const SYSTEM_ERROR: Code = Code(2);
    pub const INTERNAL_ERROR: Code = Code(3);
    pub const INVALID_ARGUMENT: Code = Code(4);
    pub const INVALID_USAGE: Code = Code(5);
    pub const REMOTE_ERROR: Code = Code(6);
}

/// A code with what happened.
#[derive(Clone, Debug)]
pub struct Error {
    pub code: Code,
    pub text: String,
}

/// The result of a call.
pub type Result<T = ()> = std::result::Result<T, Error>;

impl Error {
    pub fn new(code: Code, text: impl Into<String>) -> Error {
        Error { code, text: text.into() }
    }

    pub fn argument(text: impl Into<String>) -> Error {
        Error::new(Code::INVALID_ARGUMENT, text)
    }

    pub fn usage(text: impl Into<String>) -> Error {
        Error::new(Code::INVALID_USAGE, text)
    }

    pub fn system(what: &str, error: &std::io::Error) -> Error {
        Error::new(Code::SYSTEM_ERROR, format!("{what}: {error}"))
    }
}

/// The description of a code.
pub fn describe(code: c_int) -> &'static CStr {
    match code {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error",
        4 => c"invalid argument",
        5 => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    }
}

static LAST: Mutex<Option<&'static CStr>> = Mutex::new(None);

/// Most different texts that are kept for callers; further ones are not shown.
const MOST_TEXTS: usize = 256;

/// Keeps a text for `ncclGetLastError`. C callers hold on to it, so it is never freed.
pub fn remember(text: &str) {
    static TEXTS: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());
    let Ok(text) = CString::new(text) else { return };
    let mut texts = lock(&TEXTS);
    let known = texts.iter().find(|known| **known == text.as_c_str()).copied();
    let kept = match known {
        Some(known) => known,
        None if texts.len() < MOST_TEXTS => {
            let leaked: &'static CStr = Box::leak(text.into_boxed_c_str());
            texts.push(leaked);
            leaked
        }
        None => return,
    };
    *lock(&LAST) = Some(kept);
}

/// The last error's text.
pub fn last() -> &'static CStr {
    lock(&LAST).unwrap_or(c"")
}
