//! `cuEvent*`: events.

use crate::abi::Out;
use crate::event;
use double_common::handles::Handle;
use std::ffi::c_uint;

driver! {
    fn cuEventCreate(made: Out<Handle>, flags: c_uint) { made.set(event::create(flags)?) }

    fn cuEventRecord(event: Handle, stream: Handle) { event::record(event, stream, 0) }

    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        event::record(event, stream, flags)
    }

    fn cuEventQuery(event: Handle) { event::query(event) }

    fn cuEventSynchronize(event: Handle) { event::synchronize(event) }

    fn cuEventDestroy_v2(event: Handle) { event::destroy(event) }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) {
        milliseconds.set(event::elapsed_ms(start, end)?)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) {
        milliseconds.set(event::elapsed_ms(start, end)?)
    }
}
