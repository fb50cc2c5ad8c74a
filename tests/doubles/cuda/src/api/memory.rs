//! `cuMem*`: allocation.

use crate::abi::Out;
use crate::error::Error;
use crate::memory::{self, Kind};
use crate::work::Work;
use crate::{capture, context, stream};
use double_common::handles::Handle;
use std::ffi::{c_int, c_uint, c_void};

/// `CUmemLocation`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: c_int,
    id: c_int,
}

driver! {
    fn cuMemAlloc_v2(address: Out<u64>, size: usize) {
        let context = context::current()?;
        capture::refuse_unsafe()?;
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        address.set(memory::allocate(&context, Kind::Device, size)? as u64)
    }

    fn cuMemAllocManaged(address: Out<u64>, size: usize, flags: c_uint) {
        let context = context::current()?;
        capture::refuse_unsafe()?;
        if size == 0 || flags == 0 {
            return Err(Error::INVALID_VALUE);
        }
        address.set(memory::allocate(&context, Kind::Managed, size)? as u64)
    }

    fn cuMemAllocAsync(address: Out<u64>, size: usize, stream: Handle) {
        let stream = stream::find(stream)?;
        address.set(memory::allocate(&stream.context, Kind::Device, size)? as u64)
    }

    // Frees once the work that may use the memory is done, as the driver does.
    fn cuMemFree_v2(address: u64) {
        let context = context::current()?;
        capture::refuse_unsafe()?;
        if address == 0 {
            return Ok(());
        }
        memory::check_base(address as usize, &[Kind::Device, Kind::Managed])?;
        context.synchronize()?;
        memory::free(address as usize);
        Ok(())
    }

    fn cuMemFreeAsync(address: u64, stream: Handle) {
        let stream = stream::find(stream)?;
        memory::check_base(address as usize, &[Kind::Device, Kind::Managed])?;
        stream.submit(Work::Free(address as usize))
    }

    fn cuMemHostAlloc(pointer: Out<*mut c_void>, size: usize, _flags: c_uint) {
        let context = context::current()?;
        capture::refuse_unsafe()?;
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        pointer.set(memory::allocate(&context, Kind::Pinned, size)? as *mut c_void)
    }

    fn cuMemFreeHost(pointer: *mut c_void) {
        let context = context::current()?;
        capture::refuse_unsafe()?;
        memory::check_base(pointer as usize, &[Kind::Pinned])?;
        context.synchronize()?;
        memory::free(pointer as usize);
        Ok(())
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let (free_bytes, total_bytes) = memory::info(context::current()?.device);
        free.set(free_bytes as usize)?;
        total.set(total_bytes as usize)
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) {
        context::current()?;
        let (_, _, start, bytes) = memory::describe(address as usize).ok_or(Error::NOT_FOUND)?;
        base.set_if_wanted(start as u64);
        size.set_if_wanted(bytes);
        Ok(())
    }

    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: u64) {
        context::initialized()?;
        let (kind, device, base, size) =
            memory::describe(address as usize).ok_or(Error::INVALID_VALUE)?;
        if value.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the caller gives a place of the attribute's type, which `cuda.h` fixes by its number.
        unsafe {
            match attribute {
                2 => value.cast::<c_uint>().write(if kind == Kind::Pinned { 1 } else { 2 }),
                3 | 4 => value.cast::<u64>().write(address),
                8 => value.cast::<c_uint>().write((kind == Kind::Managed).into()),
                9 => value.cast::<c_int>().write(device),
                11 => value.cast::<u64>().write(base as u64),
                12 => value.cast::<usize>().write(size),
                _ => return Err(Error::NOT_SUPPORTED),
            }
        }
        Ok(())
    }

    // Hints for managed memory have no effect: the host's memory is the device's.
    fn cuMemAdvise(address: u64, length: usize, _advice: c_int, _device: c_int) {
        context::current()?;
        memory::check_device(address as usize, length)
    }

    fn cuMemAdvise_v2(address: u64, length: usize, _advice: c_int, _location: Location) {
        context::current()?;
        memory::check_device(address as usize, length)
    }

    fn cuMemPrefetchAsync(address: u64, length: usize, _device: c_int, stream: Handle) {
        stream::find(stream)?;
        memory::check_device(address as usize, length)
    }

    fn cuMemPrefetchAsync_v2(
        address: u64,
        length: usize,
        _location: Location,
        _flags: c_uint,
        stream: Handle,
    ) {
        stream::find(stream)?;
        memory::check_device(address as usize, length)
    }
}
