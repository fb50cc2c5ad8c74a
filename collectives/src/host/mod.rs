//! What communicators over host memory have in common: the order of a rank's calls, the communication
//! thread, the spans, and the checks. A [`Backend`] carries the calls out.

pub(crate) mod call;
#[macro_use]
mod calls;
pub(crate) mod check;
pub(crate) mod key;
mod stream;

use std::sync::{Arc, mpsc};

use commtrace_instrument::{Communicator as Registration, SpanStream, rank_scope, register_communicator};
use tracing::Span;

use crate::pending::{Pending, Slot};
use crate::{DType, Error, Op, Result, trace};
use call::Call;
pub(crate) use calls::copy;
use key::{Key, Kind, Members};
use stream::{Stream, Ticket};

/// How a rank left its communicator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Departure {
    Dropped,
    Panicked,
}

/// Which thread of the application carries a call out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Thread {
    /// The one that made the call: it has nothing else to do.
    Caller,
    /// That of the non-blocking calls, beside threads that compute.
    Communication,
}

/// Carries out the calls of a communicator whose buffers are slices.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Whether dropping a rank waits for its calls under way.
    const DROP_WAITS: bool;

    /// The communicator's name and members.
    fn members(&self) -> &Members;

    /// Carries out `call` of `rank`, and calls `joined` as soon as the others no longer wait for this rank to
    /// come. On return nothing accesses the call's buffers any more.
    fn carry_out(
        &self,
        rank: usize,
        key: Key,
        call: Call<'_>,
        thread: Thread,
        joined: impl FnOnce(),
    ) -> Result<()>;

    /// Carries out `calls` together. The time of each counts within its span.
    fn carry_out_group(&self, rank: usize, calls: Vec<GroupedCall<'_>>) -> Result<()>;

    /// `rank` will make no further call.
    fn leave(&self, rank: usize, how: Departure);
}

/// A call of a group.
pub(crate) struct GroupedCall<'b> {
    pub(crate) key: Key,
    pub(crate) call: Call<'b>,
    pub(crate) span: Span,
}

/// One rank of a communicator.
pub(crate) struct HostRank<B: Backend> {
    pub(crate) backend: Arc<B>,
    pub(crate) rank: usize,
    /// Whether non-blocking calls may have a thread of their own.
    threaded: bool,
    stream: Arc<Stream>,
}

/// What tracing needs to know of a call beside its arguments.
struct Traced {
    key: Key,
    kind: Kind,
    grouped: bool,
}

impl<B: Backend> HostRank<B> {
    /// The rank numbered `rank`, whose communication thread is named `stream`.
    pub(crate) fn new(backend: Arc<B>, rank: usize, stream: String, threaded: bool) -> Self {
        let members = backend.members();
        let _scope = rank_scope(members.global(rank));
        register_communicator(&Registration {
            name: &members.name,
            ranks: &members.ranks,
            comm_rank: u32::try_from(rank).unwrap_or(u32::MAX),
        });
        let stream = Stream::new(stream, rank, members.size());
        Self { backend, rank, threaded, stream }
    }

    pub(crate) fn global(&self) -> u32 {
        self.backend.members().global(self.rank)
    }

    pub(crate) fn name(&self) -> &str {
        &self.backend.members().name
    }

    pub(crate) fn size(&self) -> usize {
        self.backend.members().size()
    }

    /// What waits for this rank's calls, also after the rank is gone.
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Carries out `call` on this thread, when its turn has come.
    pub(crate) fn block(&self, kind: Kind, call: Call<'_>) -> Result<()> {
        self.check_peer(kind, false)?;
        let mut issue = self.stream.issue();
        let key = issue.key(kind);
        let ticket = issue.ticket();
        let span = self.span(&Traced { key, kind, grouped: false }, &call, None);
        let _turn = ticket.turn();
        span.in_scope(|| self.backend.carry_out(self.rank, key, call, Thread::Caller, || {}))
    }

    /// Leaves the call that `call` makes of `buffers` to the communication thread.
    pub(crate) fn spawn<D: Send + 'static>(
        &self,
        kind: Kind,
        mut buffers: D,
        call: impl for<'b> Fn(&'b mut D) -> Call<'b> + Send + 'static,
    ) -> Pending<D> {
        let slot = Slot::new();
        let pending = Pending::new(Box::new(Arc::clone(&slot)));
        if let Err(error) = self.check_peer(kind, false) {
            slot.fill(Err(error));
            return pending;
        }
        let threaded = self.threaded && self.stream.start(&self.backend);
        let mut issue = self.stream.issue();
        let key = issue.key(kind);
        let ticket = issue.ticket();
        let traced = Traced { key, kind, grouped: false };
        let stream = threaded.then_some(&self.stream.name as &dyn SpanStream);
        let span = self.span(&traced, &call(&mut buffers), stream);
        let mut fill = FillSlot { slot, backend: Arc::clone(&self.backend), filled: false };
        let rank = self.rank;
        let thread = if threaded { Thread::Communication } else { Thread::Caller };
        // Nothing is sent: it ends when this rank has joined the call, or never will.
        let (joining, joined) = mpsc::channel::<()>();
        let job = move || {
            let backend = &*fill.backend;
            let call = call(&mut buffers);
            let result = span.in_scope(|| backend.carry_out(rank, key, call, thread, move || drop(joining)));
            // Whoever waits for the handle finds the span closed.
            drop(span);
            fill.fill(result.map(|()| buffers));
        };
        if threaded {
            let is_next = ticket.hand_over(Box::new(job));
            if is_next {
                // Where cores are few, a busy caller would keep the communication thread from its start
                // for whole time slices, and the other ranks would wait for a call that has been made.
                let _ = joined.recv();
            }
        } else {
            let _turn = ticket.turn();
            job();
        }
        pending
    }

    /// Carries out `calls` together, when their turn has come.
    pub(crate) fn group(&self, calls: Vec<(Kind, Call<'_>)>) -> Result<()> {
        if calls.is_empty() {
            return Ok(());
        }
        let mut issue = self.stream.issue();
        let numbered: Vec<_> = calls.into_iter().map(|(kind, call)| (issue.key(kind), kind, call)).collect();
        let ticket = issue.ticket();
        let grouped: Vec<_> = numbered
            .into_iter()
            .map(|(key, kind, call)| {
                let span = self.span(&Traced { key, kind, grouped: true }, &call, None);
                GroupedCall { key, call, span }
            })
            .collect();
        let _turn = ticket.turn();
        self.backend.carry_out_group(self.rank, grouped)
    }

    /// The number of a new split, and the right to make it.
    pub(crate) fn issue_split(&self) -> (u64, Ticket<'_>) {
        let mut issue = self.stream.issue();
        let count = issue.split();
        (count, issue.ticket())
    }

    fn span(&self, traced: &Traced, call: &Call<'_>, stream: Option<&dyn SpanStream>) -> Span {
        let members = self.backend.members();
        // The caller's thread need not have a scope of its own.
        let _scope = rank_scope(self.global());
        let number = |rank: usize| u32::try_from(rank).unwrap_or(u32::MAX);
        let span = trace::span(&trace::Call {
            op: call.raw.op,
            bytes: call.raw.bytes(members.size()),
            dtype: call.raw.dtype.map(DType::as_str),
            comm: &members.name,
            seq: match traced.key {
                Key::Collective { seq } => Some(seq),
                Key::Message { .. } | Key::Split { .. } => None,
            },
            rank: self.global(),
            comm_rank: number(self.rank),
            comm_size: number(members.size()),
            peer: match traced.kind {
                Kind::SendTo(peer) | Kind::RecvFrom(peer) => Some(peer as u64),
                Kind::Collective => call.raw.root.map(|root| root as u64),
            },
            stream,
            grouped: traced.grouped,
        });
        if let Some(spread) = call.raw.spread(members.size()) {
            trace::record_spread(&span, self.rank, members.size(), &spread);
        }
        span
    }

    /// Refuses a point-to-point call that can meet no other.
    pub(crate) fn check_peer(&self, kind: Kind, in_group: bool) -> Result<()> {
        let (Kind::SendTo(peer) | Kind::RecvFrom(peer)) = kind else { return Ok(()) };
        let size = self.size();
        let problem = if peer >= size {
            format!("peer {peer} is not a rank of a communicator of {size}")
        } else if peer == self.rank && !in_group {
            "a rank sends to itself only within a group".to_owned()
        } else {
            return Ok(());
        };
        let key = Key::Message { source: self.rank, destination: peer, count: 0 };
        let call = self.backend.members().call_id(key, Op::Send);
        Err(Error::InvalidArgument { call, problems: vec![(self.global(), problem)] })
    }
}

impl<B: Backend> Drop for HostRank<B> {
    fn drop(&mut self) {
        self.stream.close(&*self.backend);
    }
}

/// Fills a slot also when the job unwinds.
struct FillSlot<D, B: Backend> {
    slot: Arc<Slot<D>>,
    backend: Arc<B>,
    filled: bool,
}

impl<D, B: Backend> FillSlot<D, B> {
    fn fill(&mut self, result: Result<D>) {
        self.filled = true;
        self.slot.fill(result);
    }
}

impl<D, B: Backend> Drop for FillSlot<D, B> {
    fn drop(&mut self) {
        if !self.filled {
            let comm = Arc::clone(&self.backend.members().name);
            self.slot.fill(Err(Error::StreamPanicked { comm }));
        }
    }
}
