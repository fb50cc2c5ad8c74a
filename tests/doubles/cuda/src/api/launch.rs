//! Modules, kernels and host functions.

use crate::abi::{Out, Text};
use crate::error::{Error, Result};
use crate::kernels::{self, Launch};
use crate::work::{HostFunction, Work};
use crate::{capture, context, stream};
use double_common::handles::Handle;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

fn load(image: &[u8]) -> Result<Handle> {
    context::current()?;
    capture::refuse_unsafe()?;
    kernels::load(&String::from_utf8_lossy(image))
}

fn launch(function: Handle, stream: Handle, parameters: *const *const c_void) -> Result {
    let launch = Launch::new(function, parameters)?;
    stream::find(stream)?.submit(Work::Kernel(Arc::new(launch)))
}

/// Threads that a multiprocessor and a block can have, as the device's attributes say.
const MULTIPROCESSOR_THREADS: c_int = 2048;
const BLOCK_THREADS: c_int = 1024;

fn active_blocks(function: Handle, block_size: c_int) -> Result<c_int> {
    kernels::check_function(function)?;
    match block_size {
        1..=BLOCK_THREADS => Ok(MULTIPROCESSOR_THREADS / block_size),
        _ => Err(Error::INVALID_VALUE),
    }
}

driver! {
    fn cuModuleLoad(module: Out<Handle>, path: Text) {
        let path = OsStr::from_bytes(path.read()?.to_bytes());
        module.set(load(&std::fs::read(path).map_err(|_| Error::FILE_NOT_FOUND)?)?)
    }

    fn cuModuleLoadData(module: Out<Handle>, image: *const c_char) {
        if image.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: an image is text that ends with NUL; compiled images, which do not, begin with a
        // magic number that is followed by a NUL within the first bytes.
        module.set(load(unsafe { CStr::from_ptr(image) }.to_bytes())?)
    }

    fn cuModuleUnload(module: Handle) { kernels::unload(module) }

    fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: Text) {
        let name = name.read()?.to_str().map_err(|_| Error::NOT_FOUND)?;
        function.set(kernels::function(module, name)?)
    }

    // No module here has variables.
    fn cuModuleGetGlobal_v2(_address: Out<u64>, _bytes: Out<usize>, _module: Handle, _name: Text) {
        Err(Error::NOT_FOUND)
    }

    fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_int, function: Handle) {
        kernels::check_function(function)?;
        // The first is the number of threads that a block may have; no other has a meaning here.
        value.set(if attribute == 0 { BLOCK_THREADS } else { 0 })
    }

    fn cuFuncSetAttribute(function: Handle, _attribute: c_int, _value: c_int) {
        kernels::check_function(function)
    }

    fn cuFuncSetCacheConfig(function: Handle, _config: c_int) { kernels::check_function(function) }

    // As of a device whose blocks need nothing but threads.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>,
        function: Handle,
        block_size: c_int,
        _shared_bytes: usize,
    ) {
        blocks.set(active_blocks(function, block_size)?)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>,
        function: Handle,
        block_size: c_int,
        _shared_bytes: usize,
        _flags: c_uint,
    ) {
        blocks.set(active_blocks(function, block_size)?)
    }

    fn cuLaunchKernel(
        function: Handle,
        _grid_x: c_uint,
        _grid_y: c_uint,
        _grid_z: c_uint,
        _block_x: c_uint,
        _block_y: c_uint,
        _block_z: c_uint,
        _shared_bytes: c_uint,
        stream: Handle,
        parameters: *const *const c_void,
        _extra: *const *const c_void,
    ) {
        launch(function, stream, parameters)
    }

    fn cuLaunchCooperativeKernel(
        function: Handle,
        _grid_x: c_uint,
        _grid_y: c_uint,
        _grid_z: c_uint,
        _block_x: c_uint,
        _block_y: c_uint,
        _block_z: c_uint,
        _shared_bytes: c_uint,
        stream: Handle,
        parameters: *const *const c_void,
    ) {
        launch(function, stream, parameters)
    }

    fn cuLaunchHostFunc(
        stream: Handle,
        function: Option<extern "C" fn(*mut c_void)>,
        data: *mut c_void,
    ) {
        let function = function.ok_or(Error::INVALID_VALUE)?;
        let host = HostFunction { function, data: data as usize };
        stream::find(stream)?.submit(Work::Host(host))
    }
}
