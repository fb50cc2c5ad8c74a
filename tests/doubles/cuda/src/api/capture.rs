//! Stream capture.

use crate::abi::Out;
use crate::capture::{self, Mode};
use crate::error::{Error, Result};
use crate::{graph, stream};
use double_common::handles::Handle;
use std::ffi::{c_int, c_uint, c_void};

/// `CUstreamCaptureStatus` of a stream, and the number of its capture.
fn status(stream: Handle) -> Result<(c_uint, u64)> {
    let stream = stream::find(stream)?;
    if stream.is_barred_by_capture() {
        // The question leaves the capture as it is; work would not.
        return Err(Error::STREAM_CAPTURE_IMPLICIT);
    }
    Ok(match stream.capture() {
        None => (0, 0),
        Some(capture) if capture.is_valid() => (1, capture.id),
        Some(capture) => (2, capture.id),
    })
}

fn info(stream: Handle, to: Out<c_uint>, id: Out<u64>) -> Result {
    let (status, number) = status(stream)?;
    to.set(status)?;
    id.set_if_wanted(number);
    Ok(())
}

driver! {
    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) {
        let mode = Mode::from_code(mode)?;
        capture::begin(&stream::find(stream)?, mode)
    }

    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) {
        graph.set(0)?;
        graph.set(graph::from_capture(&stream::find(stream)?)?)
    }

    fn cuStreamIsCapturing(stream: Handle, to: Out<c_uint>) { to.set(status(stream)?.0) }

    fn cuStreamGetCaptureInfo(stream: Handle, to: Out<c_uint>, id: Out<u64>) { info(stream, to, id) }

    // The graph under capture and its edges are not shown: what asks gets none.
    fn cuStreamGetCaptureInfo_v2(
        stream: Handle,
        to: Out<c_uint>,
        id: Out<u64>,
        graph: Out<Handle>,
        dependencies: Out<*const c_void>,
        count: Out<usize>,
    ) {
        graph.set_if_wanted(0);
        dependencies.set_if_wanted(std::ptr::null());
        count.set_if_wanted(0);
        info(stream, to, id)
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: Handle,
        to: Out<c_uint>,
        id: Out<u64>,
        graph: Out<Handle>,
        dependencies: Out<*const c_void>,
        edges: Out<*const c_void>,
        count: Out<usize>,
    ) {
        graph.set_if_wanted(0);
        dependencies.set_if_wanted(std::ptr::null());
        edges.set_if_wanted(std::ptr::null());
        count.set_if_wanted(0);
        info(stream, to, id)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<c_int>) {
        let new = Mode::from_code(mode.get()? as u32)?;
        mode.set(capture::exchange_thread_mode(new).code() as c_int)
    }
}
