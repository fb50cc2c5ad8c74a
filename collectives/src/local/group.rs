//! Calls that are started together.

use tracing::Span;

use super::call::Call;
use super::posted::Posted;
use super::stream::Kind;
use super::{LocalComm, Traced};
use crate::communicator::Group;
use crate::{Element, ReduceOp, Result};

/// The calls of a [`Communicator::group`](crate::Communicator::group) on a [`LocalComm`].
pub struct LocalGroup<'g> {
    comm: &'g LocalComm,
    calls: Vec<(Kind, Call<'g>)>,
}

impl<'g> LocalGroup<'g> {
    pub(super) fn new(comm: &'g LocalComm) -> Self {
        Self { comm, calls: Vec::new() }
    }

    fn add(&mut self, kind: Kind, call: Call<'g>) -> Result<()> {
        self.comm.check_peer(kind, true)?;
        self.calls.push((kind, call));
        Ok(())
    }

    /// Starts all calls, then waits for them: first for those that nobody is missing from, since other
    /// ranks may be waiting for this one's share of the work.
    pub(super) fn run(self) -> Result<()> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let comm = self.comm;
        let mut issue = comm.stream.issue();
        let keys: Vec<_> = self.calls.iter().map(|(kind, _)| issue.key(*kind)).collect();
        let ticket = issue.ticket();
        let spans: Vec<Span> = keys
            .iter()
            .zip(&self.calls)
            .map(|(key, (kind, call))| {
                comm.span(&Traced { key: *key, kind: *kind, grouped: true }, call, None)
            })
            .collect();
        let _turn = ticket.turn();
        let mut results: Vec<Result<()>> = Vec::with_capacity(keys.len());
        let mut open: Vec<(usize, Posted<'_, 'g>)> = Vec::with_capacity(keys.len());
        for (index, (key, (_, call))) in keys.into_iter().zip(self.calls).enumerate() {
            match comm.core.post(comm.rank, key, call) {
                Ok(posted) => open.push((index, posted)),
                Err(error) => results.push(Err(error)),
            }
        }
        let (ready, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, posted)| posted.is_ready());
        for (index, posted) in ready.into_iter().chain(rest) {
            results.push(match spans.get(index) {
                Some(span) => span.in_scope(|| posted.wait()),
                None => posted.wait(),
            });
        }
        results.into_iter().collect()
    }
}

impl<'g> Group<'g, LocalComm> for LocalGroup<'g> {
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
