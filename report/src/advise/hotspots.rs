//! Events to one bucket per op, and the op to look at first.

use super::HotspotEvent;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// All events, aggregated per op.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HotspotSummary {
    /// One bucket per op, in first-seen order.
    pub by_collective: IndexMap<String, HotspotBucket>,
    /// The op with the largest exposed time (ties: the first seen); `None` without events.
    pub priority: Option<PriorityHotspot>,
    /// Number of events, those whose exposed time is not known included.
    pub num_events: u64,
}

/// Aggregated evidence of one op.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HotspotBucket {
    /// Number of events.
    pub count: u64,
    /// Sum of the events' `sync_count`.
    pub sync_count: u64,
    /// Sum of durations, milliseconds.
    pub total_comm_ms: f64,
    /// Sum of exposed time, milliseconds.
    pub exposed_comm_ms: f64,
    /// Sum of the known payloads; `None` if no event says.
    pub payload_bytes: Option<u64>,
    /// The worst (lowest) overlap ratio: a mean would hide the worst path.
    pub overlap_ratio: f64,
    /// The largest observed imbalance; 0.0 if none was observed.
    pub rank_imbalance_ratio: f64,
    /// Whether any event's imbalance was observed.
    #[serde(default = "observed_unless_said")]
    pub rank_imbalance_observed: bool,
    /// What is judged instead of the ratio where a lower bound is known. Not in JSON.
    #[serde(skip)]
    pub rank_imbalance_lower: Option<f64>,
}

/// The chapter reads a summary that does not say as observed.
fn observed_unless_said() -> bool {
    true
}

impl HotspotBucket {
    /// Evidence of one op with its exposed time (milliseconds), overlap ratio and payload; one call,
    /// imbalance not observed.
    pub fn new(exposed_comm_ms: f64, overlap_ratio: f64, payload_bytes: Option<u64>) -> Self {
        Self {
            count: 1,
            sync_count: 1,
            total_comm_ms: exposed_comm_ms,
            exposed_comm_ms,
            payload_bytes,
            overlap_ratio,
            rank_imbalance_ratio: 0.0,
            rank_imbalance_observed: false,
            rank_imbalance_lower: None,
        }
    }

    fn empty() -> Self {
        Self { count: 0, sync_count: 0, ..Self::new(0.0, 1.0, None) }
    }

    fn add(&mut self, event: &HotspotEvent, exposed_comm_ms: f64, overlap_ratio: f64) {
        self.count += 1;
        self.sync_count = self.sync_count.saturating_add(event.sync_count);
        self.total_comm_ms += event.total_comm_ms;
        self.exposed_comm_ms += exposed_comm_ms;
        if let Some(bytes) = event.payload_bytes {
            self.payload_bytes = Some(self.payload_bytes.unwrap_or(0).saturating_add(bytes));
        }
        self.overlap_ratio = self.overlap_ratio.min(overlap_ratio);
        let Some(judged) = event.judged_imbalance() else { return };
        // Judge what was judged so far against this event's figure before the ratio changes.
        let earlier = self.judged_imbalance().unwrap_or(0.0);
        if event.rank_imbalance_lower.is_some() || self.rank_imbalance_lower.is_some() {
            self.rank_imbalance_lower = Some(earlier.max(judged));
        }
        self.rank_imbalance_ratio = self.rank_imbalance_ratio.max(event.rank_imbalance_ratio.unwrap_or(0.0));
        self.rank_imbalance_observed = true;
    }

    /// The imbalance that decisions are made by; `None` if it was not observed.
    pub fn judged_imbalance(&self) -> Option<f64> {
        self.rank_imbalance_observed.then(|| self.rank_imbalance_lower.unwrap_or(self.rank_imbalance_ratio))
    }
}

/// The op to look at first, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PriorityHotspot {
    /// The op.
    pub collective: String,
    /// Its evidence.
    #[serde(flatten)]
    pub evidence: HotspotBucket,
}

/// Aggregates events per op and picks the op with the largest exposed time.
///
/// Counts, times and bytes add up; the overlap ratio keeps the worst value and the imbalance the
/// largest. Ties of exposed time go to the op seen first. Events whose exposed time is not known are
/// counted and nothing else: what they cost the run cannot be compared.
pub fn summarize_comm_hotspots(events: &[HotspotEvent]) -> HotspotSummary {
    let mut by_collective: IndexMap<String, HotspotBucket> = IndexMap::new();
    for event in events {
        let (Some(exposed_ms), Some(ratio)) = (event.exposed_comm_ms, event.overlap_ratio) else { continue };
        let bucket = by_collective.entry(event.collective.clone()).or_insert_with(HotspotBucket::empty);
        bucket.add(event, exposed_ms, ratio);
    }
    let mut worst: Option<(&String, &HotspotBucket)> = None;
    for (collective, bucket) in &by_collective {
        if worst.is_none_or(|(_, best)| bucket.exposed_comm_ms > best.exposed_comm_ms) {
            worst = Some((collective, bucket));
        }
    }
    let priority = worst.map(|(collective, bucket)| PriorityHotspot {
        collective: collective.clone(),
        evidence: bucket.clone(),
    });
    HotspotSummary { by_collective, priority, num_events: events.len() as u64 }
}
