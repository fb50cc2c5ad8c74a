//! Errors of communicators.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Op;

/// The result of a call on a communicator.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which call of which communicator an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallId {
    /// The communicator's name.
    pub comm: Arc<str>,
    /// Which of its calls.
    pub call: CallKind,
}

/// A call, as all ranks that take part in it count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallKind {
    /// A collective.
    Collective {
        /// The operation, as the rank that reports the error called it.
        op: Op,
        /// Its number within the communicator.
        seq: u64,
    },
    /// A send and its receive. Ranks are global ranks.
    PointToPoint {
        /// The sending rank.
        source: u32,
        /// The receiving rank.
        destination: u32,
        /// Number of the message from `source` to `destination`.
        count: u64,
    },
    /// A send or receive of one rank, where the other's global rank is not known.
    WithPeer {
        /// [`Op::Send`] or [`Op::Recv`].
        op: Op,
        /// The other rank, as a rank of the communicator; may be out of range.
        peer: i32,
    },
    /// The making of sub-communicators.
    Split {
        /// Which split of the communicator.
        count: u64,
    },
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comm = &self.comm;
        match self.call {
            CallKind::Collective { op, seq } => write!(f, "{op} (communicator {comm}, seq {seq})"),
            CallKind::PointToPoint { source, destination, count } => write!(
                f,
                "send from rank {source} to rank {destination} (communicator {comm}, message {count})"
            ),
            CallKind::WithPeer { op, peer } => write!(f, "{op} (communicator {comm}, peer {peer})"),
            CallKind::Split { count } => write!(f, "split {count} of communicator {comm}"),
        }
    }
}

/// Why a call failed. Ranks are global ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The ranks called with different operations, lengths, types, reductions or roots. Every rank of
    /// the call gets this error; the communicator stays usable.
    #[error("{call}: the ranks disagree on the {what}: {}", Groups(.values))]
    Mismatch {
        /// The call.
        call: CallId,
        /// What they disagree on, for example `length`.
        what: &'static str,
        /// Each value, with the ranks that called with it.
        values: Vec<(String, Vec<u32>)>,
    },
    /// A rank called with arguments that cannot be right, such as a root outside the communicator.
    /// Every rank of the call gets this error; the communicator stays usable.
    #[error("{call}: {}", Problems(.problems))]
    InvalidArgument {
        /// The call.
        call: CallId,
        /// What is wrong, and on which rank.
        problems: Vec<(u32, String)>,
    },
    /// A rank did not come in time. The communicator is broken.
    #[error("{call}: waited {waited:?} for {}, which did not make the call", Ranks(.missing))]
    Timeout {
        /// The call.
        call: CallId,
        /// How long this rank (the first to give up) waited.
        waited: Duration,
        /// The ranks that did not come.
        missing: Vec<u32>,
    },
    /// A rank that should take part is gone. The communicator is broken.
    #[error("{call}: rank {rank} {}", if *.panicked {
        "is gone: its thread panicked"
    } else {
        "is gone: it dropped its communicator"
    })]
    RankLost {
        /// The call.
        call: CallId,
        /// The rank that is gone.
        rank: u32,
        /// Whether its thread panicked (else it dropped its communicator).
        panicked: bool,
    },
    /// An earlier call timed out or lost a rank: the ranks no longer agree on what comes next.
    #[error("communicator {comm} is broken and has to be made anew, since {cause}")]
    Broken {
        /// The communicator.
        comm: Arc<str>,
        /// The error that broke it.
        cause: Arc<Error>,
    },
    /// A non-blocking call ended without a result, because something panicked on the communication
    /// thread (a `tracing` subscriber, for instance).
    #[error("communicator {comm}: the communication thread panicked during a non-blocking call")]
    StreamPanicked {
        /// The communicator.
        comm: Arc<str>,
    },
    /// The library that carries the call out (MPI, for instance) reported an error. The communicator is
    /// broken.
    #[error("{call}: {library} failed on rank {rank} ({function}): {message}")]
    Library {
        /// The call.
        call: CallId,
        /// The rank that reports it.
        rank: u32,
        /// The library.
        library: &'static str,
        /// Its function.
        function: &'static str,
        /// What it said.
        message: String,
    },
    /// A library cannot be used, or no communicator can be made with it.
    #[error("{library}: {problem}")]
    Setup {
        /// The library.
        library: &'static str,
        /// Why, and what to do.
        problem: String,
    },
    /// NCCL or the GPU's driver reported an error code.
    #[error("{what}: {library} error {code} ({message})")]
    Native {
        /// Which library, for example `NCCL`.
        library: &'static str,
        /// Which call of the communicator, or what else was done.
        what: String,
        /// The library's own code.
        code: i32,
        /// The library's own words.
        message: String,
    },
    /// A buffer and the host data copied to or from it differ in length.
    #[error("cannot copy {from} elements into {to}")]
    CopyLength {
        /// Elements of the source.
        from: usize,
        /// Elements of the destination.
        to: usize,
    },
}

/// `rank 1` or `ranks 0, 1 and 3`.
struct Ranks<'a>(&'a [u32]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [rank] => write!(f, "rank {rank}"),
            [first, middle @ .., last] => {
                write!(f, "ranks {first}")?;
                middle.iter().try_for_each(|rank| write!(f, ", {rank}"))?;
                write!(f, " and {last}")
            }
            [] => f.write_str("no rank"),
        }
    }
}

struct Groups<'a>(&'a [(String, Vec<u32>)]);

impl fmt::Display for Groups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (value, ranks)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{value} on {}", Ranks(ranks))?;
        }
        Ok(())
    }
}

struct Problems<'a>(&'a [(u32, String)]);

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (rank, problem)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}rank {rank}: {problem}")?;
        }
        Ok(())
    }
}
