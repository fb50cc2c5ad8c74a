//! The object that a report is: what `report --format json` prints.

use super::{CrossRank, RankRouting, StepFigures, Summary, Wall, ms_from_ns};
use crate::advise::{Followup, HotspotEvent, HotspotSummary, Mitigation};
use crate::nccl::{Inspector, NcclLog, NcclTests};
use crate::timeline::{Input, MatchKind, RuleMatch, Untimed};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Version of the JSON's keys and their meaning. If you change any of them, raise this.
pub const REPORT_SCHEMA_VERSION: u32 = 1;

/// Everything that is known about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// [`REPORT_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What was read, and what of it could not be used.
    pub inputs: Vec<InputReport>,
    /// Figures per rank and device.
    pub ranks: Vec<RankReport>,
    /// One event per op, of the rank with the largest exposed time for it.
    pub hotspot_events: Vec<HotspotEvent>,
    /// The events per op, and the op to look at first.
    pub hotspots: HotspotSummary,
    /// What to try.
    pub mitigation: Mitigation,
    /// Whether to try it.
    pub followup: Followup,
    /// Waits across ranks; `None` if fewer than two ranks could be compared.
    pub cross_rank: Option<CrossRank>,
    /// What a reader of the figures has to know, each a whole sentence. Not in JSON.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// One file that was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InputReport {
    /// Its path.
    pub path: String,
    /// Its format.
    pub format: String,
    /// Events kept.
    pub events: u64,
    /// Events left out, per reason.
    pub skipped: IndexMap<String, u64>,
    /// Events kept although something about them is odd, per kind.
    pub anomalies: IndexMap<String, u64>,
    /// What matched which rule over names; not in JSON for inputs that need no rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleReport>,
    /// What a debug log of NCCL tells; only in JSON for such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl_log: Option<Box<NcclLog>>,
    /// The table of a run of nccl-tests; only in JSON for such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl_tests: Option<Box<NcclTests>>,
    /// What a dump of the NCCL Inspector tells; only in JSON for such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspector: Option<Box<Inspector>>,
}

/// What a rule over names matched in one input.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleReport {
    /// The rule in words.
    pub rule: String,
    /// `comm`, `compute` or `neither`.
    pub kind: String,
    /// The operation, for communication.
    pub op: Option<String>,
    /// Events that it matched.
    pub events: u64,
    /// Sum of their durations.
    pub time_ms: f64,
}

impl From<&RuleMatch> for RuleReport {
    fn from(rule: &RuleMatch) -> Self {
        let kind = match rule.kind {
            MatchKind::Comm => "comm",
            MatchKind::Compute => "compute",
            MatchKind::Neither => "neither",
        };
        Self {
            rule: rule.rule.clone(),
            kind: kind.to_owned(),
            op: rule.op.clone(),
            events: rule.events,
            time_ms: ms_from_ns(rule.time_ns.into()),
        }
    }
}

impl From<&Input> for InputReport {
    fn from(input: &Input) -> Self {
        Self {
            path: input.path.clone(),
            format: input.format.clone(),
            events: input.events,
            skipped: input.skipped.clone(),
            anomalies: input.anomalies.clone(),
            rules: input.rules.iter().map(RuleReport::from).collect(),
            nccl_log: input.nccl_log.clone(),
            nccl_tests: input.nccl_tests.clone(),
            inspector: input.inspector.clone(),
        }
    }
}

/// Figures of one rank on one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankReport {
    /// Global rank.
    pub rank: u32,
    /// Device ordinal; `None` for what the host timed.
    pub device: Option<u32>,
    /// Sums over events.
    pub summary: Summary,
    /// Unions over time; `None`, and in JSON an object of `null`s, if communication has only durations.
    #[serde(with = "super::wall::or_nulls")]
    #[cfg_attr(feature = "schema", schemars(with = "super::wall::or_nulls::Figures"))]
    pub wall: Option<Wall>,
    /// Communication without a time, counted beside the summary.
    pub untimed: UntimedReport,
    /// Figures per step, in ascending order of its number.
    pub steps: Vec<StepFigures>,
    /// What it sent and received in calls whose bytes for each rank were recorded; not in JSON without such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<Box<RankRouting>>,
}

/// Communication that was recorded without a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UntimedReport {
    /// Number of records.
    pub count: u64,
    /// Sum of the bytes they carried.
    pub bytes: u64,
    /// Number of records per reason, for example `captured`. Not in JSON.
    #[serde(skip)]
    pub reasons: IndexMap<String, u64>,
}

impl From<&Untimed> for UntimedReport {
    fn from(untimed: &Untimed) -> Self {
        Self { count: untimed.count, bytes: untimed.bytes, reasons: untimed.reasons.clone() }
    }
}
