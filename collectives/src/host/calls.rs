//! The calls of [`Communicator`](crate::Communicator), each turned into a
//! [`Call`](super::call::Call), for any communicator over host memory.

use crate::{Element, Error, Result};

/// Implements the communicator and its group for a type with a field `host`, a
/// [`HostRank`](super::HostRank). `more` are methods of the communicator with
/// a default.
macro_rules! host_communicator {
    ($comm:ident, $group:ident, { $($more:tt)* }) => {
        impl Communicator for $comm {
            type Buffer<T: Element> = [T];
            type Owned<T: Element> = Vec<T>;
            type Group<'g> = $group<'g>;

            fn rank(&self) -> usize {
                self.host.rank
            }

            fn size(&self) -> usize {
                self.host.size()
            }

            fn name(&self) -> &str {
                self.host.name()
            }

            fn alloc_zeros<T: Element>(&self, len: usize) -> Result<Vec<T>> {
                Ok(vec![T::default(); len])
            }

            fn alloc_from<T: Element>(&self, data: &[T]) -> Result<Vec<T>> {
                Ok(data.to_vec())
            }

            fn write<T: Element>(&self, data: &[T], buffer: &mut [T]) -> Result<()> {
                $crate::host::copy(data, buffer)
            }

            fn read<T: Element>(&self, buffer: &[T], data: &mut [T]) -> Result<()> {
                $crate::host::copy(buffer, data)
            }

            fn to_vec<T: Element>(&self, buffer: &[T]) -> Result<Vec<T>> {
                Ok(buffer.to_vec())
            }

            fn all_reduce<T: Element>(&self, send: &[T], recv: &mut [T], op: &ReduceOp) -> Result<()> {
                self.host.block(Kind::Collective, Call::all_reduce(send, recv, op))
            }

            fn all_reduce_in_place<T: Element>(&self, buffer: &mut [T], op: &ReduceOp) -> Result<()> {
                self.host.block(Kind::Collective, Call::all_reduce_in_place(buffer, op))
            }

            fn reduce<T: Element>(
                &self,
                send: &[T],
                recv: Option<&mut [T]>,
                op: &ReduceOp,
                root: usize,
            ) -> Result<()> {
                self.host.block(Kind::Collective, Call::reduce(send, recv, op, root))
            }

            fn reduce_in_place<T: Element>(&self, buffer: &mut [T], op: &ReduceOp, root: usize) -> Result<()> {
                self.host.block(Kind::Collective, Call::reduce_in_place(buffer, op, root))
            }

            fn all_gather<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
                self.host.block(Kind::Collective, Call::all_gather(send, recv))
            }

            fn reduce_scatter<T: Element>(&self, send: &[T], recv: &mut [T], op: &ReduceOp) -> Result<()> {
                self.host.block(Kind::Collective, Call::reduce_scatter(send, recv, op))
            }

            fn broadcast<T: Element>(&self, send: Option<&[T]>, recv: &mut [T], root: usize) -> Result<()> {
                self.host.block(Kind::Collective, Call::broadcast(send, recv, root))
            }

            fn broadcast_in_place<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<()> {
                self.host.block(Kind::Collective, Call::broadcast_in_place(buffer, root))
            }

            fn all_to_all<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
                self.host.block(Kind::Collective, Call::all_to_all(send, recv))
            }

            fn all_to_all_v<T: Element>(
                &self,
                send: &[T],
                send_counts: &[usize],
                recv: &mut [T],
                recv_counts: &[usize],
            ) -> Result<()> {
                self.host.block(Kind::Collective, Call::all_to_all_v(send, send_counts, recv, recv_counts))
            }

            fn send<T: Element>(&self, data: &[T], peer: usize) -> Result<()> {
                self.host.block(Kind::SendTo(peer), Call::send(data))
            }

            fn recv<T: Element>(&self, buffer: &mut [T], peer: usize) -> Result<()> {
                self.host.block(Kind::RecvFrom(peer), Call::recv(buffer))
            }

            fn barrier(&self) -> Result<()> {
                self.host.block(Kind::Collective, Call::barrier())
            }

            fn group<'g, R>(&'g self, calls: impl FnOnce(&mut $group<'g>) -> Result<R>) -> Result<R> {
                let mut group = $group::new(self);
                let value = calls(&mut group);
                let done = group.run();
                let value = value?;
                done.map(|()| value)
            }

            fn all_reduce_async<T: Element>(
                &self,
                send: Vec<T>,
                recv: Vec<T>,
                op: &ReduceOp,
            ) -> Pending<(Vec<T>, Vec<T>)> {
                let op = *op;
                self.host.spawn(Kind::Collective, (send, recv), move |(send, recv)| Call::all_reduce(send, recv, &op))
            }

            fn all_reduce_in_place_async<T: Element>(&self, buffer: Vec<T>, op: &ReduceOp) -> Pending<Vec<T>> {
                let op = *op;
                self.host.spawn(Kind::Collective, buffer, move |buffer| Call::all_reduce_in_place(buffer, &op))
            }

            fn all_gather_async<T: Element>(&self, send: Vec<T>, recv: Vec<T>) -> Pending<(Vec<T>, Vec<T>)> {
                self.host.spawn(Kind::Collective, (send, recv), |(send, recv)| Call::all_gather(send, recv))
            }

            fn reduce_scatter_async<T: Element>(
                &self,
                send: Vec<T>,
                recv: Vec<T>,
                op: &ReduceOp,
            ) -> Pending<(Vec<T>, Vec<T>)> {
                let op = *op;
                self.host.spawn(Kind::Collective, (send, recv), move |(send, recv)| Call::reduce_scatter(send, recv, &op))
            }

            fn broadcast_async<T: Element>(
                &self,
                send: Option<Vec<T>>,
                recv: Vec<T>,
                root: usize,
            ) -> Pending<(Option<Vec<T>>, Vec<T>)> {
                self.host.spawn(Kind::Collective, (send, recv), move |(send, recv)| {
                    Call::broadcast(send.as_deref(), recv, root)
                })
            }

            fn broadcast_in_place_async<T: Element>(&self, buffer: Vec<T>, root: usize) -> Pending<Vec<T>> {
                self.host.spawn(Kind::Collective, buffer, move |buffer| Call::broadcast_in_place(buffer, root))
            }

            fn all_to_all_async<T: Element>(&self, send: Vec<T>, recv: Vec<T>) -> Pending<(Vec<T>, Vec<T>)> {
                self.host.spawn(Kind::Collective, (send, recv), |(send, recv)| Call::all_to_all(send, recv))
            }

            fn all_to_all_v_async<T: Element>(
                &self,
                send: Vec<T>,
                send_counts: &[usize],
                recv: Vec<T>,
                recv_counts: &[usize],
            ) -> Pending<(Vec<T>, Vec<T>)> {
                let (send_counts, recv_counts) = (send_counts.to_vec(), recv_counts.to_vec());
                self.host.spawn(Kind::Collective, (send, recv), move |(send, recv)| {
                    Call::all_to_all_v(send, &send_counts, recv, &recv_counts)
                })
            }

            fn send_async<T: Element>(&self, data: Vec<T>, peer: usize) -> Pending<Vec<T>> {
                self.host.spawn(Kind::SendTo(peer), data, |data| Call::send(data))
            }

            fn recv_async<T: Element>(&self, buffer: Vec<T>, peer: usize) -> Pending<Vec<T>> {
                self.host.spawn(Kind::RecvFrom(peer), buffer, |buffer| Call::recv(buffer))
            }

            $($more)*
        }

        #[doc = concat!(
            "The calls of a [`Communicator::group`](crate::Communicator::group) on a [`", stringify!($comm), "`]."
        )]
        pub struct $group<'g> {
            comm: &'g $comm,
            calls: Vec<(Kind, Call<'g>)>,
        }

        impl<'g> $group<'g> {
            fn new(comm: &'g $comm) -> Self {
                Self { comm, calls: Vec::new() }
            }

            fn add(&mut self, kind: Kind, call: Call<'g>) -> Result<()> {
                self.comm.host.check_peer(kind, true)?;
                self.calls.push((kind, call));
                Ok(())
            }

            fn run(self) -> Result<()> {
                self.comm.host.group(self.calls)
            }
        }

        impl<'g> Group<'g, $comm> for $group<'g> {
            fn all_reduce<T: Element>(&mut self, send: &'g [T], recv: &'g mut [T], op: &ReduceOp) -> Result<()> {
                self.add(Kind::Collective, Call::all_reduce(send, recv, op))
            }

            fn all_reduce_in_place<T: Element>(&mut self, buffer: &'g mut [T], op: &ReduceOp) -> Result<()> {
                self.add(Kind::Collective, Call::all_reduce_in_place(buffer, op))
            }

            fn reduce<T: Element>(
                &mut self,
                send: &'g [T],
                recv: Option<&'g mut [T]>,
                op: &ReduceOp,
                root: usize,
            ) -> Result<()> {
                self.add(Kind::Collective, Call::reduce(send, recv, op, root))
            }

            fn reduce_in_place<T: Element>(&mut self, buffer: &'g mut [T], op: &ReduceOp, root: usize) -> Result<()> {
                self.add(Kind::Collective, Call::reduce_in_place(buffer, op, root))
            }

            fn all_gather<T: Element>(&mut self, send: &'g [T], recv: &'g mut [T]) -> Result<()> {
                self.add(Kind::Collective, Call::all_gather(send, recv))
            }

            fn reduce_scatter<T: Element>(&mut self, send: &'g [T], recv: &'g mut [T], op: &ReduceOp) -> Result<()> {
                self.add(Kind::Collective, Call::reduce_scatter(send, recv, op))
            }

            fn broadcast<T: Element>(&mut self, send: Option<&'g [T]>, recv: &'g mut [T], root: usize) -> Result<()> {
                self.add(Kind::Collective, Call::broadcast(send, recv, root))
            }

            fn broadcast_in_place<T: Element>(&mut self, buffer: &'g mut [T], root: usize) -> Result<()> {
                self.add(Kind::Collective, Call::broadcast_in_place(buffer, root))
            }

            fn all_to_all<T: Element>(&mut self, send: &'g [T], recv: &'g mut [T]) -> Result<()> {
                self.add(Kind::Collective, Call::all_to_all(send, recv))
            }

            fn all_to_all_v<T: Element>(
                &mut self,
                send: &'g [T],
                send_counts: &[usize],
                recv: &'g mut [T],
                recv_counts: &[usize],
            ) -> Result<()> {
                self.add(Kind::Collective, Call::all_to_all_v(send, send_counts, recv, recv_counts))
            }

            fn send<T: Element>(&mut self, data: &'g [T], peer: usize) -> Result<()> {
                self.add(Kind::SendTo(peer), Call::send(data))
            }

            fn recv<T: Element>(&mut self, buffer: &'g mut [T], peer: usize) -> Result<()> {
                self.add(Kind::RecvFrom(peer), Call::recv(buffer))
            }
        }
    };
}

pub(crate) fn copy<T: Element>(from: &[T], to: &mut [T]) -> Result<()> {
    if from.len() != to.len() {
        return Err(Error::CopyLength { from: from.len(), to: to.len() });
    }
    to.copy_from_slice(from);
    Ok(())
}
