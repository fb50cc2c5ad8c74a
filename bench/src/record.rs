//! What an experiment leaves behind: one JSON object per algorithm and run label.
//!
//! In names that end so, `gbps` is 10^9 bytes per second, as nccl-tests prints it, and `ms` is milliseconds.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of the JSON's keys and their meaning. If you change any of them, raise this.
pub const RECORD_SCHEMA_VERSION: u32 = 1;

/// One candidate of an experiment: what ran, on what, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// [`RECORD_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Which experiment it is of.
    pub experiment: Experiment,
    /// When it was started, in UTC, for example `2026-01-31T23:59:59Z`.
    pub started_at: String,
    /// What wrote the record, and what it measured.
    pub versions: Versions,
    /// What was run. Records can be compared if this is the same but for the algorithm and the run label.
    pub workload: Workload,
    /// What it ran on.
    pub hardware: Hardware,
    /// The times. Without rows if the candidate failed.
    pub metrics: Metrics,
    /// What the times are evidence of.
    pub evidence_level: EvidenceLevel,
    /// Why there are no times.
    pub failure: Option<Failure>,
    /// What follows.
    pub decision: Decision,
    /// Files that belong to the record, relative to its folder.
    pub artifacts: Artifacts,
}

/// The two experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Experiment {
    /// Collective by payload by algorithm.
    Collectives,
    /// A collective and a matrix product, one after the other and at the same time.
    Overlap,
}

impl Experiment {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Collectives => "collectives",
            Self::Overlap => "overlap",
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Versions of tool and libraries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Versions {
    /// This tool's.
    pub commtrace: String,
    /// The library that carried the collectives, for example `NCCL 2.27.3` or `Open MPI v4.1.4`; `None` for threads of one
    /// process, and where the library could not be loaded.
    pub library: Option<String>,
    /// Version of the CUDA driver, for example `12.8`; `None` without a GPU.
    pub cuda_driver: Option<String>,
}

/// What was run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Workload {
    /// Names experiment and protocol: `par-nccl-collective-matrix` or `par-overlap-allreduce-matmul`.
    pub workload_id: String,
    /// What carried the collectives: `local`, `mpi` or `nccl`.
    pub backend: String,
    /// Number of ranks.
    pub world_size: u32,
    /// Element type, for example `float32`.
    pub dtype: String,
    /// Elements that each rank puts in, one entry per payload.
    pub payload_elements: Vec<u64>,
    /// Untimed repeats before the timed ones, per row.
    pub warmup: u32,
    /// Timed repeats per row.
    pub repeats: u32,
    /// Dimension of the square matrices; `None` without compute.
    pub compute_dim: Option<u32>,
    /// The algorithm that was asked for: `Auto` (the library's choice), `Ring`, `Tree`.
    pub algorithm_requested: String,
    /// The algorithms that ran, as far as there is evidence.
    pub algorithm_observed: AlgorithmObserved,
    /// Tells runs of the same workload apart.
    pub run_label: String,
}

/// Algorithms by evidence: lines of NCCL's log, or its profiler plugin. Never what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum AlgorithmObserved {
    /// Those of which there is evidence, for example `["Ring"]`, in alphabetical order.
    Observed(Vec<String>),
    /// There is no evidence.
    Unconfirmed(Unconfirmed),
}

impl Default for AlgorithmObserved {
    fn default() -> Self {
        Self::Unconfirmed(Unconfirmed::Unconfirmed)
    }
}

/// The one word `unconfirmed`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unconfirmed {
    /// Nothing says which algorithm ran.
    #[default]
    Unconfirmed,
}

/// What the experiment ran on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hardware {
    /// The machines, that of rank 0 first.
    pub hosts: Vec<Host>,
}

/// One machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its ranks, ascending.
    pub ranks: Vec<u32>,
    /// Model of the processor.
    pub cpu: Option<String>,
    /// Processors that the ranks may use.
    pub cpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The GPUs that the ranks used.
    pub gpus: Vec<Gpu>,
}

/// One GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// CUDA device ordinal.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Compute capability, for example `9.0`.
    pub compute_capability: Option<String>,
}

/// The times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Metrics {
    /// One row per collective and payload, or per schedule.
    pub rows: Vec<Row>,
    /// The overlap experiment's comparison of its two rows.
    pub comparison: Option<Comparison>,
}

/// One collective with one payload, over all timed repeats.
///
/// A repeat takes as long as on the rank where it took longest; median and P95 are of these maxima.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// `all_reduce`, `reduce_scatter_all_gather` (one after the other, which is an all_reduce in two parts), `all_gather`,
    /// `reduce_scatter`, `broadcast`, `all_to_all`.
    pub collective: String,
    /// The overlap experiment's schedule; `None` in the other.
    pub schedule: Option<Schedule>,
    /// Elements that each rank puts in (its send buffer).
    pub payload_elements: u64,
    /// Bytes that each rank puts in.
    pub payload_bytes_per_rank: u64,
    /// The size S as nccl-tests takes it: of all_gather what comes out, else what goes in.
    pub size_bytes: u64,
    /// Median over the repeats of the slowest rank's time.
    pub median_max_rank_ms: f64,
    /// 95th percentile over the repeats of the slowest rank's time.
    pub p95_max_rank_ms: f64,
    /// The fastest repeat.
    pub min_max_rank_ms: f64,
    /// `payload_bytes_per_rank` / `median_max_rank_ms`; `None` if the time is 0.
    pub effective_payload_gbps: Option<f64>,
    /// `size_bytes` / `median_max_rank_ms`: nccl-tests' algorithm bandwidth; `None` if the time is 0, or compute is in it.
    pub algbw_gbps: Option<f64>,
    /// `algbw_gbps` times nccl-tests' factor of the collective: its bus bandwidth.
    pub busbw_gbps: Option<f64>,
    /// Mean over the repeats of each rank's own time, by rank.
    pub rank_mean_ms: Vec<f64>,
    /// 95th percentile over the repeats of each rank's own time, by rank.
    pub rank_p95_ms: Vec<f64>,
    /// The slowest rank's time, repeat by repeat.
    pub max_rank_ms: Vec<f64>,
    /// The algorithms of which there is evidence for this collective and payload.
    pub algorithm_observed: AlgorithmObserved,
    /// Elements that were wrong in the checked results, over all ranks. A record with wrong results has no times.
    pub wrong_elements: u64,
}

/// In which order a collective and compute are issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// First the one, then the other.
    Serial,
    /// Both at the same time.
    Overlapped,
}

impl Schedule {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Overlapped => "overlapped",
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What overlapping gained. A gain of scheduling two synthetic pieces of work, not of a model's training.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Median of the serial schedule minus that of the overlapped one. Negative if overlapping is slower.
    pub saved_ms: f64,
    /// `saved_ms` / median of the serial schedule. `None` if that is 0.
    pub overlap_gain_ratio: Option<f64>,
    /// P95 of the serial schedule minus that of the overlapped one.
    pub saved_p95_ms: f64,
    /// Ranks whose own P95 is higher with overlapping than without by more than noise, ascending. Noise is how far that
    /// without lies above the rank's median, and 1 % of it at least.
    pub ranks_with_new_tail: Vec<u32>,
}

/// What times are evidence of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EvidenceLevel {
    /// Measured on GPUs.
    MeasuredGpu,
    /// Measured on processors: says how the host's memory and network behave, and nothing of GPUs.
    MeasuredCpu,
    /// Nothing was measured.
    None,
}

/// Why a candidate has no times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// What went wrong, where, and what to do.
    pub message: String,
    /// The rank that failed, if one did.
    pub rank: Option<u32>,
    /// The collective that was running.
    pub collective: Option<String>,
    /// The payload that was running.
    pub payload_bytes_per_rank: Option<u64>,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A library or a device is missing.
    Missing,
    /// There is no algorithm of that name.
    UnknownAlgorithm,
    /// A rank ended before the experiment did.
    RankFailed,
    /// A result was wrong.
    WrongResult,
    /// The experiment did not end in time.
    TimedOut,
    /// The ranks could not be started.
    NotStarted,
}

/// What follows from a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decision {
    /// The decision.
    pub decision: Verdict,
    /// Why.
    pub reason: String,
    /// What to measure next.
    pub next_measurements: Vec<String>,
}

/// Decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Collectives were measured: measure next what they expose in real scheduling (the overlap experiment, a traced run).
    VerifyOverlap,
    /// Overlapping pays in this experiment: try it in the model.
    AdoptOverlap,
    /// Overlapping does not pay in this experiment.
    KeepSerial,
    /// The candidate failed: look at its log. Nothing is compared.
    InspectFailure,
}

impl Verdict {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::VerifyOverlap => "verify_overlap",
            Self::AdoptOverlap => "adopt_overlap",
            Self::KeepSerial => "keep_serial",
            Self::InspectFailure => "inspect_failure",
        }
    }
}

/// Files that belong to a record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Artifacts {
    /// What NCCL logged (`NCCL_DEBUG=INFO`); `None` with other backends.
    pub nccl_log: Option<String>,
    /// What the ranks wrote to stdout and stderr.
    pub log: Option<String>,
}
