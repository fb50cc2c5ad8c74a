//! What a debug log of NCCL (`NCCL_DEBUG=INFO`) tells.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Facts of one debug log, of all processes that wrote into it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NcclLog {
    /// Versions of NCCL (or RCCL) that say so, without repetition.
    pub versions: Vec<String>,
    /// Messages of NCCL.
    pub messages: u64,
    /// Processes that wrote them.
    pub processes: u64,
    /// Networks that are used, for example `IB`.
    pub networks: Vec<String>,
    /// `NCCL_*` variables that are set.
    pub environment: IndexMap<String, String>,
    /// Communicators with their members.
    pub communicators: Vec<Communicator>,
    /// How ranks are connected.
    pub transports: Vec<Transport>,
    /// Calls per operation and size, in order of appearance (subsystem COLL).
    pub calls: Vec<Calls>,
    /// What ran per operation and size, in order of appearance (subsystem TUNING).
    pub algorithms: Vec<AlgorithmChoice>,
    /// Distinct warnings, in order of appearance.
    pub warnings: Vec<LogWarning>,
    /// All warnings, those not in `warnings` included.
    pub warning_count: u64,
    /// Facts that were too many to keep, per kind.
    pub left_out: IndexMap<String, u64>,
}

/// One communicator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Communicator {
    /// NCCL's identifier; `None` where the log has none, and members are grouped by size, rank and order.
    pub comm_id: Option<String>,
    /// Number of ranks.
    pub nranks: u32,
    /// The ranks that wrote into this log, ascending.
    pub members: Vec<Member>,
}

/// One rank of a communicator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// Its number in the communicator.
    pub rank: u32,
    /// Global rank, if the launcher's prefix of the line says so.
    pub launcher_rank: Option<u32>,
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Address of the communicator in the process, as the log writes it.
    pub address: String,
    /// CUDA device ordinal in the process.
    pub cuda_dev: Option<u32>,
    /// Device ordinal on the host.
    pub nvml_dev: Option<u32>,
    /// PCI bus id.
    pub bus_id: Option<String>,
    /// Whether its initialization is said to be complete.
    pub initialized: bool,
    /// Collective and point-to-point calls that it logged.
    pub calls: u64,
    /// The last of them.
    pub last_call: Option<LastCall>,
}

/// The last call of a rank on a communicator: where ranks differ in it, some have not got there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastCall {
    /// The operation.
    pub op: String,
    /// NCCL's count of operations on that communicator.
    pub op_count: u64,
}

/// A way in which ranks are connected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Transport {
    /// As the log names it, without device numbers: `P2P/IPC`, `NET/IB/GDRDMA`, `SHM/direct/direct`.
    pub via: String,
    /// Lines that say so: one per channel and connection.
    pub connections: u64,
    /// Distinct pairs of ranks.
    pub pairs: u64,
}

/// Calls of one operation with one size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Calls {
    /// The operation.
    pub op: String,
    /// Payload in bytes as nccl-tests counts it; `None` if the element type is not known.
    pub bytes: Option<u64>,
    /// Element type.
    pub dtype: Option<String>,
    /// Ranks of the communicator.
    pub nranks: Option<u32>,
    /// Number of calls, of all processes.
    pub calls: u64,
}

/// What NCCL chose for one operation and size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AlgorithmChoice {
    /// The operation; `None` where the line names none and no call before it tells.
    pub op: Option<String>,
    /// Payload in bytes as nccl-tests counts it; `None` where the line has one rank's share and the
    /// number of ranks is not known.
    pub bytes: Option<u64>,
    /// The bytes as the line has them.
    pub logged_bytes: u64,
    /// Ranks of the communicator, if known.
    pub nranks: Option<u32>,
    /// `ring`, `tree`, `nvls`, ...; `symmetric` for symmetric-memory kernels.
    pub algorithm: String,
    /// `ll`, `ll128` or `simple`, where it applies.
    pub protocol: Option<String>,
    /// Channels, if the line says so.
    pub channels: Option<u32>,
    /// Lines that say so.
    pub lines: u64,
}

/// A warning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogWarning {
    /// What it says.
    pub message: String,
    /// Where in NCCL's source, as the log has it.
    pub source: Option<String>,
    /// The host that wrote it first.
    pub host: String,
    /// How often it was written.
    pub count: u64,
}

impl NcclLog {
    /// Whether nothing of use was found.
    pub fn is_empty(&self) -> bool {
        self.messages == 0 && self.versions.is_empty()
    }
}

impl Communicator {
    /// Members whose last call is not the one that most have made, where all have logged calls: those
    /// that are behind or ahead.
    pub fn stragglers(&self) -> Vec<&Member> {
        let counts = self.members.iter().filter_map(|member| member.last_call.as_ref());
        let Some(furthest) = counts.map(|call| call.op_count).max() else { return Vec::new() };
        let behind = |member: &&Member| member.last_call.as_ref().is_none_or(|call| call.op_count < furthest);
        self.members.iter().filter(behind).collect()
    }
}
