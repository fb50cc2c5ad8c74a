//! The data of a call on which the ranks have agreed.
//!
//! Buffers larger than MPI's counts can say are moved in pieces, which are the same on all ranks.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::slice;

use mpi::ffi;

use super::core::Core;
use super::request::{Failure, succeeded};
use super::style::Style;
use crate::host::call::RawCall;
use crate::{DType, Op};

/// Size of a staging buffer.
pub(super) const STAGE_BYTES: usize = 8 << 20;

/// MPI's type for moving elements of `size` bytes.
fn mover(size: usize) -> ffi::MPI_Datatype {
    // SAFETY: constants of the library.
    unsafe {
        match size {
            1 => ffi::RSMPI_UINT8_T,
            2 => ffi::RSMPI_UINT16_T,
            4 => ffi::RSMPI_UINT32_T,
            _ => ffi::RSMPI_UINT64_T,
        }
    }
}

/// Element `index` of a buffer that has it.
pub(super) fn at(buffer: *const u8, index: usize, size: usize) -> *const c_void {
    // Offsets of elements in a slice fit `usize` and stay inside it, for the callers' ranges.
    buffer.wrapping_add(index * size).cast()
}

pub(super) fn at_mut(buffer: *mut u8, index: usize, size: usize) -> *mut c_void {
    buffer.wrapping_add(index * size).cast()
}

/// `0..len` in ranges of at most `most`.
pub(super) fn pieces(len: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let most = most.max(1);
    (0..len.div_ceil(most)).map(move |piece| piece * most..len.min((piece + 1) * most))
}

/// A count that [`pieces`] or the checks have made small enough.
pub(super) fn count(len: usize) -> c_int {
    c_int::try_from(len).unwrap_or(c_int::MAX)
}

impl Core {
    /// Moves or reduces the data of a collective. The arguments have been checked on all ranks.
    ///
    /// # Safety
    ///
    /// The call's buffers are valid and not accessed otherwise until the future is done or dropped.
    pub(super) async unsafe fn collective(&self, call: &RawCall, style: Style) -> Result<(), Failure> {
        let dtype = call.dtype.unwrap_or(DType::UInt8);
        // SAFETY: passed on to each.
        unsafe {
            match call.op {
                Op::AllReduce | Op::Reduce | Op::ReduceScatter => self.reduction(call, dtype, style).await,
                Op::Broadcast => self.broadcast(call, dtype.size(), style).await,
                Op::AllGather => self.gather(call, dtype.size(), style).await,
                Op::AllToAll => self.exchange_parts(call, dtype.size(), style).await,
                Op::AllToAllV => self.exchange_any(call, dtype.size(), style).await,
                Op::Barrier => call!(self, style, MPI_Barrier | MPI_Ibarrier(self.data.raw())),
                // Messages are no collectives.
                Op::Send | Op::Recv => Ok(()),
            }
        }
    }

    /// # Safety
    ///
    /// As [`collective`](Self::collective); `size` is that of an element.
    async unsafe fn broadcast(&self, call: &RawCall, size: usize, style: Style) -> Result<(), Failure> {
        let (recv, len) = (call.recv.ptr, call.recv.len);
        if call.root == Some(self.rank) && call.send.ptr != recv.cast_const() {
            // SAFETY: buffers of the same length that do not overlap, as one is borrowed exclusively.
            unsafe { std::ptr::copy_nonoverlapping(call.send.ptr, recv, len * size) };
        }
        let root = count(call.root.unwrap_or(0));
        for piece in pieces(len, self.settings.max_count) {
            let data = at_mut(recv, piece.start, size);
            // SAFETY: `piece` of the caller's buffer.
            unsafe {
                let (len, comm) = (count(piece.len()), self.data.raw());
                call!(self, style, MPI_Bcast | MPI_Ibcast(data, len, mover(size), root, comm))?;
            }
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As [`collective`](Self::collective); `size` is that of an element.
    async unsafe fn gather(&self, call: &RawCall, size: usize, style: Style) -> Result<(), Failure> {
        let (ranks, part) = (self.members.size(), call.send.len);
        let whole = part.saturating_mul(ranks) <= self.settings.max_count;
        let most = if whole { part } else { self.settings.max_count.min(STAGE_BYTES / size / ranks).max(1) };
        let mut stage = vec![0_u8; if whole { 0 } else { most * ranks * size }];
        for piece in pieces(part, most) {
            let (send, len) = (at(call.send.ptr, piece.start, size), piece.len());
            let recv = if whole { call.recv.ptr.cast() } else { stage.as_mut_ptr().cast() };
            // SAFETY: `len` elements in `send`, and `len` per rank in `recv`.
            unsafe {
                let (len, datatype, comm) = (count(len), mover(size), self.data.raw());
                call!(
                    self,
                    style,
                    MPI_Allgather | MPI_Iallgather(send, len, datatype, recv, len, datatype, comm)
                )?;
            }
            for (rank, from) in stage.chunks(len * size).take(ranks).enumerate() {
                let into = at_mut(call.recv.ptr, rank * part + piece.start, size).cast::<u8>();
                // SAFETY: `piece` of the rank's part in the receive buffer.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, len * size) };
            }
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As [`collective`](Self::collective); `size` is that of an element.
    async unsafe fn exchange_parts(&self, call: &RawCall, size: usize, style: Style) -> Result<(), Failure> {
        let ranks = self.members.size();
        let part = call.send.len / ranks.max(1);
        let whole = part.saturating_mul(ranks) <= self.settings.max_count;
        let most = if whole { part } else { self.settings.max_count.min(STAGE_BYTES / size / ranks).max(1) };
        let room = if whole { 0 } else { most * ranks * size };
        let (mut from, mut into) = (vec![0_u8; room], vec![0_u8; room]);
        for piece in pieces(part, most) {
            let bytes = piece.len() * size;
            let (mut send, mut recv) = (call.send.ptr, call.recv.ptr);
            if !whole {
                for (rank, stage) in from.chunks_mut(bytes).take(ranks).enumerate() {
                    let data = at(call.send.ptr, rank * part + piece.start, size).cast::<u8>();
                    // SAFETY: `piece` of the rank's part in the send buffer.
                    stage.copy_from_slice(unsafe { slice::from_raw_parts(data, bytes) });
                }
                (send, recv) = (from.as_ptr(), into.as_mut_ptr());
            }
            // SAFETY: `piece.len()` elements per rank in both.
            unsafe {
                let (send, recv, comm) = (send.cast(), recv.cast(), self.data.raw());
                let (len, datatype) = (count(piece.len()), mover(size));
                call!(
                    self,
                    style,
                    MPI_Alltoall | MPI_Ialltoall(send, len, datatype, recv, len, datatype, comm)
                )?;
            }
            for (rank, stage) in into.chunks(bytes).take(ranks).enumerate() {
                let data = at_mut(call.recv.ptr, rank * part + piece.start, size).cast::<u8>();
                // SAFETY: `piece` of the rank's part in the receive buffer.
                unsafe { std::ptr::copy_nonoverlapping(stage.as_ptr(), data, bytes) };
            }
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As [`collective`](Self::collective); `size` is that of an element.
    async unsafe fn exchange_any(&self, call: &RawCall, size: usize, style: Style) -> Result<(), Failure> {
        let counts = |counts: &[usize]| counts.iter().map(|&len| count(len)).collect::<Vec<_>>();
        let starts = |counts: &[c_int]| {
            let start = |sum: &mut c_int, len: &c_int| {
                let start = *sum;
                *sum += len;
                Some(start)
            };
            counts.iter().scan(0, start).collect::<Vec<_>>()
        };
        let (sent, received) = (counts(&call.send_counts), counts(&call.recv_counts));
        let (from, into) = (starts(&sent), starts(&received));
        let datatype = mover(size);
        // SAFETY: the counts fit the buffers, and their sums fit `int`, or the call had been refused; the
        // lists live until the request is complete.
        unsafe {
            let (send, recv) = (call.send.ptr.cast(), call.recv.ptr.cast());
            let (sent, received) = (sent.as_ptr(), received.as_ptr());
            let (from, into, comm) = (from.as_ptr(), into.as_ptr(), self.data.raw());
            call!(
                self,
                style,
                MPI_Alltoallv
                    | MPI_Ialltoallv(send, sent, from, datatype, recv, received, into, datatype, comm)
            )
        }
    }

    /// Sends or receives the data of a message call.
    ///
    /// # Safety
    ///
    /// As [`collective`](Self::collective).
    pub(super) async unsafe fn message(
        &self,
        call: &RawCall,
        peer: usize,
        tag: c_int,
    ) -> Result<(), Failure> {
        let size = call.dtype.map_or(1, DType::size);
        let sends = call.op == Op::Send;
        let len = if sends { call.send.len } else { call.recv.len };
        let (peer, datatype, comm) = (count(peer), mover(size), self.data.raw());
        for piece in pieces(len, self.settings.max_count) {
            let len = count(piece.len());
            // SAFETY: `piece` of the caller's buffer.
            unsafe {
                if sends {
                    // Synchronous: complete once the receive has begun.
                    let data = at(call.send.ptr, piece.start, size);
                    self.request("MPI_Issend", |request| {
                        ffi::MPI_Issend(data, len, datatype, peer, tag, comm, request)
                    })
                    .await?;
                } else {
                    let data = at_mut(call.recv.ptr, piece.start, size);
                    self.request("MPI_Irecv", |request| {
                        ffi::MPI_Irecv(data, len, datatype, peer, tag, comm, request)
                    })
                    .await?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_whole_and_nothing_else() {
        for (len, most) in [(0, 3), (1, 3), (3, 3), (7, 3), (9, 3), (5, usize::MAX), (4, 0)] {
            let all: Vec<usize> = pieces(len, most).flatten().collect();
            assert_eq!(all, (0..len).collect::<Vec<_>>(), "{len} by {most}");
            assert!(pieces(len, most).all(|piece| !piece.is_empty() && piece.len() <= most.max(1)));
        }
    }
}
