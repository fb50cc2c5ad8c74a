//! Initialization, versions, error texts, and what happens as the library is loaded and left.

use crate::abi::Out;
use crate::error::{self, Error};
use crate::{context, counters, log, settings};
use double_common::symbols;
use std::ffi::{c_char, c_int, c_uint};

driver! {
    fn cuInit(flags: c_uint) {
        if flags == 0 { context::initialize() } else { Err(Error::INVALID_VALUE) }
    }

    fn cuDriverGetVersion(version: Out<c_int>) {
        version.set(settings::get().version)
    }

    fn cuGetErrorName(code: c_int, name: Out<*const c_char>) {
        match error::describe(code) {
            Some((text, _)) => name.set(text.as_ptr()),
            None => {
                name.set(std::ptr::null())?;
                Err(Error::INVALID_VALUE)
            }
        }
    }

    fn cuGetErrorString(code: c_int, text: Out<*const c_char>) {
        match error::describe(code) {
            Some((_, description)) => text.set(description.as_ptr()),
            None => {
                text.set(std::ptr::null())?;
                Err(Error::INVALID_VALUE)
            }
        }
    }

    fn cuProfilerStart() { context::current().map(|_| ()) }
    fn cuProfilerStop() { context::current().map(|_| ()) }
}

extern "C" fn loaded() {
    symbols::hide(c"DOUBLE_CUDA_MISSING", loaded as *const () as *const _);
}

extern "C" fn process_ends() {
    let _ = std::panic::catch_unwind(|| {
        log::flush();
        counters::write_at_exit();
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static AS_IT_IS_LOADED: extern "C" fn() = loaded;

#[used]
#[unsafe(link_section = ".fini_array")]
static AS_THE_PROCESS_ENDS: extern "C" fn() = process_ends;
