//! What every reader produces and every analysis consumes: columns of intervals per rank and device.
//!
//! Times are integer nanoseconds on the clock of the input (`_ns`); nothing in this module knows of
//! files, formats or figures. Rows keep the order in which the input recorded them, because ties
//! between hotspots go to the op seen first.

mod columns;
mod exchange;
mod names;
mod narrow;

pub use columns::{Comm, CommColumns, Compute, ComputeColumns};
pub use exchange::{Exchange, RoutingPhase};
pub use names::{Names, Sym};

use crate::nccl::{Inspector, NcclLog, NcclTests};
use indexmap::IndexMap;

/// Intervals of one or more ranks, as read from one or more inputs.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// The strings that the columns' [`Sym`]s stand for.
    pub names: Names,
    /// One track per rank and device, in ascending order of `(rank, device)`.
    pub tracks: Vec<Track>,
    /// What was read, and what of it could not be used.
    pub inputs: Vec<Input>,
    /// Things a reader of the report has to know, each a whole sentence.
    pub warnings: Vec<String>,
    /// Number of ranks of the job, if an input says so; ranks that were not read included.
    pub world_size: Option<u32>,
    /// Global ranks of each communicator's members, in the communicator's order, where known.
    pub communicators: IndexMap<Sym, Vec<u32>>,
}

/// All intervals of one rank on one device.
#[derive(Debug, Clone, Default)]
pub struct Track {
    /// Global rank.
    pub rank: u32,
    /// Device ordinal, `None` for intervals timed by the host alone.
    pub device: Option<u32>,
    /// The clock that the times were read from (a host's boot id). Tracks with the same clock need
    /// no alignment; `None` means that nothing is known about it.
    pub clock: Option<Sym>,
    /// Compute intervals.
    pub compute: ComputeColumns,
    /// Communication intervals.
    pub comm: CommColumns,
    /// Communication of which the input knows how long it took and not when: `start_ns` is 0 and
    /// `end_ns` the duration. Counted in the sums; what was hidden of it is not known.
    pub unplaced: CommColumns,
    /// Training steps, in record order.
    pub steps: Vec<Step>,
    /// Communication that was recorded without a time; counted beside the summary, not in it.
    pub untimed: Untimed,
    /// Communication that had begun and had not ended when the recording stopped: what a rank hangs in.
    pub open: Vec<Open>,
    /// The processes that recorded the communication, in ascending order of their first row; empty if the
    /// job was not restarted.
    pub processes: Vec<ProcessRows>,
}

/// From which row on one process of a rank recorded a track's communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessRows {
    /// The first row.
    pub first: usize,
    /// Which start of the job the process belongs to, from 0: processes that ran side by side, one of
    /// each rank at most. Each start counts its collectives anew.
    pub generation: u32,
}

impl Track {
    /// An empty track of `rank` on `device`.
    pub fn new(rank: u32, device: Option<u32>) -> Self {
        Self { rank, device, ..Self::default() }
    }

    /// The start of the job that the communication in `row` belongs to.
    pub fn generation(&self, row: usize) -> u32 {
        let begun = self.processes.partition_point(|process| process.first <= row);
        let last = begun.checked_sub(1).and_then(|last| self.processes.get(last));
        last.map_or(0, |process| process.generation)
    }

    /// Moves all instants by `by_ns`, saturating.
    #[cfg(feature = "import")]
    pub(crate) fn shift(&mut self, by_ns: i64) {
        self.compute.shift(by_ns);
        self.comm.shift(by_ns);
        for step in &mut self.steps {
            step.start_ns = step.start_ns.saturating_add(by_ns);
            step.end_ns = step.end_ns.saturating_add(by_ns);
        }
        for open in &mut self.open {
            open.start_ns = open.start_ns.map(|start| start.saturating_add(by_ns));
        }
    }

    /// Gives back memory that was set aside for more intervals.
    pub(crate) fn shrink(&mut self) {
        self.compute.shrink();
        self.comm.shrink();
        self.unplaced.shrink();
    }

    /// Replaces the symbols by those of another table, those of communicators by `communicator`.
    pub(crate) fn rename(&mut self, name: impl Fn(Sym) -> Sym, communicator: impl Fn(Sym) -> Sym) {
        self.clock = self.clock.map(&name);
        self.compute.rename(&name);
        self.comm.rename(&name, &communicator);
        self.unplaced.rename(&name, &communicator);
        for open in &mut self.open {
            open.name = name(open.name);
            open.comm = open.comm.map(&communicator);
            open.dtype = open.dtype.map(&name);
        }
    }
}

/// One training step of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The step's number, as the application counts.
    pub step: i64,
    /// First instant of the step.
    pub start_ns: i64,
    /// End of the step (exclusive).
    pub end_ns: i64,
}

/// A communication call, or a step, that was entered and never seen to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// The op, or the name of the step's span.
    pub name: Sym,
    /// When it was entered, if that was recorded.
    pub start_ns: Option<i64>,
    /// Payload in bytes.
    pub bytes: Option<u64>,
    /// Communicator; `None` for a step.
    pub comm: Option<Sym>,
    /// Number of the collective within its communicator.
    pub seq: Option<u64>,
    /// Number of ranks in the communicator.
    pub comm_size: Option<u32>,
    /// The rank's number inside the communicator.
    pub comm_rank: Option<u32>,
    /// The other side of a point-to-point call, or the root of a rooted collective.
    pub peer: Option<u32>,
    /// Element type.
    pub dtype: Option<Sym>,
    /// The step that was current when the call was made.
    pub step: Option<i64>,
}

/// Records that carry no time: how many, how many bytes, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Untimed {
    /// Number of records.
    pub count: u64,
    /// Sum of the bytes they carried.
    pub bytes: u64,
    /// Number of records per reason, for example `captured`.
    pub reasons: IndexMap<String, u64>,
}

/// One file (or folder member) that was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Input {
    /// The path as the user gave it, or as it was found in a folder.
    pub path: String,
    /// The recognised format, for example `commtrace-record` or `timeline-json`.
    pub format: String,
    /// Events kept.
    pub events: u64,
    /// Events left out, per reason.
    pub skipped: IndexMap<String, u64>,
    /// Events kept although something about them is odd, per kind (for example `end_before_start`).
    pub anomalies: IndexMap<String, u64>,
    /// The rank that wrote it, for files of a single rank.
    pub rank: Option<u32>,
    /// Whether the recording ended regularly; `None` for formats that do not say.
    pub ended: Option<bool>,
    /// The process that wrote it, if it says.
    pub process: Option<Process>,
    /// Up to when the recording is known to be complete, if it says; on the clock of its intervals.
    pub seen: Option<Seen>,
    /// What of the run was to be recorded, where that is not all of it, as the recording says: for example
    /// `steps 10..20`.
    pub selection: Vec<String>,
    /// Records that were lost while recording.
    pub dropped: u64,
    /// Calls of which it was lost how their bytes spread over ranks, and nothing else.
    pub peer_bytes_dropped: u64,
    /// The file reached its size limit, so that it holds only the beginning of the run.
    pub capped: Option<Capped>,
    /// For inputs whose events are told apart by their names: what matched which rule.
    pub rules: Vec<RuleMatch>,
    /// What a debug log of NCCL tells beside intervals.
    pub nccl_log: Option<Box<NcclLog>>,
    /// The table of a run of nccl-tests.
    pub nccl_tests: Option<Box<NcclTests>>,
    /// What a dump of the NCCL Inspector tells beside intervals.
    pub inspector: Option<Box<Inspector>>,
}

impl Input {
    /// Whether it is a profiler's window, which ends where it was set to end: what is not in it says nothing
    /// about the run. Records, and timelines that programs write themselves, go to the end of the run or to
    /// where it hung.
    pub fn is_window(&self) -> bool {
        let whole =
            self.ended.is_some() || matches!(self.format.as_str(), "timeline-json" | "commtrace-record");
        !whole || self.selection.iter().any(|selection| selection == crate::record::meta::WINDOW)
    }
}

/// A process that recorded itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Name of its host.
    pub host: String,
    /// The host's boot id: processes with the same one have the same clock.
    pub boot_id: String,
    /// Process id on its host.
    pub pid: u32,
    /// When it began to record, in nanoseconds since the Unix epoch.
    pub start_unix_ns: i64,
    /// The same instant on the clock of its intervals.
    pub start_ns: i64,
}

/// Up to when a recording is known to be complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The last instant at which the process is known to have run. All intervals that ended by then are
    /// there.
    pub at_ns: i64,
    /// Communication that was entered this long before, or longer, and had not ended is there as
    /// [`Open`].
    pub open_after_ns: i64,
}

/// What a rule over names matched in one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMatch {
    /// The rule in words, for example `NCCL kernel` or `--comm-pattern halo=exchange_`.
    pub rule: String,
    /// What it makes an event.
    pub kind: MatchKind,
    /// The operation, for communication.
    pub op: Option<String>,
    /// Events that it matched.
    pub events: u64,
    /// Sum of their durations in nanoseconds.
    pub time_ns: u64,
}

/// What a rule makes an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// Communication.
    Comm,
    /// Compute.
    Compute,
    /// Neither: left out of the figures.
    Neither,
}

/// What is known of a recording that reached its size limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capped {
    /// The limit in MiB, if it was recorded.
    pub limit_mib: Option<u64>,
    /// The rank's summary of the whole run as JSON, if it was written.
    pub summary_json: Option<String>,
}
