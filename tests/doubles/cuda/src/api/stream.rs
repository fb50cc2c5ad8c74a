//! `cuStream*`: streams, but for their capture.

use crate::abi::Out;
use crate::stream::{self, Stream};
use crate::{context, event};
use double_common::handles::Handle;
use std::ffi::{c_int, c_uint};

driver! {
    fn cuStreamCreate(made: Out<Handle>, flags: c_uint) { made.set(Stream::create(flags, 0)?) }

    fn cuStreamCreateWithPriority(made: Out<Handle>, flags: c_uint, priority: c_int) {
        made.set(Stream::create(flags, priority)?)
    }

    fn cuStreamDestroy_v2(stream: Handle) { stream::destroy(stream) }

    fn cuStreamSynchronize(stream: Handle) { stream::synchronize(stream) }

    fn cuStreamQuery(stream: Handle) { stream::query(stream) }

    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) {
        event::stream_wait(stream, event, flags)
    }

    fn cuStreamGetPriority(stream: Handle, priority: Out<c_int>) {
        priority.set(stream::find(stream)?.priority)
    }

    fn cuStreamGetFlags(stream: Handle, flags: Out<c_uint>) { flags.set(stream::find(stream)?.flags) }

    fn cuStreamGetId(stream: Handle, id: Out<u64>) { id.set(stream::find(stream)?.id) }

    fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) {
        context.set(stream::find(stream)?.context.handle)
    }

    fn cuStreamGetCtx_v2(stream: Handle, context: Out<Handle>, green: Out<Handle>) {
        context.set(stream::find(stream)?.context.handle)?;
        green.set_if_wanted(0);
        Ok(())
    }

    fn cuStreamGetDevice(stream: Handle, device: Out<c_int>) {
        device.set(stream::find(stream)?.context.device)
    }

    // Managed memory is reachable from everywhere as it is.
    fn cuStreamAttachMemAsync(stream: Handle, _address: u64, _length: usize, _flags: c_uint) {
        context::initialized()?;
        stream::find(stream).map(|_| ())
    }
}
