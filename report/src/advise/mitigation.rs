//! Which action fits the worst hotspot's evidence.

use super::{HotspotSummary, Thresholds};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What to try. The names in JSON are the chapter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// There is no communication to judge: record some first.
    CollectTrace,
    /// The same ranks come late: spread the work differently.
    RebalanceRanksOrExperts,
    /// Communication is hardly hidden: start it earlier, wait for it later, change buckets.
    IncreaseOverlapOrDelaySync,
    /// Token routing moves the bytes: move fewer, or between nearer ranks.
    ReduceRoutingTraffic,
    /// None of the patterns fits: look at payload and schedule of the op.
    InspectCollectivePayloadAndSchedule,
}

impl Strategy {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CollectTrace => "collect_trace",
            Self::RebalanceRanksOrExperts => "rebalance_ranks_or_experts",
            Self::IncreaseOverlapOrDelaySync => "increase_overlap_or_delay_sync",
            Self::ReduceRoutingTraffic => "reduce_routing_traffic",
            Self::InspectCollectivePayloadAndSchedule => "inspect_collective_payload_and_schedule",
        }
    }

    /// What to measure again after trying it.
    pub fn next_measurements(self) -> &'static [&'static str] {
        match self {
            Self::CollectTrace => &["rank_elapsed_ms", "payload_bytes"],
            Self::RebalanceRanksOrExperts => {
                &["rank_elapsed_ms", "expert_load_skew", "cross_rank_token_ratio"]
            }
            Self::IncreaseOverlapOrDelaySync => &["exposed_comm_ms", "overlap_ratio", "step_time_ms"],
            Self::ReduceRoutingTraffic => {
                &["dispatch_payload_bytes", "cross_rank_token_ratio", "throughput_tokens_per_s"]
            }
            Self::InspectCollectivePayloadAndSchedule => {
                &["payload_bytes", "exposed_comm_ms", "rank_elapsed_ms"]
            }
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The action to try next. A candidate for a controlled comparison, not a conclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mitigation {
    /// What to try.
    pub strategy: Strategy,
    /// The op that it is about.
    pub target: Option<String>,
    /// What to measure again afterwards.
    pub next_measurements: Vec<String>,
}

impl Mitigation {
    fn new(strategy: Strategy, target: Option<&str>) -> Self {
        Self {
            strategy,
            target: target.map(str::to_string),
            next_measurements: strategy.next_measurements().iter().map(ToString::to_string).collect(),
        }
    }
}

/// [`choose_comm_mitigation_with`] at the default thresholds.
pub fn choose_comm_mitigation(summary: &HotspotSummary) -> Mitigation {
    choose_comm_mitigation_with(summary, &Thresholds::default())
}

/// The action that fits the worst hotspot, in this order: observed rank imbalance, exposed
/// communication with little overlap, all-to-all routing traffic, else a closer look.
///
/// Imbalance is judged by its lower bound where one is known. All-to-all with an unknown payload is
/// not called routing traffic.
pub fn choose_comm_mitigation_with(summary: &HotspotSummary, thresholds: &Thresholds) -> Mitigation {
    let Some(priority) = &summary.priority else {
        return Mitigation::new(Strategy::CollectTrace, None);
    };
    let evidence = &priority.evidence;
    let routes = is_all_to_all(&priority.collective);
    let strategy = if evidence.judged_imbalance().is_some_and(|ratio| ratio > thresholds.imbalance) {
        Strategy::RebalanceRanksOrExperts
    } else if evidence.overlap_ratio < thresholds.overlap && evidence.exposed_comm_ms > 0.0 {
        Strategy::IncreaseOverlapOrDelaySync
    } else if routes && evidence.payload_bytes.is_some_and(|bytes| bytes > 0) {
        Strategy::ReduceRoutingTraffic
    } else {
        Strategy::InspectCollectivePayloadAndSchedule
    };
    Mitigation::new(strategy, Some(&priority.collective))
}

/// Whether calls of `collective` can route tokens.
pub(crate) fn is_all_to_all(collective: &str) -> bool {
    matches!(collective, "all_to_all" | "all_to_all_v")
}
