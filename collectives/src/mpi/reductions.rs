//! Calls that reduce.
//!
//! What MPI cannot reduce where it lies goes through a staging buffer, piece by piece: elements that travel as
//! `f32`, and calls in place with a library of which we do not know the constant.

use std::ffi::c_void;
use std::slice;

use half::{bf16, f16};
use mpi::ffi;

use super::core::Core;
use super::data::{STAGE_BYTES, at, at_mut, count, pieces};
use super::ops::Wire;
use super::request::{Failure, succeeded};
use super::style::Style;
use crate::host::call::RawCall;
use crate::{DType, Op, ReduceOp};

/// Calls the generic function for the element type of `$dtype`.
macro_rules! typed {
    ($dtype:expr, $self:ident . $function:ident ( $($argument:expr),* )) => {
        match $dtype {
            DType::Float32 => $self.$function::<f32>($($argument),*).await,
            DType::Float64 => $self.$function::<f64>($($argument),*).await,
            DType::Float16 => $self.$function::<f16>($($argument),*).await,
            DType::BFloat16 => $self.$function::<bf16>($($argument),*).await,
            DType::Int32 => $self.$function::<i32>($($argument),*).await,
            DType::Int64 => $self.$function::<i64>($($argument),*).await,
            DType::UInt8 => $self.$function::<u8>($($argument),*).await,
        }
    };
}

/// For headers that do not have these names.
#[allow(dead_code)]
const OPEN_MPI: u32 = 0;
#[allow(dead_code)]
const MPICH_NUMVERSION: u32 = 0;

/// `MPI_IN_PLACE`, which C makes by a cast, so that the bindings do not have it. It is part of a library's binary
/// interface; which library that is, the bindings say by the names that its header defines.
fn in_place_constant() -> Option<*const c_void> {
    // These hide the names outside of this function.
    #[allow(unused_imports)]
    use ffi::*;
    if OPEN_MPI != 0 {
        Some(std::ptr::without_provenance(1))
    } else if MPICH_NUMVERSION != 0 {
        Some(std::ptr::without_provenance(usize::MAX))
    } else {
        None
    }
}

impl Core {
    /// # Safety
    ///
    /// As [`collective`](Self::collective).
    pub(super) async unsafe fn reduction(
        &self,
        call: &RawCall,
        dtype: DType,
        style: Style,
    ) -> Result<(), Failure> {
        let reduce = call.reduce.unwrap_or(ReduceOp::Sum);
        // SAFETY: passed on.
        unsafe {
            if call.op == Op::ReduceScatter {
                typed!(dtype, self.reduce_scatter(call, reduce, style))
            } else {
                typed!(dtype, self.reduce(call, reduce, style))
            }
        }
    }

    /// # Safety
    ///
    /// As [`collective`](Self::collective); `T` is the element type.
    async unsafe fn reduce<T: Wire>(
        &self,
        call: &RawCall,
        reduce: ReduceOp,
        style: Style,
    ) -> Result<(), Failure> {
        let (size, ranks) = (size_of::<T>(), self.members.size());
        let receives = call.op == Op::AllReduce || call.root == Some(self.rank);
        let root = count(call.root.unwrap_or(0));
        let in_place = receives && call.send.ptr == call.recv.ptr.cast_const();
        let constant = in_place_constant();
        let staged = T::CONVERTED || (in_place && constant.is_none());
        // Not every rank needs to be in place, but all cut alike.
        let cut = T::CONVERTED || constant.is_none();
        let most = if cut { STAGE_BYTES / size_of::<T::Acc>() } else { usize::MAX };
        let most = most.min(self.settings.max_count);
        let room = if staged { call.send.len.min(most) } else { 0 };
        let mut from = vec![T::Acc::default(); room];
        let mut into = vec![T::Acc::default(); if T::CONVERTED && receives { room } else { 0 }];
        let (datatype, op) = (T::datatype(reduce), T::op(self.runtime.ops(), reduce));
        for piece in pieces(call.send.len, most) {
            let len = piece.len();
            let mut send = at(call.send.ptr, piece.start, size);
            let mut recv =
                if receives { at_mut(call.recv.ptr, piece.start, size) } else { std::ptr::null_mut() };
            if staged {
                let (stage, _) = from.split_at_mut(len);
                // SAFETY: within the send buffer, which nobody writes now.
                T::load(stage, unsafe { slice::from_raw_parts(send.cast::<T>(), len) });
                send = stage.as_ptr().cast();
            } else if in_place && let Some(constant) = constant {
                send = constant;
            }
            if !into.is_empty() {
                recv = into.as_mut_ptr().cast();
            }
            // SAFETY: `send` and `recv` have `len` elements of the datatype: the callers' buffers by the caller's
            // promise, the stages for as long as this function waits.
            unsafe {
                let (len, comm) = (count(len), self.data.raw());
                match call.op {
                    Op::Reduce => {
                        call!(
                            self,
                            style,
                            MPI_Reduce | MPI_Ireduce(send, recv, len, datatype, op, root, comm)
                        )
                    }
                    _ => {
                        call!(
                            self,
                            style,
                            MPI_Allreduce | MPI_Iallreduce(send, recv, len, datatype, op, comm)
                        )
                    }
                }?;
            }
            if !receives {
                continue;
            }
            // SAFETY: `piece` of the receive buffer, which MPI has finished with.
            let result =
                unsafe { slice::from_raw_parts_mut(call.recv.ptr.cast::<T>().add(piece.start), len) };
            if T::CONVERTED {
                let (wide, _) = into.split_at_mut(len);
                T::finish(reduce, ranks, wide);
                T::store(wide, result);
            } else {
                finish(reduce, ranks, result);
            }
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As [`collective`](Self::collective); `T` is the element type.
    async unsafe fn reduce_scatter<T: Wire>(
        &self,
        call: &RawCall,
        reduce: ReduceOp,
        style: Style,
    ) -> Result<(), Failure> {
        let (ranks, part) = (self.members.size(), call.recv.len);
        // MPI takes the parts one after another, so pieces of them are brought together first.
        let staged = T::CONVERTED || part.saturating_mul(ranks) > self.settings.max_count;
        let most = if staged { STAGE_BYTES / size_of::<T::Acc>() / ranks } else { part };
        let most = most.min(self.settings.max_count).max(1);
        let mut from = vec![T::Acc::default(); if staged { part.min(most) * ranks } else { 0 }];
        let mut into = vec![T::Acc::default(); if staged { part.min(most) } else { 0 }];
        let (datatype, op) = (T::datatype(reduce), T::op(self.runtime.ops(), reduce));
        for piece in pieces(part, most) {
            let len = piece.len();
            let mut send: *const c_void = call.send.ptr.cast();
            let mut recv: *mut c_void = call.recv.ptr.cast();
            if staged {
                for (rank, stage) in from.chunks_mut(len).take(ranks).enumerate() {
                    let start = rank * part + piece.start;
                    // SAFETY: within the send buffer of `ranks` parts, which nobody writes now.
                    T::load(stage, unsafe {
                        slice::from_raw_parts(call.send.ptr.cast::<T>().add(start), len)
                    });
                }
                send = from.as_ptr().cast();
                recv = into.as_mut_ptr().cast();
            }
            // SAFETY: `len` elements per rank in `send` and `len` in `recv`, as in `reduce`.
            unsafe {
                let (len, comm) = (count(len), self.data.raw());
                call!(
                    self,
                    style,
                    MPI_Reduce_scatter_block | MPI_Ireduce_scatter_block(send, recv, len, datatype, op, comm)
                )?;
            }
            // SAFETY: `piece` of the receive buffer, which MPI has finished with.
            let result =
                unsafe { slice::from_raw_parts_mut(call.recv.ptr.cast::<T>().add(piece.start), len) };
            if staged {
                let (wide, _) = into.split_at_mut(len);
                T::finish(reduce, ranks, wide);
                T::store(wide, result);
            } else {
                finish(reduce, ranks, result);
            }
        }
        Ok(())
    }
}

/// The last step of a reduction whose elements are not converted, in place.
fn finish<T: Wire>(reduce: ReduceOp, ranks: usize, result: &mut [T]) {
    if T::CONVERTED {
        return;
    }
    // SAFETY: the accumulator of an element type that is not converted is the type itself.
    let wide = unsafe { slice::from_raw_parts_mut(result.as_mut_ptr().cast::<T::Acc>(), result.len()) };
    T::finish(reduce, ranks, wide);
}
