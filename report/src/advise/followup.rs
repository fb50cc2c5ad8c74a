//! Whether to act on the worst hotspot.

use super::{HotspotSummary, Mitigation, Thresholds};
use crate::units;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What to do with the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The worst hotspot is small: leave it.
    Accept,
    /// The worst hotspot is worth an experiment.
    Tune,
    /// There is nothing to judge yet.
    CollectMoreEvidence,
}

impl Decision {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Tune => "tune",
            Self::CollectMoreEvidence => "collect_more_evidence",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The decision, why, and what to measure in the next round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Followup {
    /// What to do.
    pub decision: Decision,
    /// Why, as a sentence.
    pub reason: String,
    /// What to measure next: the mitigation's.
    pub next_measurements: Vec<String>,
}

/// [`recommend_comm_followup_with`] at the default thresholds.
pub fn recommend_comm_followup(summary: &HotspotSummary, mitigation: &Mitigation) -> Followup {
    recommend_comm_followup_with(summary, mitigation, &Thresholds::default())
}

/// Accept if the worst hotspot's exposed time is at most the threshold, tune if it is above, collect
/// more evidence if there is none.
pub fn recommend_comm_followup_with(
    summary: &HotspotSummary,
    mitigation: &Mitigation,
    thresholds: &Thresholds,
) -> Followup {
    let limit = thresholds.accept_exposed_ms;
    let (decision, reason) = match &summary.priority {
        None if summary.num_events > 0 => (
            Decision::CollectMoreEvidence,
            "It is known how long communication took and not when, so not how much of it was exposed."
                .to_string(),
        ),
        None => (
            Decision::CollectMoreEvidence,
            "No communication was recorded that could be compared.".to_string(),
        ),
        Some(priority) if priority.evidence.exposed_comm_ms <= limit => (
            Decision::Accept,
            format!(
                "The worst hotspot, {}, was exposed for {}, which is at most {}.",
                priority.collective,
                units::ms(priority.evidence.exposed_comm_ms),
                units::ms(limit)
            ),
        ),
        Some(priority) => (
            Decision::Tune,
            format!(
                "{} was exposed (not hidden by compute) for {}.",
                priority.collective,
                units::ms(priority.evidence.exposed_comm_ms)
            ),
        ),
    };
    Followup { decision, reason, next_measurements: mitigation.next_measurements.clone() }
}
