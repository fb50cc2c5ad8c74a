//! One row of a record file, before it becomes columns.

use crate::timeline::{Exchange, RoutingPhase};

/// What a row is about; the column `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// A compute interval; `name` is the span's name.
    Compute,
    /// A communication interval; `name` is the op.
    Comm,
    /// A training step; `step` is its number.
    Step,
    /// A communication or step span that was entered and had not ended when the row was written.
    /// Superseded by a later row with the same `span`.
    Open,
    /// Something learned about the run; `name` is one of [`meta`].
    Meta,
}

impl RowKind {
    /// All kinds, in the order of the column's dictionary.
    pub const ALL: [Self; 5] = [Self::Compute, Self::Comm, Self::Step, Self::Open, Self::Meta];

    /// The kind's position in [`ALL`](Self::ALL).
    pub(super) fn code(self) -> i8 {
        match self {
            Self::Compute => 0,
            Self::Comm => 1,
            Self::Step => 2,
            Self::Open => 3,
            Self::Meta => 4,
        }
    }

    /// The kind that [`as_str`](Self::as_str) names.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The text in the column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Comm => "comm",
            Self::Step => "step",
            Self::Open => "open",
            Self::Meta => "meta",
        }
    }
}

/// Names of [`RowKind::Meta`] rows.
pub mod meta {
    /// `value`: number of ranks of the job.
    pub const WORLD_SIZE: &str = "world_size";
    /// `comm`, `comm_size`, `comm_rank`; `label`: the global ranks in order, comma-separated.
    pub const COMMUNICATOR: &str = "communicator";
    /// `start_ns` on CLOCK_MONOTONIC; `value`: the same instant in nanoseconds since the Unix epoch;
    /// `label`: what spans are timed with, `tsc` (converted) or `monotonic`.
    pub const CLOCK_ANCHOR: &str = "clock_anchor";
    /// An instant at which a device's clock was tied to the host's, for GPU-timed rows. `start_ns`: the
    /// instant; `dur_ns`: the host knew it to within this; `value`: by how many nanoseconds it differed
    /// from what the instants before let expect, null for the first; `device`.
    pub const GPU_ANCHOR: &str = "gpu_anchor";
    /// `value`: records lost since the last such row; `label`: why.
    pub const DROPPED: &str = "dropped";
    /// `value`: calls since the last such row whose bytes per rank were lost; the calls themselves were not.
    pub const PEER_BYTES_DROPPED: &str = "peer_bytes_dropped";
    /// The file reached `COMMTRACE_MAX_MB` (`value`, in MiB); intervals after this are not in it.
    pub const CAPPED: &str = "capped";
    /// `label`: the rank's summary as JSON, written when the file was capped.
    pub const SUMMARY: &str = "summary";
    /// The process ran at `start_ns`, and everything before is in the file: intervals that ended by then,
    /// and as [`Open`](super::RowKind::Open) rows communication and steps that had been entered for `value`
    /// nanoseconds or longer. Comes with every batch, and now and then while there is nothing else to write.
    pub const SEEN: &str = "seen";
    /// `label`: what of the run was to be recorded where that is not all of it, `steps 10..20` (either side
    /// may be open) or `ranks 0,8`; [`WINDOW`] in a record that was made of a profiler's trace.
    pub const SELECTION: &str = "selection";
    /// The selection that a profiler makes: its window ends where it was set to end, not with the run.
    pub const WINDOW: &str = "window";
    /// The regular end of the run, at `start_ns` if known. With `label` [`UNKNOWN`], the end of a record
    /// that was made of something that does not say how it ended.
    pub const END: &str = "end";
    /// See [`END`].
    pub const UNKNOWN: &str = "unknown";
}

/// One row. Fields that do not apply are `None` and stored as null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// What the row is about.
    pub kind: RowKind,
    /// Span name, op, or name of the meta row.
    pub name: &'a str,
    /// A name made at run time.
    pub label: Option<&'a str>,
    /// Start on CLOCK_MONOTONIC; null for an untimed record, and for one of which only the length is known.
    pub start_ns: Option<i64>,
    /// Length; null for untimed, open and (but for one) meta rows.
    pub dur_ns: Option<i64>,
    /// Payload.
    pub bytes: Option<u64>,
    /// Communicator.
    pub comm: Option<&'a str>,
    /// Ranks in the communicator.
    pub comm_size: Option<u32>,
    /// The rank's number in the communicator.
    pub comm_rank: Option<u32>,
    /// Number of the collective in its communicator.
    pub seq: Option<u64>,
    /// Other side or root, as a rank of the communicator.
    pub peer: Option<u32>,
    /// Element type.
    pub dtype: Option<&'a str>,
    /// Stream.
    pub stream: Option<&'a str>,
    /// Device ordinal of GPU-timed rows.
    pub device: Option<u32>,
    /// The recording thread, numbered from 0 within the process.
    pub thread: Option<u32>,
    /// The step that was current when the span was created.
    pub step: Option<i64>,
    /// Number of the span within the process; a span entered several times has several rows.
    pub span: Option<u64>,
    /// Why a record has no time, for example `captured`.
    pub untimed: Option<&'a str>,
    /// Value of a meta row.
    pub value: Option<i64>,
    /// What a call that routes tokens to experts does: `dispatch` or `combine`.
    pub phase: Option<&'a str>,
    /// Size of one token, where the bytes for each rank are a multiple of it.
    pub token_bytes: Option<u64>,
    /// Bytes sent to each rank of the communicator, in its order; of communicators with more than
    /// [`MAX_PEERS`](super::MAX_PEERS) ranks two numbers, those to the own rank and those to all others.
    pub sent_bytes: Option<&'a [u64]>,
    /// Bytes received from each rank, likewise.
    pub received_bytes: Option<&'a [u64]>,
}

impl<'a> Row<'a> {
    /// A row of which only kind and name are known.
    pub fn new(kind: RowKind, name: &'a str) -> Self {
        Self {
            kind,
            name,
            label: None,
            start_ns: None,
            dur_ns: None,
            bytes: None,
            comm: None,
            comm_size: None,
            comm_rank: None,
            seq: None,
            peer: None,
            dtype: None,
            stream: None,
            device: None,
            thread: None,
            step: None,
            span: None,
            untimed: None,
            value: None,
            phase: None,
            token_bytes: None,
            sent_bytes: None,
            received_bytes: None,
        }
    }

    /// How the call spreads over the ranks of its communicator, if that is known.
    pub fn exchange(&self) -> Option<Exchange<'a>> {
        Some(Exchange {
            phase: self.phase.and_then(RoutingPhase::from_name),
            token_bytes: self.token_bytes.filter(|&bytes| bytes > 0),
            sent_bytes: self.sent_bytes?,
            received_bytes: self.received_bytes?,
        })
    }
}
