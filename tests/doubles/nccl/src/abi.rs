//! The edge to C: how NCCL's functions are declared, and the pointers that they take.

use crate::error::{self, Code, Error, Result};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Where a call puts a result. Has the layout of `*mut T`.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Checks that the caller gave a place.
    pub fn check(&self) -> Result {
        if self.0.is_null() { Err(Error::argument("a pointer for a result is null")) } else { Ok(()) }
    }

    /// Stores the result.
    pub fn set(&self, value: T) -> Result {
        self.check()?;
        // SAFETY: NCCL's interface demands a pointer that is null or valid for writing a T.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
}

/// Runs the body of a call and turns errors and panics into codes.
pub fn call(name: &str, body: impl FnOnce() -> Result) -> c_int {
    let Error { code, text } = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error,
        Err(_) => Error::new(Code::INTERNAL_ERROR, "the stand-in panicked"),
    };
    error::remember(&format!("{name}: {text}"));
    code.0
}

/// Declares functions of NCCL: exported by their own name, without a panic that could cross into the
/// caller.
macro_rules! nccl {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
                $crate::abi::call(stringify!($name), move || $body)
            }
        )*
    };
}
