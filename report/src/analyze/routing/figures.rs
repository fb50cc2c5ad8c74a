//! The figures of routing, as they are in the report.

use crate::timeline::RoutingPhase;
use serde::{Deserialize, Serialize};

/// What one rank sent and received in calls whose bytes for each rank were recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankRouting {
    /// Bytes that it sent in dispatches, those to itself included; `None` if it made none.
    pub dispatch_payload_bytes: Option<u64>,
    /// The part of them for other ranks.
    pub dispatch_cross_rank_bytes: Option<u64>,
    /// Tokens that it sent in dispatches, those to itself included; `None` if none were counted.
    pub dispatched_tokens: Option<u64>,
    /// The share of these tokens that went to other ranks.
    pub cross_rank_token_ratio: Option<f64>,
    /// `dispatched_tokens` per second of the rank's `wall.span_ms`; `None` if some were not counted.
    pub throughput_tokens_per_s: Option<f64>,
    /// Calls of dispatch and combine whose tokens were not counted, as the bytes for each rank are no whole tokens.
    pub without_token_count: u64,
    /// Calls of all_to_all_v without bytes for each rank: they are in no figure here.
    pub without_peer_bytes: u64,
    /// Records of the rank's process were lost, so that its sums may be too small.
    pub lost_records: bool,
    /// The sums per communicator, op and phase.
    pub exchanges: Vec<RankExchanges>,
}

/// Sums over one rank's calls of one op on one communicator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankExchanges {
    /// The communicator, if it has a name.
    pub comm: Option<String>,
    /// Its ranks.
    pub comm_size: u32,
    /// The rank's number in it.
    pub comm_rank: u32,
    /// The op.
    pub collective: String,
    /// What the calls are for, if they carry tokens.
    pub phase: Option<RoutingPhase>,
    /// Calls.
    pub calls: u64,
    /// Bytes sent, those to itself included.
    pub sent_bytes: u64,
    /// Bytes sent to other ranks.
    pub sent_to_others_bytes: u64,
    /// Bytes received, those from itself included.
    pub received_bytes: u64,
    /// Tokens sent; `None` if none were counted.
    pub sent_tokens: Option<u64>,
    /// Tokens sent to other ranks.
    pub sent_to_others_tokens: Option<u64>,
    /// Tokens received.
    pub received_tokens: Option<u64>,
    /// Calls whose tokens were not counted.
    pub without_token_count: u64,
    /// Bytes for each rank that got any. In communicators of more than 64 ranks the 8 that got most; of
    /// more than 256, none: what they got was not recorded one by one.
    pub sent_to: Vec<PeerBytes>,
}

/// Bytes for one rank of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerBytes {
    /// The rank's number in the communicator.
    pub peer: u32,
    /// Bytes.
    pub bytes: u64,
}

/// How tokens are routed to experts, and how evenly exchanges load the ranks. `docs/across-ranks.md` has
/// the definitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExpertRouting {
    /// Bytes that all ranks sent in dispatches, those to themselves included; `None` if there were no dispatches.
    pub dispatch_payload_bytes: Option<u64>,
    /// The part of them for other ranks.
    pub dispatch_cross_rank_bytes: Option<u64>,
    /// Tokens sent in dispatches. A token counts once for each expert and layer it goes to. `None` if none were counted.
    pub dispatched_tokens: Option<u64>,
    /// The share of these tokens that went to other ranks.
    pub cross_rank_token_ratio: Option<f64>,
    /// Tokens that the most loaded rank received in dispatches, over the mean of the ranks: 1 if all get as many.
    /// `None` if not all ranks' tokens of all dispatches are known.
    pub expert_load_skew: Option<f64>,
    /// That rank; the lowest of several.
    pub hottest_rank: Option<u32>,
    /// `dispatched_tokens` per second of the longest rank's `wall.span_ms`; `None` if some were not counted.
    pub throughput_tokens_per_s: Option<f64>,
    /// Whether each communicator's ranks were all read, with as many calls each and nothing lost. Else figures of
    /// balance are `None`, and sums are those of what was recorded.
    pub complete: bool,
    /// Calls, of all ranks, of dispatch and combine whose tokens were not counted.
    pub without_token_count: u64,
    /// Calls of all_to_all_v, of all ranks, without bytes for each rank.
    pub without_peer_bytes: u64,
    /// The same per communicator, op and phase, those with the most bytes between ranks first.
    pub by_communicator: Vec<ExchangeFigures>,
}

/// The calls of one op on one communicator, over all its ranks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExchangeFigures {
    /// The communicator, if it has a name.
    pub comm: Option<String>,
    /// Its ranks.
    pub comm_size: u32,
    /// The op.
    pub collective: String,
    /// What the calls are for, if they carry tokens.
    pub phase: Option<RoutingPhase>,
    /// Calls of each rank; of the rank with the most, if they are not equal.
    pub exchanges: u64,
    /// Whether all ranks were read, with as many calls each and nothing lost.
    pub complete: bool,
    /// Bytes sent, those of ranks to themselves included.
    pub bytes: u64,
    /// Bytes sent to other ranks.
    pub cross_rank_bytes: u64,
    /// Bytes that the rank which sends most sends, over the mean of the ranks; `None` if not `complete`.
    pub sent_imbalance: Option<f64>,
    /// That rank.
    pub most_sent_rank: Option<u32>,
    /// As `sent_imbalance`, of bytes received.
    pub received_imbalance: Option<f64>,
    /// That rank.
    pub most_received_rank: Option<u32>,
    /// Tokens sent; `None` if none were counted.
    pub tokens: Option<u64>,
    /// The share of them for other ranks.
    pub cross_rank_token_ratio: Option<f64>,
    /// Pairs of different ranks with the most bytes, the heaviest first; at most 8.
    pub heaviest_pairs: Vec<PairBytes>,
    /// Global ranks in the communicator's order; empty where there is no matrix.
    pub ranks: Vec<u32>,
    /// Bytes from each rank (row) to each rank (column), in the order of `ranks`; `None` in communicators of more than
    /// 64 ranks, and if not `complete`.
    pub bytes_by_pair: Option<Vec<Vec<u64>>>,
}

/// Bytes from one rank to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairBytes {
    /// Global rank that sent them.
    pub source: u32,
    /// Global rank that received them.
    pub destination: u32,
    /// Bytes.
    pub bytes: u64,
}
