//! Ranks as processes that MPI connects.

#[macro_use]
mod style;

mod agree;
mod builder;
mod bytes;
mod call;
mod core;
mod data;
mod maximum;
mod ops;
mod reductions;
mod request;
mod roll_call;
mod runtime;
mod version;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use self::core::Core;
use crate::communicator::{Communicator, Group};
use crate::host::HostRank;
use crate::host::call::Call;
use crate::host::key::Kind;
use crate::{Element, Pending, ReduceOp, Result};

pub use builder::MpiBuilder;

/// A communicator whose ranks are processes, carried by the MPI library that the program was built with.
///
/// ```no_run
/// use commtrace_collectives::{Communicator, MpiComm, ReduceOp};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let comm = MpiComm::world()?; // mpirun -n 4 program
///     let mut gradient = vec![comm.rank() as f32; 3];
///     comm.all_reduce_in_place(&mut gradient, &ReduceOp::Sum)?;
///     assert_eq!(gradient, [6.0; 3]);
///     Ok(())
/// }
/// ```
///
/// # Starting and ending MPI
///
/// [`world`](Self::world) starts MPI (with `MPI_THREAD_MULTIPLE`) if the application has not; MPI is then
/// ended when the last communicator is dropped, and cannot be started again in this process. An
/// application that starts MPI itself, for instance with the crate `mpi`, also ends it; later calls on a
/// communicator are errors. Records and reports do not need MPI: the guard of `commtrace::init()` may be
/// dropped before or after MPI has ended, except that `guard.finish(&comm)` communicates and comes before. If
/// the thread panics, or a call timed out or failed, MPI is not ended, since that would wait for ranks that
/// may never come: the process ends without it, and the launcher ends the job.
///
/// # Threads
///
/// | level that MPI gives | |
/// | --- | --- |
/// | `MULTIPLE` | everything |
/// | `SERIALIZED` | our calls exclude each other, none of which waits, so all go by MPI's non-blocking functions; the application must not call MPI at the same time |
/// | `FUNNELED`, `SINGLE` | only on the thread that started MPI; non-blocking calls are carried out before they return |
///
/// # Speed
///
/// A blocking collective costs the agreement of the ranks (see Errors) and MPI's own blocking function, `MPI_Allreduce`
/// for instance: MPI's choice of algorithm, and its way of waiting, are those of a program that calls it directly. (Open
/// MPI never gives the core away while it waits, unless `OMPI_MCA_mpi_yield_when_idle=1`.) If a rank makes
/// the call in a group, non-blocking, or with `SERIALIZED`, all use the non-blocking function, `MPI_Iallreduce`,
/// and test it again and again, letting other threads run in between. `cargo bench -p commtrace-collectives --features mpi
/// --bench mpi` compares with plain MPI.
///
/// # Order
///
/// As for [`LocalComm`](crate::LocalComm): the calls of one rank on one communicator take effect in the order in
/// which they were made, and non-blocking calls run on a communication thread, which is also what makes MPI
/// move their data while the application computes. Dropping a communicator waits for the non-blocking calls
/// under way.
///
/// # Results
///
/// Values are combined in MPI's order, not in rank order: floating-point sums, products and averages may
/// differ from those of `LocalComm` in the last bits, and from one MPI library to another. They are equal on all
/// ranks as far as MPI's algorithms make them so; Open MPI's and MPICH's do. `f16` and `bf16` are converted to `f32`
/// and rounded once, at the end. `Min` and `Max` ignore NaN; of `-0.0` and `0.0`, `Min` keeps the former and
/// `Max` the latter.
///
/// # Errors
///
/// The ranks of a call compare what they call with, by messages of 40 bytes, before they touch the buffers: see [`Error::Mismatch`](crate::Error::Mismatch) and
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument), after which the communicator stays usable.
/// [`MpiBuilder::checks`] switches that off. A rank that does not come within the timeout (10 minutes, see
/// [`MpiBuilder::timeout`]) is [`Error::Timeout`](crate::Error::Timeout); what MPI itself reports is
/// [`Error::Library`](crate::Error::Library). After these two the communicator is broken for this rank. When a
/// process dies, `mpirun` ends the others with SIGTERM: `commtrace::finish_on_sigterm` then lets them
/// finish their records.
pub struct MpiComm {
    host: HostRank<Core>,
}

host_communicator!(MpiComm, MpiGroup, {
    fn send_bytes(&self, message: &[u8], peer: usize, deadline: Instant) -> Result<()> {
        self.host.backend.send_bytes(message, peer, deadline)
    }

    fn receive_bytes(&self, peer: usize, deadline: Instant) -> Result<Vec<u8>> {
        self.host.backend.receive_bytes(peer, deadline)
    }
});

impl MpiComm {
    fn new(core: Core) -> Self {
        let rank = core.rank;
        let global = core.members.global(rank);
        let stream = match &*core.members.name {
            builder::WORLD => format!("comm-{global}"),
            name => format!("comm-{global}:{name}"),
        };
        let threaded = core.runtime.is_threaded();
        Self { host: HostRank::new(Arc::new(core), rank, stream, threaded) }
    }

    /// All ranks of the job, with the defaults of [`MpiBuilder`].
    ///
    /// # Errors
    ///
    /// As [`MpiBuilder::world`].
    pub fn world() -> Result<Self> {
        Self::builder().world()
    }

    /// Settings for a communicator.
    pub fn builder() -> MpiBuilder {
        MpiBuilder::default()
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
    /// order of `key` (ties by rank). A collective call, which has no span and consumes no `seq`; its
    /// order among the collectives must be the same on all ranks.
    ///
    /// The new communicator is named as by [`LocalComm::split`](crate::LocalComm::split).
    ///
    /// # Errors
    ///
    /// As any collective: if a rank is late, or the communicator is broken.
    pub fn split(&self, color: u32, key: u32) -> Result<Self> {
        let (count, ticket) = self.host.issue_split();
        let _turn = ticket.turn();
        self.host.backend.split(count, color, key).map(Self::new)
    }
}

impl fmt::Debug for MpiComm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpiComm")
            .field("name", &self.host.backend.members.name)
            .field("rank", &self.host.rank)
            .field("size", &self.host.size())
            .finish_non_exhaustive()
    }
}
