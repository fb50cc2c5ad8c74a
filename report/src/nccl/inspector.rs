//! What a dump of the NCCL Inspector tells beside a timeline: how fast operations were, per
//! communicator and rank.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Facts of one dump: what one process measured, or several whose dumps were joined.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Inspector {
    /// Version of the dump's format.
    pub format_version: Option<String>,
    /// Events per source of their time: `kernel_gpu` is exact, others contain the host's delays.
    pub timing_sources: IndexMap<String, u64>,
    /// Whether events have a place in time (a verbose dump).
    pub positions: bool,
    /// Figures per communicator and rank, in order of appearance.
    pub communicators: Vec<InspectorComm>,
}

/// One rank's part in a communicator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InspectorComm {
    /// NCCL's identifier.
    pub id: String,
    /// The communicator's name, if it has one.
    pub name: Option<String>,
    /// Number of ranks.
    pub nranks: u32,
    /// Number of hosts.
    pub nnodes: Option<u32>,
    /// The rank's number in it.
    pub comm_rank: u32,
    /// Host name of the process.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Figures per operation, in order of appearance.
    pub by_op: IndexMap<String, InspectorOp>,
}

/// Figures of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InspectorOp {
    /// Number of calls.
    pub count: u64,
    /// Sum of the payloads as nccl-tests counts them.
    pub bytes: u64,
    /// Sum of the durations in milliseconds.
    pub time_ms: f64,
    /// Payload over time, GB/s.
    pub algbw_gbs: Option<f64>,
    /// The same times nccl-tests' factor, GB/s.
    pub busbw_gbs: Option<f64>,
    /// The slowest call's bus bandwidth as the dump has it, GB/s.
    pub min_busbw_gbs: Option<f64>,
    /// The fastest call's.
    pub max_busbw_gbs: Option<f64>,
}
