//! What is said of ranks that are not in step.

use serde::{Deserialize, Serialize};

/// Ranks that did not do what the others did: what a hang looks like at the end of a record.
///
/// Ranks are global ranks, and in lists in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Desync {
    /// Communicator; `None` where the finding is about a rank as a whole, or none was recorded.
    pub comm: Option<String>,
    /// Number of the collective in its communicator; `None` for point-to-point calls and whole ranks.
    pub seq: Option<u64>,
    /// The op (that of most ranks, if they disagree); `None` for whole ranks.
    pub op: Option<String>,
    /// What is wrong.
    pub kind: DesyncKind,
    /// The few: who misses what the others entered, who entered what the others did not, or who
    /// disagrees. Empty if all entered and agree and the call does not end.
    pub ranks: Vec<u32>,
    /// The numbers of `ranks` inside the communicator, where known.
    pub comm_ranks: Vec<Option<u32>>,
    /// Number of ranks of the communicator.
    pub comm_size: Option<u32>,
    /// Payload in bytes, if those that entered agree.
    pub bytes: Option<u64>,
    /// The first entry into the call (or the last sign of a rank that stopped), in milliseconds since the
    /// first instant of the run that is known.
    pub since_ms: Option<f64>,
    /// The same instant in milliseconds since the Unix epoch.
    pub since_unix_ms: Option<f64>,
    /// For how long at least a rank has been in the call without an end, in milliseconds.
    pub waited_ms: Option<f64>,
    /// Ranks that entered the call.
    pub entered: Vec<u32>,
    /// Those of `entered` that are still in it.
    pub waiting: Vec<u32>,
    /// Ranks that were read and did not enter it.
    pub missing: Vec<u32>,
    /// Members that were not read: nothing is known of them.
    pub not_read: Vec<u32>,
    /// What each side of a disagreement says, the majority first.
    pub sides: Vec<DesyncSide>,
    /// Not a cause but a consequence: the missing ranks are held up in this call.
    pub blocked_by: Option<BlockedBy>,
    /// The missing ranks wait, directly or through others, for ranks that wait here: calls on different
    /// communicators that are made in different orders.
    pub in_cycle: bool,
    /// Why this is less than certain, each a whole sentence; empty if it is certain.
    pub weakened: Vec<String>,
}

impl Desync {
    /// Whether it is about ranks as a whole: they stopped, or have no record.
    pub fn is_of_ranks(&self) -> bool {
        matches!(self.kind, DesyncKind::Stopped | DesyncKind::NoRecord)
    }

    /// Whether it is a disagreement that the run went past.
    pub fn was_passed(&self) -> bool {
        self.kind.is_disagreement() && self.waiting.is_empty()
    }

    /// Whether it is about a call that some ranks are in or made, and that cannot end.
    pub fn is_stuck(&self) -> bool {
        !self.is_of_ranks() && !self.was_passed()
    }
}

/// What is wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DesyncKind {
    /// Most ranks entered a collective and a few did not.
    #[default]
    Missing,
    /// A few ranks entered a collective and most did not.
    Extra,
    /// All ranks entered a call that does not end: `ranks` are those still in it, if others have left.
    Stalled,
    /// The ranks call different ops under one number.
    Op,
    /// The ranks disagree on the payload.
    Bytes,
    /// The ranks disagree on the element type.
    Dtype,
    /// A send whose destination does not receive.
    SendWithoutRecv,
    /// A receive whose source does not send.
    RecvWithoutSend,
    /// The rank's record breaks off while others went on or ended regularly.
    Stopped,
    /// The rank has no record.
    NoRecord,
}

impl DesyncKind {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Stalled => "stalled",
            Self::Op => "op",
            Self::Bytes => "bytes",
            Self::Dtype => "dtype",
            Self::SendWithoutRecv => "send_without_recv",
            Self::RecvWithoutSend => "recv_without_send",
            Self::Stopped => "stopped",
            Self::NoRecord => "no_record",
        }
    }

    /// Whether ranks made different calls under one number.
    pub fn is_disagreement(self) -> bool {
        matches!(self, Self::Op | Self::Bytes | Self::Dtype)
    }
}

/// What one side of a disagreement says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DesyncSide {
    /// The op.
    pub op: String,
    /// Payload in bytes, if recorded.
    pub bytes: Option<u64>,
    /// Element type, if recorded.
    pub dtype: Option<String>,
    /// Who says so.
    pub ranks: Vec<u32>,
}

/// The call that holds up the ranks that others wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockedBy {
    /// Its communicator.
    pub comm: Option<String>,
    /// Its number.
    pub seq: Option<u64>,
    /// The op.
    pub op: Option<String>,
    /// The ranks that are missing here and held up there.
    pub ranks: Vec<u32>,
}
