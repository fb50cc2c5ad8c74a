//! From a summary to the op that costs most, and to the events that advice is based on.

use super::{OpSummary, Summary};
use crate::advise::HotspotEvent;
use serde::{Deserialize, Serialize};

/// The op with the largest exposed time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpHotspot {
    /// The op.
    pub op: String,
    /// Its exposed time, milliseconds.
    pub exposed_time: f64,
    /// Its payload in bytes, if known.
    pub bytes: Option<u64>,
}

/// The op with the largest exposed time, ties to the one seen first; `None` without events whose
/// exposed time is known.
///
/// `find_priority_hotspot` of "Communication Profiling with NCCL".
pub fn find_priority_hotspot(summary: &Summary) -> Option<OpHotspot> {
    let mut worst: Option<OpHotspot> = None;
    for (op, figures) in &summary.by_op {
        let Some(exposed_time) = figures.exposed_time else { continue };
        if worst.as_ref().is_none_or(|best| exposed_time > best.exposed_time) {
            worst = Some(OpHotspot { op: op.clone(), exposed_time, bytes: figures.bytes });
        }
    }
    worst
}

/// One event per op for [`advise`](crate::advise), imbalance not observed.
///
/// `export_hotspot_events` of "Communication Profiling with NCCL".
pub fn export_hotspot_events(summary: &Summary) -> Vec<HotspotEvent> {
    summary.by_op.iter().map(|(op, figures)| hotspot_event(op, figures)).collect()
}

pub(super) fn hotspot_event(op: &str, figures: &OpSummary) -> HotspotEvent {
    let hidden_ms = figures.exposed_time.map(|exposed| (figures.time - exposed).max(0.0));
    HotspotEvent {
        collective: op.to_string(),
        sync_count: figures.count,
        total_comm_ms: figures.time,
        exposed_comm_ms: figures.exposed_time,
        payload_bytes: figures.bytes,
        overlap_ratio: hidden_ms.map(|hidden| hidden / figures.time.max(1e-8)),
        rank_imbalance_ratio: None,
        rank_imbalance_observed: false,
        rank_imbalance_lower: None,
        rank: None,
    }
}
