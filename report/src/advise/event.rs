//! The evidence that advice is based on: one op's figures.

use serde::{Deserialize, Serialize};

/// Figures of one op, as exported by an analysis or written by hand.
///
/// Read from JSON, `sync_count` defaults to 1, `total_comm_ms` to the exposed time, and
/// `rank_imbalance_observed` to whether a ratio is given. Of an event whose exposed time is not known
/// (it has durations and no place in time), advice makes nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "Partial")]
pub struct HotspotEvent {
    /// The op, for example `all_reduce`.
    pub collective: String,
    /// How often it was called.
    pub sync_count: u64,
    /// Sum of its durations, milliseconds.
    pub total_comm_ms: f64,
    /// Sum of its exposed time, milliseconds; `None` if not known.
    pub exposed_comm_ms: Option<f64>,
    /// Sum of its payloads; `None` if nothing says.
    pub payload_bytes: Option<u64>,
    /// Hidden share of `total_comm_ms`, 0 to 1; `None` if not known.
    pub overlap_ratio: Option<f64>,
    /// Share of the collectives' time lost to the same ranks being late, 0 to 1; `None` if unknown.
    pub rank_imbalance_ratio: Option<f64>,
    /// Whether the imbalance was measured. Unmeasured is not balanced.
    pub rank_imbalance_observed: bool,
    /// Lower 95 % bound of `rank_imbalance_ratio`; where it is known, it is what is judged. Not in JSON.
    #[serde(skip)]
    pub rank_imbalance_lower: Option<f64>,
    /// The rank whose count, bytes and times these are, if there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

impl HotspotEvent {
    /// The imbalance that decisions are made by: the lower bound, else the ratio; `None` if unobserved.
    pub(super) fn judged_imbalance(&self) -> Option<f64> {
        if !self.rank_imbalance_observed {
            return None;
        }
        self.rank_imbalance_lower.or(self.rank_imbalance_ratio)
    }
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Partial {
    collective: String,
    sync_count: Option<u64>,
    total_comm_ms: Option<f64>,
    exposed_comm_ms: Option<f64>,
    payload_bytes: Option<u64>,
    overlap_ratio: Option<f64>,
    rank_imbalance_ratio: Option<f64>,
    rank_imbalance_observed: Option<bool>,
    rank: Option<u32>,
}

impl TryFrom<Partial> for HotspotEvent {
    type Error = String;

    fn try_from(partial: Partial) -> Result<Self, String> {
        let Some(total_comm_ms) = partial.total_comm_ms.or(partial.exposed_comm_ms) else {
            return Err(format!("the event of {:?} has no exposed_comm_ms", partial.collective));
        };
        if partial.exposed_comm_ms.is_some() && partial.overlap_ratio.is_none() {
            return Err(format!("the event of {:?} has no overlap_ratio", partial.collective));
        }
        Ok(Self {
            collective: partial.collective,
            sync_count: partial.sync_count.unwrap_or(1),
            total_comm_ms,
            exposed_comm_ms: partial.exposed_comm_ms,
            payload_bytes: partial.payload_bytes,
            overlap_ratio: partial.overlap_ratio,
            rank_imbalance_ratio: partial.rank_imbalance_ratio,
            rank_imbalance_observed: partial
                .rank_imbalance_observed
                .unwrap_or(partial.rank_imbalance_ratio.is_some()),
            rank_imbalance_lower: None,
            rank: partial.rank,
        })
    }
}
