//! The work of a call: which memory is read and written, in units that any of its ranks can do.
//!
//! A call's work is a range of *work elements*, cut into units. Distinct work elements write distinct
//! memory, so units can run at the same time on different threads:
//!
//! | op | work element | reads | writes |
//! | --- | --- | --- | --- |
//! | all_reduce, reduce | `i` | element `i` of every rank's send | element `i` of every rank's (the root's) recv |
//! | reduce_scatter | `r * part + i` | the same element of every rank's send | element `i` of rank `r`'s recv |
//! | all_gather | `r * part + i` | element `i` of rank `r`'s send | the same element of every rank's recv |
//! | broadcast | `i` | element `i` of the root's send | element `i` of every rank's recv |
//! | all_to_all(_v) | an element of some rank's send | it | its place in the receiver's recv |
//! | send/recv | `i` | element `i` | element `i` |
//!
//! Where send and recv are the same memory (calls in place), element `i` is read and written by one
//! unit alone, which reads it first.

use std::ops::Range;
use std::slice;

use half::{bf16, f16};

use crate::host::call::RawCall;
use crate::{DType, Element, Op, ReduceOp};

/// Payload of a unit. Large enough that claiming one costs nothing beside it, small enough that two
/// ranks share a megabyte evenly. Under Miri small, so that many threads meet in few bytes.
const UNIT_BYTES: usize = if cfg!(miri) { 64 } else { 64 * 1024 };

/// Elements reduced at a time: partial results stay in the L1 cache.
const BLOCK: usize = if cfg!(miri) { 12 } else { 2048 };

/// What a call does, once all its ranks have come and agree.
pub(super) struct Work {
    calls: Box<[RawCall]>,
    op: Op,
    reduce: ReduceOp,
    root: usize,
    kernel: ReduceKernel,
    element_size: usize,
    total: usize,
    unit: usize,
    /// Length of one rank's part, where the buffers are cut into parts.
    part: usize,
    /// all_to_all_v: first work element, source offset and target offset per pair of ranks, in the
    /// order of `source * ranks + target`.
    pairs: Box<[Pair]>,
}

#[derive(Clone, Copy)]
struct Pair {
    first: usize,
    source_offset: usize,
    target_offset: usize,
}

/// Reduces the work elements of a range; for the element type that the function was made for.
type ReduceKernel = unsafe fn(&Work, Range<usize>);

impl Work {
    /// The work of `calls`, which have been checked against each other; in rank order, or sender and
    /// receiver.
    pub(super) fn new(calls: Box<[RawCall]>) -> Option<Self> {
        let first = calls.first()?;
        let ranks = calls.len();
        let (op, send, recv) = (first.op, first.send.len, first.recv.len);
        let element_size = first.dtype.map_or(1, |dtype| dtype.size());
        let pairs = if op == Op::AllToAllV { pairs(&calls) } else { Box::default() };
        let (total, part) = match op {
            Op::AllReduce | Op::Reduce | Op::Send | Op::Recv => (send, send),
            Op::Broadcast => (recv, recv),
            Op::AllGather => (send.saturating_mul(ranks), send),
            Op::ReduceScatter => (send, recv),
            Op::AllToAll => (send.saturating_mul(ranks), send / ranks),
            Op::AllToAllV => (calls.iter().flat_map(|call| &call.send_counts).sum(), 0),
            Op::Barrier => (0, 0),
        };
        Some(Self {
            op,
            reduce: first.reduce.unwrap_or(ReduceOp::Sum),
            root: first.root.unwrap_or(0),
            kernel: first.dtype.map_or(reduce::<u8> as ReduceKernel, kernel_of),
            element_size,
            total,
            unit: (UNIT_BYTES / element_size).max(1),
            part,
            pairs,
            calls,
        })
    }

    /// Number of units.
    pub(super) fn units(&self) -> usize {
        self.total.div_ceil(self.unit)
    }

    /// Does a unit.
    ///
    /// # Safety
    ///
    /// All buffers of the calls are valid, nothing but the units of this work accesses them (recv) or
    /// writes them (send), and each unit is done at most once.
    pub(super) unsafe fn run(&self, unit: usize) {
        let start = unit.saturating_mul(self.unit);
        let range = start..start.saturating_add(self.unit).min(self.total);
        // SAFETY: the caller's promise covers all buffers; `range` lies within `total`, for which `check`
        // has established that the buffers are long enough.
        unsafe {
            match self.op {
                Op::AllReduce | Op::Reduce | Op::ReduceScatter => (self.kernel)(self, range),
                Op::Broadcast => {
                    for target in 0..self.calls.len() {
                        self.copy(self.root, range.start, target, range.start, range.len());
                    }
                }
                Op::AllGather => self.for_parts(range, |source, offset, len| {
                    for target in 0..self.calls.len() {
                        self.copy(source, offset, target, source * self.part + offset, len);
                    }
                }),
                Op::AllToAll => {
                    let ranks = self.calls.len();
                    self.for_parts(range, |pair, offset, len| {
                        let (source, target) = (pair / ranks, pair % ranks);
                        let (from, to) = (target * self.part, source * self.part);
                        self.copy(source, from + offset, target, to + offset, len);
                    });
                }
                Op::AllToAllV => self.exchange(range),
                Op::Send | Op::Recv => self.copy(0, range.start, 1, range.start, range.len()),
                Op::Barrier => {}
            }
        }
    }

    /// Cuts `range` at multiples of `part`: calls with the part's number, the offset within it and a length.
    fn for_parts(&self, range: Range<usize>, mut piece: impl FnMut(usize, usize, usize)) {
        let mut at = range.start;
        while at < range.end {
            let (part, offset) = (at / self.part, at % self.part);
            let len = (self.part - offset).min(range.end - at);
            piece(part, offset, len);
            at += len;
        }
    }

    /// # Safety
    ///
    /// As [`run`](Self::run).
    unsafe fn exchange(&self, range: Range<usize>) {
        let ranks = self.calls.len();
        let mut at = range.start;
        // The last pair that starts at or before `at`; pairs of length 0 start where the next one does.
        let mut index = self.pairs.partition_point(|pair| pair.first <= at).saturating_sub(1);
        while at < range.end {
            let Some(pair) = self.pairs.get(index) else { return };
            let end = self.pairs.get(index + 1).map_or(self.total, |next| next.first);
            let (offset, len) = (at - pair.first, end.min(range.end) - at);
            let (source, target) = (index / ranks, index % ranks);
            // SAFETY: passed on; the pair's offsets are sums of counts that fit the buffers.
            unsafe {
                self.copy(source, pair.source_offset + offset, target, pair.target_offset + offset, len)
            };
            at += len;
            index += 1;
        }
    }

    /// # Safety
    ///
    /// As [`run`](Self::run); both places lie within the buffers.
    unsafe fn copy(&self, source: usize, from: usize, target: usize, to: usize, len: usize) {
        let (Some(source), Some(target)) = (self.calls.get(source), self.calls.get(target)) else { return };
        // SAFETY: `from` and `to` are within the buffers, so the offsets stay inside the allocations. In
        // place, a rank's own copy has source and target equal: nothing to do, and nothing is done.
        // Otherwise they belong to different borrows, one of them exclusive, and do not overlap.
        unsafe {
            let from = source.send.ptr.add(from * self.element_size);
            let to = target.recv.ptr.add(to * self.element_size);
            if from != to.cast_const() {
                std::ptr::copy_nonoverlapping(from, to, len * self.element_size);
            }
        }
    }
}

fn pairs(calls: &[RawCall]) -> Box<[Pair]> {
    let mut first = 0;
    let mut target_offsets = vec![0; calls.len()];
    let mut pairs = Vec::with_capacity(calls.len() * calls.len());
    for call in calls {
        let mut source_offset = 0;
        for (&count, target_offset) in call.send_counts.iter().zip(&mut target_offsets) {
            pairs.push(Pair { first, source_offset, target_offset: *target_offset });
            first += count;
            source_offset += count;
            *target_offset += count;
        }
    }
    pairs.into()
}

fn kernel_of(dtype: DType) -> ReduceKernel {
    match dtype {
        DType::Float32 => reduce::<f32>,
        DType::Float64 => reduce::<f64>,
        DType::Float16 => reduce::<f16>,
        DType::BFloat16 => reduce::<bf16>,
        DType::Int32 => reduce::<i32>,
        DType::Int64 => reduce::<i64>,
        DType::UInt8 => reduce::<u8>,
    }
}

/// The [`ReduceKernel`] of `T`.
///
/// # Safety
///
/// As [`Work::run`]; `T` is the element type of all calls and `range` lies within `total`.
unsafe fn reduce<T: Element>(work: &Work, range: Range<usize>) {
    let mut partial = [T::Acc::default(); BLOCK];
    let mut at = range.start;
    while at < range.end {
        // A block of a reduce_scatter has one receiver.
        let room = if work.op == Op::ReduceScatter { work.part - at % work.part } else { BLOCK };
        let len = BLOCK.min(room).min(range.end - at);
        let (partial, _) = partial.split_at_mut(len);
        for (rank, call) in work.calls.iter().enumerate() {
            // SAFETY: `at + len` is within the send buffer (`check` compared lengths), and while this unit
            // runs nobody writes these elements: they are written by this unit alone, further down.
            let values = unsafe { slice::from_raw_parts(call.send.ptr.cast::<T>().add(at), len) };
            if rank == 0 {
                T::load(partial, values);
            } else {
                T::fold(work.reduce, partial, values);
            }
        }
        T::finish(work.reduce, work.calls.len(), partial);
        let (receivers, to) = match work.op {
            Op::ReduceScatter => (at / work.part..at / work.part + 1, at % work.part),
            Op::Reduce => (work.root..work.root + 1, at),
            _ => (0..work.calls.len(), at),
        };
        let mut converted: Option<*const T> = None;
        for call in work.calls.get(receivers).unwrap_or_default() {
            // SAFETY: `to + len` is within recv. The slices of `values` are no longer used, so in place
            // there is no other reference to these elements; nobody else accesses them meanwhile.
            unsafe {
                let target = call.recv.ptr.cast::<T>().add(to);
                match converted {
                    None => T::store(partial, slice::from_raw_parts_mut(target, len)),
                    Some(done) => std::ptr::copy_nonoverlapping(done, target, len),
                }
                converted = Some(target.cast_const());
            }
        }
        at += len;
    }
}
