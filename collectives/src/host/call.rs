//! One rank's part in a call: what it wants, with which buffers.

use std::marker::PhantomData;

use commtrace_instrument::TokenExchange;

use crate::trace::{Parts, Spread};
use crate::{DType, Element, Op, ReduceOp};

/// A call whose buffers are borrowed for `'b`.
pub(crate) struct Call<'b> {
    pub(crate) raw: RawCall,
    buffers: PhantomData<&'b mut ()>,
}

/// A call without the borrow. Whoever carries it out makes sure that the borrow lasts
/// longer than any access.
pub(crate) struct RawCall {
    pub(crate) op: Op,
    pub(crate) dtype: Option<DType>,
    pub(crate) reduce: Option<ReduceOp>,
    pub(crate) root: Option<usize>,
    pub(crate) send: Source,
    pub(crate) recv: Target,
    /// Elements to and from each rank; used by all_to_all_v alone.
    pub(crate) send_counts: Vec<usize>,
    pub(crate) recv_counts: Vec<usize>,
    /// What the elements are; used by all_to_all and all_to_all_v alone.
    pub(crate) tokens: Option<TokenExchange>,
}

/// What is read. `present` is false where a rank gave no buffer because it is not the root.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) ptr: *const u8,
    pub(crate) len: usize,
    pub(crate) present: bool,
}

/// What is written, as [`Source`].
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) ptr: *mut u8,
    pub(crate) len: usize,
    pub(crate) present: bool,
}

// SAFETY: the pointers come from `&[T]` and `&mut [T]` of an `Element`, which is Send and Sync, so
// access from other threads is no problem of the type's; who accesses what and when is a matter of
// those who carry calls out, whose uses of the pointers are `unsafe` by themselves.
unsafe impl Send for RawCall {}
// SAFETY: as above; a shared `RawCall` only gives copies of the pointers.
unsafe impl Sync for RawCall {}

impl Source {
    fn none() -> Self {
        Self { ptr: std::ptr::null(), len: 0, present: false }
    }

    fn of<T>(buffer: &[T]) -> Self {
        Self { ptr: buffer.as_ptr().cast(), len: buffer.len(), present: true }
    }
}

impl Target {
    fn none() -> Self {
        Self { ptr: std::ptr::null_mut(), len: 0, present: false }
    }

    fn of<T>(buffer: &mut [T]) -> Self {
        Self { ptr: buffer.as_mut_ptr().cast(), len: buffer.len(), present: true }
    }

    /// The same memory as a source, for calls that work in place.
    fn as_source(self) -> Source {
        Source { ptr: self.ptr, len: self.len, present: self.present }
    }
}

impl<'b> Call<'b> {
    fn new<T: Element>(op: Op, send: Source, recv: Target) -> Self {
        let raw = RawCall {
            op,
            dtype: Some(T::DTYPE),
            reduce: None,
            root: None,
            send,
            recv,
            send_counts: Vec::new(),
            recv_counts: Vec::new(),
            tokens: None,
        };
        Self { raw, buffers: PhantomData }
    }

    fn reducing(mut self, op: &ReduceOp) -> Self {
        self.raw.reduce = Some(*op);
        self
    }

    fn rooted(mut self, root: usize) -> Self {
        self.raw.root = Some(root);
        self
    }

    pub(crate) fn all_reduce<T: Element>(send: &'b [T], recv: &'b mut [T], op: &ReduceOp) -> Self {
        Self::new::<T>(Op::AllReduce, Source::of(send), Target::of(recv)).reducing(op)
    }

    pub(crate) fn all_reduce_in_place<T: Element>(buffer: &'b mut [T], op: &ReduceOp) -> Self {
        let target = Target::of(buffer);
        Self::new::<T>(Op::AllReduce, target.as_source(), target).reducing(op)
    }

    pub(crate) fn reduce<T: Element>(
        send: &'b [T],
        recv: Option<&'b mut [T]>,
        op: &ReduceOp,
        root: usize,
    ) -> Self {
        let target = recv.map_or_else(Target::none, Target::of);
        Self::new::<T>(Op::Reduce, Source::of(send), target).reducing(op).rooted(root)
    }

    pub(crate) fn reduce_in_place<T: Element>(buffer: &'b mut [T], op: &ReduceOp, root: usize) -> Self {
        let target = Target::of(buffer);
        Self::new::<T>(Op::Reduce, target.as_source(), target).reducing(op).rooted(root)
    }

    pub(crate) fn all_gather<T: Element>(send: &'b [T], recv: &'b mut [T]) -> Self {
        Self::new::<T>(Op::AllGather, Source::of(send), Target::of(recv))
    }

    pub(crate) fn reduce_scatter<T: Element>(send: &'b [T], recv: &'b mut [T], op: &ReduceOp) -> Self {
        Self::new::<T>(Op::ReduceScatter, Source::of(send), Target::of(recv)).reducing(op)
    }

    pub(crate) fn broadcast<T: Element>(send: Option<&'b [T]>, recv: &'b mut [T], root: usize) -> Self {
        let source = send.map_or_else(Source::none, Source::of);
        Self::new::<T>(Op::Broadcast, source, Target::of(recv)).rooted(root)
    }

    pub(crate) fn broadcast_in_place<T: Element>(buffer: &'b mut [T], root: usize) -> Self {
        let target = Target::of(buffer);
        Self::new::<T>(Op::Broadcast, target.as_source(), target).rooted(root)
    }

    pub(crate) fn all_to_all<T: Element>(send: &'b [T], recv: &'b mut [T]) -> Self {
        let mut call = Self::new::<T>(Op::AllToAll, Source::of(send), Target::of(recv));
        // Now, since the calls of a group are made when the caller's scope may have ended.
        call.raw.tokens = TokenExchange::current();
        call
    }

    pub(crate) fn all_to_all_v<T: Element>(
        send: &'b [T],
        send_counts: &[usize],
        recv: &'b mut [T],
        recv_counts: &[usize],
    ) -> Self {
        let mut call = Self::new::<T>(Op::AllToAllV, Source::of(send), Target::of(recv));
        call.raw.send_counts = send_counts.to_vec();
        call.raw.recv_counts = recv_counts.to_vec();
        call.raw.tokens = TokenExchange::current();
        call
    }

    pub(crate) fn send<T: Element>(data: &'b [T]) -> Self {
        Self::new::<T>(Op::Send, Source::of(data), Target::none())
    }

    pub(crate) fn recv<T: Element>(buffer: &'b mut [T]) -> Self {
        Self::new::<T>(Op::Recv, Source::none(), Target::of(buffer))
    }

    pub(crate) fn barrier() -> Self {
        let mut call = Self::new::<u8>(Op::Barrier, Source::none(), Target::none());
        call.raw.dtype = None;
        call
    }
}

impl RawCall {
    /// Another rank's call, of which only lengths are known (`None` where it gave no buffer).
    #[cfg(feature = "mpi")]
    pub(crate) fn without_memory(
        op: Op,
        dtype: Option<DType>,
        send: Option<usize>,
        recv: Option<usize>,
    ) -> Self {
        let source = send.map(|len| Source { len, present: true, ..Source::none() });
        let target = recv.map(|len| Target { len, present: true, ..Target::none() });
        Self {
            op,
            dtype,
            reduce: None,
            root: None,
            send: source.unwrap_or_else(Source::none),
            recv: target.unwrap_or_else(Target::none),
            send_counts: Vec::new(),
            recv_counts: Vec::new(),
            tokens: None,
        }
    }

    /// How the call spreads over the ranks of a communicator of `ranks` ranks, if that is worth recording.
    pub(crate) fn spread(&self, ranks: usize) -> Option<Spread<'_>> {
        let parts = match self.op {
            Op::AllToAll => Parts::Equal(self.send.len / ranks.max(1)),
            Op::AllToAllV => Parts::Counts { sent: &self.send_counts, received: &self.recv_counts },
            _ => return None,
        };
        let element_bytes = self.dtype.map_or(0, DType::size);
        Some(Spread { parts, element_bytes, tokens: self.tokens })
    }

    /// Size as nccl-tests counts it, in a communicator of `ranks` ranks.
    pub(crate) fn bytes(&self, ranks: usize) -> u64 {
        let elements = match self.op {
            Op::AllReduce | Op::Reduce | Op::AllToAll | Op::Send => self.send.len,
            Op::Broadcast | Op::Recv => self.recv.len,
            Op::AllGather => self.send.len.saturating_mul(ranks),
            Op::ReduceScatter => self.recv.len.saturating_mul(ranks),
            Op::AllToAllV => self.send_counts.iter().fold(0, |sum: usize, &count| sum.saturating_add(count)),
            Op::Barrier => 0,
        };
        (elements as u64).saturating_mul(self.dtype.map_or(0, DType::size) as u64)
    }
}
