//! The edge to C: how functions of the driver are declared, and the pointers that they take.

use crate::counters::Counter;
use crate::error::{Error, Result};
use crate::faults;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Where a call puts a result. Has the layout of `*mut T`.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Stores the result; an error if the caller gave no place for it.
    pub fn set(&self, value: T) -> Result {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        self.set_if_wanted(value);
        Ok(())
    }

    /// Stores the result if the caller gave a place for it.
    pub fn set_if_wanted(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the driver's interface demands a pointer that is null or valid for writing a T.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// What the caller stored there before the call.
    pub fn get(&self) -> Result<T> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: as above; functions that read their argument demand that it is initialized.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The pointer itself.
    pub fn as_ptr(&self) -> *mut T {
        self.0
    }
}

/// A C string that a call reads. Has the layout of `*const c_char`.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    pub fn read(&self) -> Result<&CStr> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the driver's interface demands a string that ends with NUL and lives through the call.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

/// Runs the body of a call: counts it, lets faults strike, and turns errors and panics into codes.
pub fn call(counter: &'static Counter, body: impl FnOnce() -> Result) -> c_int {
    counter.hit();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        faults::on_call(counter.name());
        body()
    }));
    match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(Error(code))) => code,
        Err(_) => Error::UNKNOWN.0,
    }
}

/// Declares functions of the driver: exported by their own name, counted, and without a panic that
/// could cross into the caller.
macro_rules! driver {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
                static COUNTER: $crate::counters::Counter =
                    $crate::counters::Counter::new(stringify!($name));
                $crate::abi::call(&COUNTER, move || $body)
            }
        )*
    };
}
