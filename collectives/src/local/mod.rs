//! Ranks as threads of one process.

mod kernel;
mod posted;
mod round;
mod run;
mod split;

use std::fmt;
use std::sync::Arc;

use crate::communicator::{Communicator, Group};
use crate::host::call::Call;
use crate::host::key::{Key, Kind, Members};
use crate::host::{Backend, Departure, GroupedCall, HostRank, Thread};
use crate::{Element, Pending, ReduceOp, Result};
use posted::Posted;
use round::Core;

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
/// - Ranks that disagree on a call, or a rank with wrong arguments: [`Error::Mismatch`](crate::Error::Mismatch) or
///   [`Error::InvalidArgument`](crate::Error::InvalidArgument) on every rank of the call. Buffers are untouched, and the communicator
///   **stays usable**.
/// - A rank that does not come within the timeout (60 s, see [`LocalBuilder::timeout`]), whose thread
///   panicked, or that dropped its communicator: [`Error::Timeout`](crate::Error::Timeout) or [`Error::RankLost`](crate::Error::RankLost) on every rank
///   that waits in any call of this communicator. The communicator **is broken**: every later call of any
///   rank returns [`Error::Broken`](crate::Error::Broken) at once.
///
/// # Dropping
///
/// Dropping a communicator never waits for other ranks. Non-blocking calls that are still under way are
/// completed in the background, and only then does the rank count as gone. If the thread is panicking,
/// they fail at once instead.
pub struct LocalComm {
    host: HostRank<Core>,
}

host_communicator!(LocalComm, LocalGroup, {
    fn is_one_process(&self) -> bool {
        true
    }
});

impl LocalComm {
    fn new(core: Arc<Core>, rank: usize) -> Self {
        let global = core.global(rank);
        let stream = match &*core.members.name {
            run::WORLD => format!("comm-{global}"),
            name => format!("comm-{global}:{name}"),
        };
        Self { host: HostRank::new(core, rank, stream, true) }
    }

    /// This rank's number in the world, however its number in this communicator.
    pub fn global_rank(&self) -> u32 {
        self.host.global()
    }

    /// Global ranks of the members, in this communicator's order.
    pub fn global_ranks(&self) -> &[u32] {
        &self.host.backend.members.ranks
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
        let (count, ticket) = self.host.issue_split();
        let _turn = ticket.turn();
        let member = self.host.backend.split(self.host.rank, count, color, key)?;
        Ok(Self::new(member.core, member.rank))
    }
}

impl Backend for Core {
    const DROP_WAITS: bool = false;

    fn members(&self) -> &Members {
        &self.members
    }

    fn carry_out(
        &self,
        rank: usize,
        key: Key,
        call: Call<'_>,
        _: Thread,
        joined: impl FnOnce(),
    ) -> Result<()> {
        let posted = self.post(rank, key, call);
        joined();
        posted?.wait()
    }

    /// Starts all calls, then waits for them: first for those that nobody is missing from, since other
    /// ranks may be waiting for this one's share of the work.
    fn carry_out_group(&self, rank: usize, calls: Vec<GroupedCall<'_>>) -> Result<()> {
        let mut results: Vec<Result<()>> = Vec::with_capacity(calls.len());
        let mut open: Vec<(tracing::Span, Posted<'_, '_>)> = Vec::with_capacity(calls.len());
        for GroupedCall { key, call, span } in calls {
            match self.post(rank, key, call) {
                Ok(posted) => open.push((span, posted)),
                Err(error) => results.push(Err(error)),
            }
        }
        let (ready, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, posted)| posted.is_ready());
        for (span, posted) in ready.into_iter().chain(rest) {
            results.push(span.in_scope(|| posted.wait()));
        }
        results.into_iter().collect()
    }

    fn leave(&self, rank: usize, how: Departure) {
        Core::leave(self, rank, how);
    }
}

impl fmt::Debug for LocalComm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalComm")
            .field("name", &self.host.backend.members.name)
            .field("rank", &self.host.rank)
            .field("size", &self.host.size())
            .finish_non_exhaustive()
    }
}
