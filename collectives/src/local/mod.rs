//! Ranks as threads of one process.

mod call;
mod calls;
mod check;
mod group;
mod kernel;
mod posted;
mod round;
mod run;
mod split;
mod stream;

use std::fmt;
use std::sync::{Arc, mpsc};

use commtrace_instrument::{Communicator as Registration, rank_scope, register_communicator};
use tracing::Span;

use crate::pending::{Pending, Slot};
use crate::{Error, Op, Result, trace};
use call::Call;
use round::{Core, Key};
use stream::{Kind, Stream};

pub use group::LocalGroup;
pub use run::LocalBuilder;

/// A communicator whose ranks are threads of one process: real arithmetic in shared memory.
///
/// [`run`](Self::run) starts the ranks; [`world`](Self::world) makes the communicators for threads
/// of your own. A result is the same on every rank, bit for bit, and on every run with the same number of
/// ranks: values are combined in rank order, whichever thread does it.
///
/// ```
/// use commtrace_collectives::{Communicator, LocalComm, ReduceOp};
///
/// let sums = LocalComm::run(4, |comm| {
///     let mut gradient = vec![comm.rank() as f32; 3];
///     comm.all_reduce_in_place(&mut gradient, &ReduceOp::Sum)?;
///     Ok::<_, commtrace_collectives::Error>(gradient)
/// });
/// assert!(sums.iter().all(|sum| *sum == Ok(vec![6.0; 3])));
/// ```
///
/// # Order
///
/// The calls that a rank makes on one communicator take effect in the order in which they were made, as on a
/// CUDA stream: a blocking call waits for this rank's earlier non-blocking ones. Non-blocking calls run on
/// a communication thread of their own, started with the first of them, and return as soon as that thread
/// has joined the call, or at once if it is still busy with earlier ones. (Should the system refuse a thread,
/// they are carried out before they return.) The calls of different communicators are independent. A send
/// waits for its receive also on the communication thread, so two ranks that send to each other use a
/// [`group`](crate::Communicator::group).
///
/// # Errors
///
/// No call waits forever:
///
/// - Ranks that disagree on a call, or a rank with wrong arguments: [`Error::Mismatch`] or
///   [`Error::InvalidArgument`] on every rank of the call. Buffers are untouched, and the communicator
///   **stays usable**.
/// - A rank that does not come within the timeout (60 s, see [`LocalBuilder::timeout`]), whose thread
///   panicked, or that dropped its communicator: [`Error::Timeout`] or [`Error::RankLost`] on every rank
///   that waits in any call of this communicator. The communicator **is broken**: every later call of any
///   rank returns [`Error::Broken`] at once.
///
/// # Dropping
///
/// Dropping a communicator never waits for other ranks. Non-blocking calls that are still under way are
/// completed in the background, and only then does the rank count as gone. If the thread is panicking,
/// they fail at once instead.
pub struct LocalComm {
    core: Arc<Core>,
    rank: usize,
    stream: Arc<Stream>,
}

/// What tracing needs to know of a call beside its arguments.
struct Traced {
    key: Key,
    kind: Kind,
    grouped: bool,
}

impl LocalComm {
    fn new(core: Arc<Core>, rank: usize) -> Self {
        let global = core.global(rank);
        let stream = match &*core.name {
            run::WORLD => format!("comm-{global}"),
            name => format!("comm-{global}:{name}"),
        };
        let _scope = rank_scope(global);
        register_communicator(&Registration {
            name: &core.name,
            ranks: &core.ranks,
            comm_rank: u32::try_from(rank).unwrap_or(u32::MAX),
        });
        let stream = Stream::new(stream, rank, core.size());
        Self { core, rank, stream }
    }

    /// This rank's number in the world, however its number in this communicator.
    pub fn global_rank(&self) -> u32 {
        self.core.global(self.rank)
    }

    /// Global ranks of the members, in this communicator's order.
    pub fn global_ranks(&self) -> &[u32] {
        &self.core.ranks
    }

    /// Divides the ranks into new communicators: those that give the same `color` form one, in the
    /// order of `key` (ties by rank). A collective call, which has no span and consumes no `seq`.
    ///
    /// The new communicator is named after this one and the color, `world/1`; from the second split on
    /// the number of earlier splits is appended, `world/1.1`.
    ///
    /// ```
    /// use commtrace_collectives::{Communicator, LocalComm};
    ///
    /// let names = LocalComm::run(4, |world| {
    ///     let rank = world.rank() as u32;
    ///     world.split(rank % 2, rank).map(|pair| (pair.name().to_owned(), pair.global_ranks().to_vec()))
    /// });
    /// assert_eq!(names[1], Ok(("world/1".to_owned(), vec![1, 3])));
    /// ```
    ///
    /// # Errors
    ///
    /// As any collective: if a rank is late, gone, or the communicator is broken.
    pub fn split(&self, color: u32, key: u32) -> Result<Self> {
        let mut issue = self.stream.issue();
        let round = issue.key(Kind::Split);
        let _turn = issue.ticket().turn();
        let member = match round {
            Key::Split { count } => self.core.split(self.rank, count, color, key)?,
            // `Kind::Split` gives no other key.
            Key::Collective { .. } | Key::Message { .. } => return Err(self.no_peer(self.rank)),
        };
        Ok(Self::new(member.core, member.rank))
    }

    /// Carries out `call` on this thread, when its turn has come.
    fn block(&self, kind: Kind, call: Call<'_>) -> Result<()> {
        self.check_peer(kind, false)?;
        let mut issue = self.stream.issue();
        let key = issue.key(kind);
        let ticket = issue.ticket();
        let span = self.span(&Traced { key, kind, grouped: false }, &call, None);
        let _turn = ticket.turn();
        span.in_scope(|| self.core.post(self.rank, key, call)?.wait())
    }

    /// Leaves the call that `call` makes of `buffers` to the communication thread.
    fn spawn<B: Send + 'static>(
        &self,
        kind: Kind,
        mut buffers: B,
        call: impl for<'b> Fn(&'b mut B) -> Call<'b> + Send + 'static,
    ) -> Pending<B> {
        let slot = Slot::new();
        let pending = Pending::new(Box::new(Arc::clone(&slot)));
        if let Err(error) = self.check_peer(kind, false) {
            slot.fill(Err(error));
            return pending;
        }
        let threaded = self.stream.start(&self.core);
        let mut issue = self.stream.issue();
        let key = issue.key(kind);
        let ticket = issue.ticket();
        let traced = Traced { key, kind, grouped: false };
        let stream = threaded.then_some(self.stream.name.as_str());
        let span = self.span(&traced, &call(&mut buffers), stream);
        let mut fill = FillSlot { slot, core: Arc::clone(&self.core), filled: false };
        let rank = self.rank;
        // Nothing is sent: it ends when this rank has joined the call, or never will.
        let (joining, joined) = mpsc::channel::<()>();
        let job = move || {
            let core = &*fill.core;
            let result = span.in_scope(|| {
                let posted = core.post(rank, key, call(&mut buffers));
                drop(joining);
                posted?.wait()
            });
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

    fn span(&self, traced: &Traced, call: &Call<'_>, stream: Option<&str>) -> Span {
        // The caller's thread need not have a scope of its own.
        let _scope = rank_scope(self.global_rank());
        let number = |rank: usize| u32::try_from(rank).unwrap_or(u32::MAX);
        trace::span(&trace::Call {
            op: call.raw.op,
            bytes: call.raw.bytes(self.core.size()),
            dtype: call.raw.dtype,
            comm: &self.core.name,
            seq: match traced.key {
                Key::Collective { seq } => Some(seq),
                Key::Message { .. } | Key::Split { .. } => None,
            },
            rank: self.global_rank(),
            comm_rank: number(self.rank),
            comm_size: number(self.core.size()),
            peer: match traced.kind {
                Kind::SendTo(peer) | Kind::RecvFrom(peer) => Some(peer as u64),
                Kind::Collective | Kind::Split => call.raw.root.map(|root| root as u64),
            },
            stream,
            grouped: traced.grouped,
        })
    }

    /// Refuses a point-to-point call that can meet no other.
    fn check_peer(&self, kind: Kind, in_group: bool) -> Result<()> {
        let (Kind::SendTo(peer) | Kind::RecvFrom(peer)) = kind else { return Ok(()) };
        if peer >= self.core.size() {
            return Err(self.no_peer(peer));
        }
        if peer == self.rank && !in_group {
            let problem = "a rank sends to itself only within a group".to_owned();
            return Err(self.invalid_message(peer, problem));
        }
        Ok(())
    }

    fn no_peer(&self, peer: usize) -> Error {
        let size = self.core.size();
        self.invalid_message(peer, format!("peer {peer} is not a rank of a communicator of {size}"))
    }

    fn invalid_message(&self, peer: usize, problem: String) -> Error {
        let key = Key::Message { source: self.rank, destination: peer, count: 0 };
        let call = self.core.call_id(key, Op::Send);
        Error::InvalidArgument { call, problems: vec![(self.global_rank(), problem)] }
    }
}

impl Drop for LocalComm {
    fn drop(&mut self) {
        self.stream.close(&self.core);
    }
}

impl fmt::Debug for LocalComm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalComm")
            .field("name", &self.core.name)
            .field("rank", &self.rank)
            .field("size", &self.core.size())
            .finish_non_exhaustive()
    }
}

/// Fills a slot also when the job unwinds.
struct FillSlot<B> {
    slot: Arc<Slot<B>>,
    core: Arc<Core>,
    filled: bool,
}

impl<B> FillSlot<B> {
    fn fill(&mut self, result: Result<B>) {
        self.filled = true;
        self.slot.fill(result);
    }
}

impl<B> Drop for FillSlot<B> {
    fn drop(&mut self) {
        if !self.filled {
            self.slot.fill(Err(Error::StreamPanicked { comm: Arc::clone(&self.core.name) }));
        }
    }
}
