//! The calls of [`NcclComm`], as cudarc has them.
//!
//! In each, asking a buffer for its pointer enqueues the waits for the buffer's last use; what that returns
//! beside the pointer records the use when the call has been enqueued.

use cudarc::driver::{DevicePtr, DevicePtrMut};
use cudarc::nccl::NcclType;
use cudarc::nccl::result::NcclStatus;

use super::NcclComm;
use super::call::NcclReduction;
use super::enqueue::Memory;
use crate::Result;

/// `(memory, guard)` of a buffer that is read.
macro_rules! read {
    ($buffer:expr, $stream:expr) => {{
        let len = $buffer.len();
        let (address, guard) = $buffer.device_ptr($stream);
        (Memory { address, len }, guard)
    }};
}

/// `(memory, guard)` of a buffer that is written.
macro_rules! write {
    ($buffer:expr, $stream:expr) => {{
        let len = $buffer.len();
        let (address, guard) = $buffer.device_ptr_mut($stream);
        (Memory { address, len }, guard)
    }};
}

/// Errors of all calls: [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a buffer is too short or a rank is none, and
/// [`Error::Native`](crate::Error::Native) if NCCL reports one. After a group has begun, NCCL reports at its end.
impl NcclComm {
    /// Reduces `sendbuff` over all ranks into every rank's `recvbuff`, which is at least as long.
    pub fn all_reduce<S: DevicePtr<T>, R: DevicePtrMut<T>, T: NcclType>(
        &self,
        sendbuff: &S,
        recvbuff: &mut R,
        reduce_op: &impl NcclReduction,
    ) -> Result<NcclStatus> {
        let (send, _read) = read!(sendbuff, &self.shared.stream);
        let (recv, _written) = write!(recvbuff, &self.shared.stream);
        self.enqueue_all_reduce::<T>(send, recv, reduce_op.as_nccl_op())
    }

    /// Reduces `buff` over all ranks, in place.
    pub fn all_reduce_in_place<R: DevicePtrMut<T>, T: NcclType>(
        &self,
        buff: &mut R,
        reduce_op: &impl NcclReduction,
    ) -> Result<NcclStatus> {
        let (memory, _written) = write!(buff, &self.shared.stream);
        self.enqueue_all_reduce::<T>(memory, memory, reduce_op.as_nccl_op())
    }

    /// Reduces `sendbuff` over all ranks into the root's `recvbuff`, which other ranks need not give.
    pub fn reduce<S: DevicePtr<T>, R: DevicePtrMut<T>, T: NcclType>(
        &self,
        sendbuff: &S,
        recvbuff: Option<&mut R>,
        reduce_op: &impl NcclReduction,
        root: i32,
    ) -> Result<NcclStatus> {
        let (send, _read) = read!(sendbuff, &self.shared.stream);
        let (recv, _written) = recvbuff.map(|buffer| write!(buffer, &self.shared.stream)).unzip();
        self.enqueue_reduce::<T>(send, recv, reduce_op.as_nccl_op(), root)
    }

    /// Reduces `recvbuff` over all ranks into the root's `recvbuff`; that of other ranks is left as it is.
    pub fn reduce_in_place<R: DevicePtrMut<T>, T: NcclType>(
        &self,
        recvbuff: &mut R,
        reduce_op: &impl NcclReduction,
        root: i32,
    ) -> Result<NcclStatus> {
        let (memory, _written) = write!(recvbuff, &self.shared.stream);
        self.enqueue_reduce::<T>(memory, Some(memory), reduce_op.as_nccl_op(), root)
    }

    /// Copies the root's `sendbuff` into every rank's `recvbuff`. Other ranks need not give `sendbuff`.
    pub fn broadcast<S: DevicePtr<T>, R: DevicePtrMut<T>, T: NcclType>(
        &self,
        sendbuff: Option<&S>,
        recvbuff: &mut R,
        root: i32,
    ) -> Result<NcclStatus> {
        let (send, _read) = sendbuff.map(|buffer| read!(buffer, &self.shared.stream)).unzip();
        let (recv, _written) = write!(recvbuff, &self.shared.stream);
        self.enqueue_broadcast::<T>(send, recv, root)
    }

    /// Copies the root's `recvbuff` into every other rank's.
    pub fn broadcast_in_place<R: DevicePtrMut<T>, T: NcclType>(
        &self,
        recvbuff: &mut R,
        root: i32,
    ) -> Result<NcclStatus> {
        let (memory, _written) = write!(recvbuff, &self.shared.stream);
        self.enqueue_broadcast::<T>(Some(memory), memory, root)
    }

    /// Gathers all ranks' `sendbuff`, in rank order, into every rank's `recvbuff`, which is at least
    /// `world_size` times as long.
    pub fn all_gather<S: DevicePtr<T>, R: DevicePtrMut<T>, T: NcclType>(
        &self,
        sendbuff: &S,
        recvbuff: &mut R,
    ) -> Result<NcclStatus> {
        let (send, _read) = read!(sendbuff, &self.shared.stream);
        let (recv, _written) = write!(recvbuff, &self.shared.stream);
        self.enqueue_all_gather::<T>(send, recv)
    }

    /// Reduces `sendbuff` over all ranks and leaves in `recvbuff` this rank's part; `sendbuff` is at least
    /// `world_size` times as long.
    pub fn reduce_scatter<S: DevicePtr<T>, R: DevicePtrMut<T>, T: NcclType>(
        &self,
        sendbuff: &S,
        recvbuff: &mut R,
        reduce_op: &impl NcclReduction,
    ) -> Result<NcclStatus> {
        let (send, _read) = read!(sendbuff, &self.shared.stream);
        let (recv, _written) = write!(recvbuff, &self.shared.stream);
        self.enqueue_reduce_scatter::<T>(send, recv, reduce_op.as_nccl_op())
    }

    /// Sends the `i`th of `world_size` equal parts of `sendbuff` to rank `i`, and receives rank `i`'s part at
    /// the same place of `recvbuff`. cudarc has no such call; NCCL has since 2.28, before that it is a send to
    /// and a receive from every rank.
    pub fn all_to_all<S: DevicePtr<T>, R: DevicePtrMut<T>, T: NcclType>(
        &self,
        sendbuff: &S,
        recvbuff: &mut R,
    ) -> Result<NcclStatus> {
        let (send, _read) = read!(sendbuff, &self.shared.stream);
        let (recv, _written) = write!(recvbuff, &self.shared.stream);
        self.enqueue_all_to_all::<T>(send, recv)
    }

    /// As [`all_to_all`](Self::all_to_all) with parts of any length: `send_counts[i]` elements go to rank
    /// `i`, `recv_counts[i]` elements come from it. Parts lie one after another from the start of the buffer.
    pub fn all_to_all_v<S: DevicePtr<T>, R: DevicePtrMut<T>, T: NcclType>(
        &self,
        sendbuff: &S,
        send_counts: &[usize],
        recvbuff: &mut R,
        recv_counts: &[usize],
    ) -> Result<NcclStatus> {
        let (send, _read) = read!(sendbuff, &self.shared.stream);
        let (recv, _written) = write!(recvbuff, &self.shared.stream);
        self.enqueue_all_to_all_v::<T>((send, send_counts), (recv, recv_counts))
    }

    /// Sends `data` to rank `peer`.
    pub fn send<S: DevicePtr<T>, T: NcclType>(&self, data: &S, peer: i32) -> Result<()> {
        let (memory, _read) = read!(data, &self.shared.stream);
        self.enqueue_send::<T>(memory, peer).map(drop)
    }

    /// Receives `buff` from rank `peer`.
    pub fn recv<R: DevicePtrMut<T>, T: NcclType>(&self, buff: &mut R, peer: i32) -> Result<NcclStatus> {
        let (memory, _written) = write!(buff, &self.shared.stream);
        self.enqueue_recv::<T>(memory, peer)
    }
}
