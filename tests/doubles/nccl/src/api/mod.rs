//! NCCL's functions. Names and argument orders are those of `nccl.h`. A pointer that C calls an opaque
//! handle is a number here, which has the same representation.
#![allow(non_snake_case)]

mod collectives;
mod comm;

use crate::abi::Out;
use crate::error::{self, Error, Result};
use crate::unique_id::UniqueId;
use crate::{comm as comms, driver, group, settings};
use double_common::handles::Handle;
use double_common::symbols;
use std::ffi::{c_char, c_int};

/// Checks the number of a rank, which `what` says the meaning of.
fn rank_in(size: usize, rank: c_int, what: &str) -> Result<usize> {
    let known = usize::try_from(rank).ok().filter(|rank| *rank < size);
    known.ok_or_else(|| Error::argument(format!("{what} {rank} is not among {size} ranks")))
}

nccl! {
    fn ncclGetVersion(version: Out<c_int>) { version.set(settings::get().version) }

    fn ncclGetUniqueId(id: Out<UniqueId>) { id.set(UniqueId::random()?) }

    fn ncclGroupStart() {
        group::start();
        Ok(())
    }

    fn ncclGroupEnd() { group::end() }

    fn ncclMemAlloc(address: Out<u64>, size: usize) { address.set(driver::get()?.allocate(size)?) }

    fn ncclMemFree(address: u64) { driver::get()?.free(address) }

    // Registered or not, buffers are alike here.
    fn ncclCommRegister(comm: Handle, buffer: usize, _size: usize, handle: Out<usize>) {
        comms::find(comm)?;
        handle.set(buffer)
    }

    fn ncclCommDeregister(comm: Handle, _handle: usize) { comms::find(comm).map(|_| ()) }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    error::describe(code).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_comm: Handle) -> *const c_char {
    std::panic::catch_unwind(error::last).unwrap_or(c"").as_ptr()
}

extern "C" fn loaded() {
    symbols::hide(c"DOUBLE_NCCL_MISSING", loaded as *const () as *const _);
}

#[used]
#[unsafe(link_section = ".init_array")]
static AS_IT_IS_LOADED: extern "C" fn() = loaded;
