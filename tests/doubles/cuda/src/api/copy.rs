//! `cuMemcpy*` and `cuMemset*`.
//!
//! As with the driver, a copy from pageable host memory has read its source when the call returns, and
//! one to pageable host memory is complete then; only page-locked memory is copied asynchronously.

use crate::error::Result;
use crate::memory::{self, Copy, Direction, Fill};
use crate::stream::{self, Stream};
use crate::work::Work;
use crate::{capture, context};
use double_common::handles::Handle;
use std::ffi::{c_uchar, c_uint, c_ushort};
use std::sync::Arc;

/// Runs work in the legacy stream and waits for it, as calls without a stream do.
fn blocking(work: Work) -> Result {
    let stream = context::current()?.legacy_stream()?;
    capture::refuse_unsafe()?;
    stream.submit(work)?;
    stream.synchronize()
}

fn copy_blocking(direction: Direction, source: usize, target: usize, length: usize) -> Result {
    context::current()?;
    blocking(Work::Copy(Copy::new(direction, source, target, length)?))
}

fn copy(direction: Direction, source: usize, target: usize, length: usize, stream: &Arc<Stream>) -> Result {
    let copy = Copy::new(direction, source, target, length)?;
    // A graph reads and writes the host's memory whenever it is launched.
    let captured = stream.capture().is_some();
    match direction {
        Direction::HostToDevice if !captured && !memory::is_pinned(source, length) => {
            stream.submit(Work::Copy(copy.staged()))
        }
        Direction::DeviceToHost if !captured && !memory::is_pinned(target, length) => {
            stream.submit(Work::Copy(copy))?;
            stream.synchronize()
        }
        _ => stream.submit(Work::Copy(copy)),
    }
}

fn fill(target: u64, pattern: u32, width: usize, count: usize) -> Result<Work> {
    context::initialized()?;
    Fill::new(target as usize, pattern.to_le_bytes(), width, count).map(Work::Fill)
}

driver! {
    fn cuMemcpyHtoD_v2(target: u64, source: usize, length: usize) {
        copy_blocking(Direction::HostToDevice, source, target as usize, length)
    }

    fn cuMemcpyDtoH_v2(target: usize, source: u64, length: usize) {
        copy_blocking(Direction::DeviceToHost, source as usize, target, length)
    }

    fn cuMemcpyDtoD_v2(target: u64, source: u64, length: usize) {
        copy_blocking(Direction::DeviceToDevice, source as usize, target as usize, length)
    }

    fn cuMemcpyHtoDAsync_v2(target: u64, source: usize, length: usize, stream: Handle) {
        let stream = stream::find(stream)?;
        copy(Direction::HostToDevice, source, target as usize, length, &stream)
    }

    fn cuMemcpyDtoHAsync_v2(target: usize, source: u64, length: usize, stream: Handle) {
        let stream = stream::find(stream)?;
        copy(Direction::DeviceToHost, source as usize, target, length, &stream)
    }

    fn cuMemcpyDtoDAsync_v2(target: u64, source: u64, length: usize, stream: Handle) {
        let stream = stream::find(stream)?;
        copy(Direction::DeviceToDevice, source as usize, target as usize, length, &stream)
    }

    fn cuMemcpyPeerAsync(
        target: u64,
        target_context: Handle,
        source: u64,
        source_context: Handle,
        length: usize,
        stream: Handle,
    ) {
        context::find(target_context)?.check()?;
        context::find(source_context)?.check()?;
        let stream = stream::find(stream)?;
        copy(Direction::DeviceToDevice, source as usize, target as usize, length, &stream)
    }

    fn cuMemsetD8_v2(target: u64, byte: c_uchar, count: usize) {
        blocking(fill(target, byte.into(), 1, count)?)
    }

    fn cuMemsetD8Async(target: u64, byte: c_uchar, count: usize, stream: Handle) {
        stream::find(stream)?.submit(fill(target, byte.into(), 1, count)?)
    }

    fn cuMemsetD16Async(target: u64, pattern: c_ushort, count: usize, stream: Handle) {
        stream::find(stream)?.submit(fill(target, pattern.into(), 2, count)?)
    }

    fn cuMemsetD32_v2(target: u64, pattern: c_uint, count: usize) {
        blocking(fill(target, pattern, 4, count)?)
    }

    fn cuMemsetD32Async(target: u64, pattern: c_uint, count: usize, stream: Handle) {
        stream::find(stream)?.submit(fill(target, pattern, 4, count)?)
    }
}
