//! `cuDevice*`: devices and their primary contexts.

use crate::abi::{Out, Text};
use crate::context;
use crate::error::Error;
use crate::{memory, settings};
use double_common::handles::Handle;
use std::ffi::{c_char, c_int, c_uint};

const NAME: &[u8] = b"commtrace stand-in device\0";

/// Attributes by their number in `cuda.h`; all others are 0, which for most means "cannot".
fn attribute(device: c_int, number: c_int) -> c_int {
    match number {
        1..=3 => 1024,    // threads of a block: in all, by x, by y
        4 => 64,          // by z
        5 => i32::MAX,    // blocks of a grid by x
        6 | 7 => 65_535,  // by y and z
        8 => 48 << 10,    // shared memory of a block
        10 => 32,         // threads of a warp
        12 => 65_536,     // registers of a block
        13 => 1_000_000,  // clock rate in kHz
        16 => 4,          // multiprocessors
        31 => 1,          // concurrent kernels
        33 => device + 1, // PCI bus
        39 => 2048,       // threads of a multiprocessor
        40 => 2,          // asynchronous engines
        41 => 1,          // unified addressing
        75 => 9,          // compute capability
        78 => 1,          // stream priorities
        83 | 89 => 1,     // managed memory, also while kernels run
        95 => 1,          // cooperative launch
        115 => 1,         // memory pools
        _ => 0,
    }
}

fn uuid(device: c_int) -> [u8; 16] {
    let mut uuid = *b"stand-in dev 000";
    uuid[12..].copy_from_slice(&device.to_be_bytes());
    uuid
}

driver! {
    fn cuDeviceGetCount(count: Out<c_int>) {
        context::initialized()?;
        count.set(settings::get().devices.max(0))
    }

    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        context::check_device(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: Out<c_char>, length: c_int, device: c_int) {
        context::check_device(device)?;
        let room = usize::try_from(length).map_err(|_| Error::INVALID_VALUE)?;
        if name.as_ptr().is_null() || room == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let shown = NAME.len().min(room);
        // SAFETY: the caller gives `length` bytes; no more is written, and the last one is NUL.
        unsafe {
            std::ptr::copy_nonoverlapping(NAME.as_ptr().cast(), name.as_ptr(), shown);
            name.as_ptr().add(shown - 1).write(0);
        }
        Ok(())
    }

    fn cuDeviceGetUuid(id: Out<[u8; 16]>, device: c_int) {
        context::check_device(device)?;
        id.set(uuid(device))
    }

    fn cuDeviceGetUuid_v2(id: Out<[u8; 16]>, device: c_int) {
        context::check_device(device)?;
        id.set(uuid(device))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) {
        context::check_device(device)?;
        bytes.set(memory::info(device).1 as usize)
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, number: c_int, device: c_int) {
        context::check_device(device)?;
        value.set(attribute(device, number))
    }

    fn cuDeviceGetPCIBusId(text: Out<c_char>, length: c_int, device: c_int) {
        context::check_device(device)?;
        let id = format!("0000:{:02X}:00.0\0", device + 1);
        if text.as_ptr().is_null() || usize::try_from(length).is_ok_and(|room| room < id.len()) {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the caller gives `length` bytes, which were found to be enough.
        unsafe { std::ptr::copy_nonoverlapping(id.as_ptr().cast(), text.as_ptr(), id.len()) };
        Ok(())
    }

    fn cuDeviceGetByPCIBusId(device: Out<c_int>, text: Text) {
        context::initialized()?;
        let text = text.read()?.to_str().map_err(|_| Error::INVALID_VALUE)?;
        let known = (0..settings::get().devices)
            .find(|at| text.eq_ignore_ascii_case(&format!("0000:{:02X}:00.0", at + 1)));
        device.set(known.ok_or(Error::INVALID_DEVICE)?)
    }

    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) {
        context::check_device(device)?;
        context::check_device(peer)?;
        can.set((device != peer).into())
    }

    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) {
        context.set(context::retain_primary(device)?)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) { context::release_primary(device) }

    fn cuDevicePrimaryCtxReset_v2(device: c_int) { context::reset_primary(device) }

    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) {
        context::set_primary_flags(device, flags)
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let (now, exists) = context::primary_state(device)?;
        flags.set(now)?;
        active.set(exists.into())
    }
}
