//! [`NcclComm`] as a [`Communicator`], for code that runs on every backend.

use std::time::Instant;

use cudarc::driver::CudaSlice;
use cudarc::driver::result::DriverError;

use super::buffer::NcclBuffer;
use super::device::error_of;
use super::enqueue::Memory;
use super::{NcclComm, NcclGroup, here};
use crate::communicator::Group;
use crate::{Communicator, Element, Error, Pending, ReduceOp, Result};

/// A rank as NCCL takes it. One that is too large for it is none of the communicator's, and refused there.
fn rank_code(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

fn copy_error(error: DriverError) -> Error {
    error_of("copying between host and device", error)
}

fn same_length(from: usize, to: usize) -> Result<()> {
    if from == to { Ok(()) } else { Err(Error::CopyLength { from, to }) }
}

impl Communicator for NcclComm {
    type Buffer<T: Element> = CudaSlice<T>;
    type Owned<T: Element> = NcclBuffer<T>;
    type Group<'g> = NcclGroup<'g>;

    fn rank(&self) -> usize {
        self.rank()
    }

    fn size(&self) -> usize {
        self.world_size()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn alloc_zeros<T: Element>(&self, len: usize) -> Result<NcclBuffer<T>> {
        let slice = self.shared.stream.alloc_zeros(len);
        slice.map(Into::into).map_err(|error| error_of("allocating device memory", error))
    }

    fn alloc_from<T: Element>(&self, data: &[T]) -> Result<NcclBuffer<T>> {
        self.shared.stream.clone_htod(data).map(Into::into).map_err(copy_error)
    }

    fn write<T: Element>(&self, data: &[T], buffer: &mut CudaSlice<T>) -> Result<()> {
        same_length(data.len(), buffer.len())?;
        self.shared.stream.memcpy_htod(data, buffer).map_err(copy_error)
    }

    fn read<T: Element>(&self, buffer: &CudaSlice<T>, data: &mut [T]) -> Result<()> {
        same_length(buffer.len(), data.len())?;
        self.shared.stream.memcpy_dtoh(buffer, data).map_err(copy_error)?;
        // The copy may be under way, and `data` is the caller's again after this.
        self.shared.stream.synchronize().map_err(copy_error)
    }

    fn to_vec<T: Element>(&self, buffer: &CudaSlice<T>) -> Result<Vec<T>> {
        let mut data = vec![T::default(); buffer.len()];
        Communicator::read(self, buffer, &mut data)?;
        Ok(data)
    }

    fn all_reduce<T: Element>(
        &self,
        send: &CudaSlice<T>,
        recv: &mut CudaSlice<T>,
        op: &ReduceOp,
    ) -> Result<()> {
        self.all_reduce(send, recv, op).map(drop)
    }

    fn all_reduce_in_place<T: Element>(&self, buffer: &mut CudaSlice<T>, op: &ReduceOp) -> Result<()> {
        self.all_reduce_in_place(buffer, op).map(drop)
    }

    fn reduce<T: Element>(
        &self,
        send: &CudaSlice<T>,
        recv: Option<&mut CudaSlice<T>>,
        op: &ReduceOp,
        root: usize,
    ) -> Result<()> {
        self.reduce(send, recv, op, rank_code(root)).map(drop)
    }

    fn reduce_in_place<T: Element>(
        &self,
        buffer: &mut CudaSlice<T>,
        op: &ReduceOp,
        root: usize,
    ) -> Result<()> {
        self.reduce_in_place(buffer, op, rank_code(root)).map(drop)
    }

    fn all_gather<T: Element>(&self, send: &CudaSlice<T>, recv: &mut CudaSlice<T>) -> Result<()> {
        self.all_gather(send, recv).map(drop)
    }

    fn reduce_scatter<T: Element>(
        &self,
        send: &CudaSlice<T>,
        recv: &mut CudaSlice<T>,
        op: &ReduceOp,
    ) -> Result<()> {
        self.reduce_scatter(send, recv, op).map(drop)
    }

    fn broadcast<T: Element>(
        &self,
        send: Option<&CudaSlice<T>>,
        recv: &mut CudaSlice<T>,
        root: usize,
    ) -> Result<()> {
        self.broadcast(send, recv, rank_code(root)).map(drop)
    }

    fn broadcast_in_place<T: Element>(&self, buffer: &mut CudaSlice<T>, root: usize) -> Result<()> {
        self.broadcast_in_place(buffer, rank_code(root)).map(drop)
    }

    fn all_to_all<T: Element>(&self, send: &CudaSlice<T>, recv: &mut CudaSlice<T>) -> Result<()> {
        self.all_to_all(send, recv).map(drop)
    }

    fn all_to_all_v<T: Element>(
        &self,
        send: &CudaSlice<T>,
        send_counts: &[usize],
        recv: &mut CudaSlice<T>,
        recv_counts: &[usize],
    ) -> Result<()> {
        self.all_to_all_v(send, send_counts, recv, recv_counts).map(drop)
    }

    fn send<T: Element>(&self, data: &CudaSlice<T>, peer: usize) -> Result<()> {
        self.send(data, rank_code(peer))
    }

    fn recv<T: Element>(&self, buffer: &mut CudaSlice<T>, peer: usize) -> Result<()> {
        self.recv(buffer, rank_code(peer)).map(drop)
    }

    /// Returns when every rank has made the call, so it waits for the stream.
    fn barrier(&self) -> Result<()> {
        use cudarc::driver::DevicePtrMut;
        let stream = &self.shared.stream;
        let failed = |error| error_of("waiting at a barrier", error);
        let mut token = stream.alloc_zeros::<u8>(1).map_err(failed)?;
        {
            let len = token.len();
            let (address, _written) = token.device_ptr_mut(stream);
            self.enqueue_barrier(Memory { address, len })?;
        }
        stream.synchronize().map_err(failed)
    }

    fn group<'g, R>(&'g self, calls: impl FnOnce(&mut NcclGroup<'g>) -> Result<R>) -> Result<R> {
        self.group(calls)
    }

    fn all_reduce_async<T: Element>(
        &self,
        send: NcclBuffer<T>,
        recv: NcclBuffer<T>,
        op: &ReduceOp,
    ) -> Pending<(NcclBuffer<T>, NcclBuffer<T>)> {
        self.later((send, recv), |comm, (send, recv)| comm.all_reduce(&**send, &mut **recv, op))
    }

    fn all_reduce_in_place_async<T: Element>(
        &self,
        buffer: NcclBuffer<T>,
        op: &ReduceOp,
    ) -> Pending<NcclBuffer<T>> {
        self.later(buffer, |comm, buffer| comm.all_reduce_in_place(&mut **buffer, op))
    }

    fn all_gather_async<T: Element>(
        &self,
        send: NcclBuffer<T>,
        recv: NcclBuffer<T>,
    ) -> Pending<(NcclBuffer<T>, NcclBuffer<T>)> {
        self.later((send, recv), |comm, (send, recv)| comm.all_gather(&**send, &mut **recv))
    }

    fn reduce_scatter_async<T: Element>(
        &self,
        send: NcclBuffer<T>,
        recv: NcclBuffer<T>,
        op: &ReduceOp,
    ) -> Pending<(NcclBuffer<T>, NcclBuffer<T>)> {
        self.later((send, recv), |comm, (send, recv)| comm.reduce_scatter(&**send, &mut **recv, op))
    }

    fn broadcast_async<T: Element>(
        &self,
        send: Option<NcclBuffer<T>>,
        recv: NcclBuffer<T>,
        root: usize,
    ) -> Pending<(Option<NcclBuffer<T>>, NcclBuffer<T>)> {
        self.later((send, recv), |comm, (send, recv)| {
            comm.broadcast(send.as_deref(), &mut **recv, rank_code(root))
        })
    }

    fn broadcast_in_place_async<T: Element>(
        &self,
        buffer: NcclBuffer<T>,
        root: usize,
    ) -> Pending<NcclBuffer<T>> {
        self.later(buffer, |comm, buffer| comm.broadcast_in_place(&mut **buffer, rank_code(root)))
    }

    fn all_to_all_async<T: Element>(
        &self,
        send: NcclBuffer<T>,
        recv: NcclBuffer<T>,
    ) -> Pending<(NcclBuffer<T>, NcclBuffer<T>)> {
        self.later((send, recv), |comm, (send, recv)| comm.all_to_all(&**send, &mut **recv))
    }

    fn all_to_all_v_async<T: Element>(
        &self,
        send: NcclBuffer<T>,
        send_counts: &[usize],
        recv: NcclBuffer<T>,
        recv_counts: &[usize],
    ) -> Pending<(NcclBuffer<T>, NcclBuffer<T>)> {
        self.later((send, recv), |comm, (send, recv)| {
            comm.all_to_all_v(&**send, send_counts, &mut **recv, recv_counts)
        })
    }

    fn send_async<T: Element>(&self, data: NcclBuffer<T>, peer: usize) -> Pending<NcclBuffer<T>> {
        self.later(data, |comm, data| {
            comm.send(&**data, rank_code(peer)).map(|()| super::NcclStatus::Success)
        })
    }

    fn recv_async<T: Element>(&self, buffer: NcclBuffer<T>, peer: usize) -> Pending<NcclBuffer<T>> {
        self.later(buffer, |comm, buffer| comm.recv(&mut **buffer, rank_code(peer)))
    }

    fn is_one_process(&self) -> bool {
        here::are_all(self.name(), self.world_size())
    }

    fn send_bytes(&self, message: &[u8], peer: usize, deadline: Instant) -> Result<()> {
        self.send_message(message, peer, deadline)
    }

    fn receive_bytes(&self, peer: usize, deadline: Instant) -> Result<Vec<u8>> {
        self.receive_message(peer, deadline)
    }
}

impl<'g> Group<'g, NcclComm> for NcclGroup<'g> {
    fn all_reduce<T: Element>(
        &mut self,
        send: &'g CudaSlice<T>,
        recv: &'g mut CudaSlice<T>,
        op: &ReduceOp,
    ) -> Result<()> {
        self.all_reduce(send.as_view(), recv.as_view_mut(), op).map(drop)
    }

    fn all_reduce_in_place<T: Element>(&mut self, buffer: &'g mut CudaSlice<T>, op: &ReduceOp) -> Result<()> {
        self.all_reduce_in_place(buffer.as_view_mut(), op).map(drop)
    }

    fn reduce<T: Element>(
        &mut self,
        send: &'g CudaSlice<T>,
        recv: Option<&'g mut CudaSlice<T>>,
        op: &ReduceOp,
        root: usize,
    ) -> Result<()> {
        let recv = recv.map(|buffer| buffer.as_view_mut());
        self.reduce(send.as_view(), recv, op, rank_code(root)).map(drop)
    }

    fn reduce_in_place<T: Element>(
        &mut self,
        buffer: &'g mut CudaSlice<T>,
        op: &ReduceOp,
        root: usize,
    ) -> Result<()> {
        self.reduce_in_place(buffer.as_view_mut(), op, rank_code(root)).map(drop)
    }

    fn all_gather<T: Element>(&mut self, send: &'g CudaSlice<T>, recv: &'g mut CudaSlice<T>) -> Result<()> {
        self.all_gather(send.as_view(), recv.as_view_mut()).map(drop)
    }

    fn reduce_scatter<T: Element>(
        &mut self,
        send: &'g CudaSlice<T>,
        recv: &'g mut CudaSlice<T>,
        op: &ReduceOp,
    ) -> Result<()> {
        self.reduce_scatter(send.as_view(), recv.as_view_mut(), op).map(drop)
    }

    fn broadcast<T: Element>(
        &mut self,
        send: Option<&'g CudaSlice<T>>,
        recv: &'g mut CudaSlice<T>,
        root: usize,
    ) -> Result<()> {
        let send = send.map(|buffer| buffer.as_view());
        self.broadcast(send, recv.as_view_mut(), rank_code(root)).map(drop)
    }

    fn broadcast_in_place<T: Element>(&mut self, buffer: &'g mut CudaSlice<T>, root: usize) -> Result<()> {
        self.broadcast_in_place(buffer.as_view_mut(), rank_code(root)).map(drop)
    }

    fn all_to_all<T: Element>(&mut self, send: &'g CudaSlice<T>, recv: &'g mut CudaSlice<T>) -> Result<()> {
        self.all_to_all(send.as_view(), recv.as_view_mut()).map(drop)
    }

    fn all_to_all_v<T: Element>(
        &mut self,
        send: &'g CudaSlice<T>,
        send_counts: &[usize],
        recv: &'g mut CudaSlice<T>,
        recv_counts: &[usize],
    ) -> Result<()> {
        self.all_to_all_v(send.as_view(), send_counts, recv.as_view_mut(), recv_counts).map(drop)
    }

    fn send<T: Element>(&mut self, data: &'g CudaSlice<T>, peer: usize) -> Result<()> {
        self.send(data.as_view(), rank_code(peer))
    }

    fn recv<T: Element>(&mut self, buffer: &'g mut CudaSlice<T>, peer: usize) -> Result<()> {
        self.recv(buffer.as_view_mut(), rank_code(peer)).map(drop)
    }
}
