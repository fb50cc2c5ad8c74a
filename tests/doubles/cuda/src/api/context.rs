//! `cuCtx*`: contexts.

use crate::abi::Out;
use crate::error::Error;
use crate::{capture, context};
use double_common::handles::Handle;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

/// Refuses to wait for a context in which a stream is being captured.
fn synchronize(context: &context::Context) -> crate::error::Result {
    let captures: Vec<_> = context.streams().iter().filter_map(|stream| stream.capture()).collect();
    for capture in &captures {
        capture.invalidate();
    }
    if !captures.is_empty() {
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    capture::refuse_unsafe()?;
    context.synchronize()
}

driver! {
    fn cuCtxCreate_v2(made: Out<Handle>, flags: c_uint, device: c_int) {
        made.set(context::create(device, flags)?)
    }

    fn cuCtxCreate_v3(
        made: Out<Handle>,
        _affinity: *mut c_void,
        _affinities: c_int,
        flags: c_uint,
        device: c_int,
    ) {
        made.set(context::create(device, flags)?)
    }

    fn cuCtxCreate_v4(made: Out<Handle>, _parameters: *mut c_void, flags: c_uint, device: c_int) {
        made.set(context::create(device, flags)?)
    }

    fn cuCtxDestroy_v2(context: Handle) { context::destroy(context) }

    fn cuCtxGetCurrent(current: Out<Handle>) {
        context::initialized()?;
        current.set(context::current_handle())
    }

    fn cuCtxSetCurrent(context: Handle) {
        context::initialized()?;
        context::set_current(context)
    }

    fn cuCtxPushCurrent_v2(context: Handle) { context::push(context) }

    fn cuCtxPopCurrent_v2(popped: Out<Handle>) {
        popped.set_if_wanted(context::pop()?);
        Ok(())
    }

    fn cuCtxGetDevice(device: Out<c_int>) { device.set(context::current()?.device) }

    fn cuCtxGetDevice_v2(device: Out<c_int>, context: Handle) {
        let context = if context == 0 { context::current()? } else { context::find(context)? };
        device.set(context.device)
    }

    fn cuCtxGetId(context: Handle, id: Out<u64>) {
        let context = if context == 0 { context::current()? } else { context::find(context)? };
        id.set(context.id)
    }

    fn cuCtxGetApiVersion(context: Handle, version: Out<c_uint>) {
        if context == 0 { context::current()? } else { context::find(context)? };
        version.set(3020)
    }

    fn cuCtxGetFlags(flags: Out<c_uint>) {
        flags.set(context::current()?.flags.load(Ordering::Relaxed))
    }

    fn cuCtxSetFlags(flags: c_uint) {
        context::current()?.flags.store(flags, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        context::current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxSynchronize() { synchronize(&*context::current()?) }

    fn cuCtxSynchronize_v2(context: Handle) {
        let context = context::find(context)?;
        context.check()?;
        synchronize(&context)
    }

    // Peers reach each other's memory anyway.
    fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) {
        context::current()?;
        context::find(peer)?;
        if flags == 0 { Ok(()) } else { Err(Error::INVALID_VALUE) }
    }

    fn cuCtxDisablePeerAccess(peer: Handle) {
        context::current()?;
        context::find(peer).map(|_| ())
    }

    // Limits and cache preferences have no meaning here: accepted, and 0 when asked for.
    fn cuCtxGetLimit(value: Out<usize>, _limit: c_int) {
        context::current()?;
        value.set(0)
    }

    fn cuCtxSetLimit(_limit: c_int, _value: usize) { context::current().map(|_| ()) }

    fn cuCtxGetCacheConfig(config: Out<c_int>) {
        context::current()?;
        config.set(0)
    }

    fn cuCtxSetCacheConfig(_config: c_int) { context::current().map(|_| ()) }
}
