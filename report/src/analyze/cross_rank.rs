//! Waits across ranks: the figures.

use super::{Desync, ExpertRouting, RankWaits, Straggler};
use serde::{Deserialize, Serialize};

/// What the ranks tell together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CrossRank {
    /// Each rank's clock, in ascending order of rank.
    #[serde(default)]
    pub alignment: Vec<RankAlignment>,
    /// Figures per op that synchronizes its ranks, in first-seen order.
    pub ops: Vec<OpAcrossRanks>,
    /// The single collectives with the most exposed time, the worst first; at most 10.
    #[serde(default)]
    pub worst: Vec<WorstCollective>,
    /// Messages between two ranks; `None` if there are none, or in a running summary, which does not match
    /// them.
    #[serde(default)]
    pub point_to_point: Option<PointToPoint>,
    /// Where ranks are out of step at the end of the record, causes first.
    #[serde(default)]
    pub desync: Vec<Desync>,
    /// Events of such ops, and messages, that could not be matched with the other ranks' or are not in the
    /// figures.
    pub unmatched_events: u64,
    /// The first of them, per collective.
    pub unmatched: Vec<Unmatched>,
    /// Ranks that make others wait, worst first; only claimed where a rank does so clearly more than chance and
    /// noise explain (`docs/across-ranks.md` has the rule), else empty.
    #[serde(default)]
    pub stragglers: Vec<Straggler>,
    /// Waits that each rank caused and suffered, by ascending rank.
    #[serde(default)]
    pub by_rank: Vec<RankWaits>,
    /// How tokens are routed to experts, and how evenly calls with bytes for each rank load the ranks; `None` if
    /// fewer than two ranks recorded such.
    #[serde(default)]
    pub routing: Option<Box<ExpertRouting>>,
}

/// How a rank's clock relates to that of the lowest aligned rank. Ranks of one host share a clock.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RankAlignment {
    /// Global rank.
    pub rank: u32,
    /// By how much the rank's clock was ahead at the start of the run, in milliseconds; `None` if it is not
    /// aligned.
    pub offset_ms: Option<f64>,
    /// By how many millionths it runs faster; `None` if it is not aligned.
    pub drift_ppm: Option<f64>,
    /// How far off instants of this rank may be on the common time scale, in milliseconds: 0 for ranks that
    /// share the clock of the lowest aligned rank, `None` if it is not aligned. A difference between two
    /// ranks is uncertain by the sum of both.
    pub uncertainty_ms: Option<f64>,
    /// Whether collectives tie the clock to that of the lowest aligned rank. If not, waits are only known
    /// among the ranks that it is tied to.
    pub aligned: bool,
}

impl RankAlignment {
    /// A rank on the clock that is the common time scale.
    pub fn reference(rank: u32) -> Self {
        let zero = Some(0.0);
        Self { rank, offset_ms: zero, drift_ppm: zero, uncertainty_ms: zero, aligned: true }
    }
}

/// One op over its matched collectives. Times are sums over collectives of the mean over ranks, in
/// milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpAcrossRanks {
    /// The op.
    pub collective: String,
    /// Collectives that the figures are over: those with all members, if there is any; else those with
    /// at least two ranks.
    pub matched: u64,
    /// Whether members are missing from all of them. Waits are lower bounds then: who is missing may
    /// have come later.
    pub partial: bool,
    /// From a rank's start to the last arrival. Of ranks on different clocks, arrivals that are no further
    /// apart than the clocks are uncertain (see `uncertainty_ms`) are taken as simultaneous: no wait is
    /// claimed.
    pub wait_ms: f64,
    /// From then on.
    pub transfer_ms: f64,
    /// The part of `wait_ms` without compute beside it.
    pub exposed_wait_ms: f64,
    /// The part of `transfer_ms` without compute beside it.
    pub exposed_transfer_ms: f64,
    /// (largest − smallest sum of waits of a rank) / sum of the longest rank's durations, 0 to 1: the
    /// share of the collectives' time that is lost to the same ranks being late.
    pub rank_imbalance_ratio: f64,
    /// Its lower 95 % bound, by bootstrap over steps; `None` for a single step.
    pub rank_imbalance_lower: Option<f64>,
    /// Steps (or blocks of consecutive collectives, where no step is known) that the bound rests on.
    #[serde(default)]
    pub bootstrap_steps: u64,
    /// Batches that these were joined into, since lateness lasts for several steps.
    pub bootstrap_blocks: u64,
    /// Sum of (last − first arrival) / sum of the longest rank's durations, at most 1. Lateness that
    /// moves from rank to rank shows here and not in the imbalance.
    pub arrival_spread_ratio: f64,
    /// What the op's time mostly is.
    pub verdict: Verdict,
    /// How fast bytes moved.
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// Of ops whose ranks may move different amounts: the largest rank's payload over the mean of the
    /// ranks, 1 if all are equal; `None` if a payload is not known.
    #[serde(default)]
    pub bytes_imbalance: Option<f64>,
    /// The same per communicator, those with the most exposed time first.
    #[serde(default)]
    pub by_communicator: Vec<CommunicatorWaits>,
    /// The same per size of the payload, in powers of two, in ascending order.
    #[serde(default)]
    pub by_size: Vec<SizeWaits>,
    /// The same per step, in ascending order.
    #[serde(default)]
    pub by_step: Vec<StepWaits>,
    /// Collectives that are in none of `by_communicator` or `by_step`, of which only so many are kept.
    #[serde(default)]
    pub not_broken_down: u64,
    /// The largest uncertainty of a difference between two ranks' arrivals that applied in one of its
    /// collectives, in milliseconds: 0 where all ranks share a clock. Waits of less are not in `wait_ms`.
    #[serde(default)]
    pub uncertainty_ms: f64,
}

/// What an op's time mostly is: waiting for the last rank, or moving bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// At most a third of the time is waiting.
    TransferDominated,
    /// At least two thirds of the time is waiting.
    ArrivalDominated,
    /// In between.
    Mixed,
    /// Fewer than 5 collectives, no time at all, or members missing (unless waiting dominates anyway).
    #[default]
    Inconclusive,
}

impl Verdict {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TransferDominated => "transfer-dominated",
            Self::ArrivalDominated => "arrival-dominated",
            Self::Mixed => "mixed",
            Self::Inconclusive => "inconclusive",
        }
    }

    pub(super) fn of(matched: u64, partial: bool, wait: f64, transfer: f64) -> Self {
        let total = wait + transfer;
        if matched < 5 || total <= 0.0 {
            Self::Inconclusive
        } else if wait >= total * 2.0 / 3.0 {
            Self::ArrivalDominated
        } else if partial {
            Self::Inconclusive
        } else if wait <= total / 3.0 {
            Self::TransferDominated
        } else {
            Self::Mixed
        }
    }
}

/// Figures over some of an op's matched collectives, as in [`OpAcrossRanks`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitFigures {
    /// Collectives.
    pub matched: u64,
    /// From a rank's start to the last arrival: sum over collectives of the mean over ranks.
    pub wait_ms: f64,
    /// From then on.
    pub transfer_ms: f64,
    /// The part of `wait_ms` without compute beside it.
    pub exposed_wait_ms: f64,
    /// The part of `transfer_ms` without compute beside it.
    pub exposed_transfer_ms: f64,
    /// Sum of (last − first arrival) / sum of the longest rank's durations, at most 1.
    pub arrival_spread_ratio: f64,
    /// What the time mostly is.
    pub verdict: Verdict,
    /// How fast bytes moved.
    pub bandwidth: Bandwidth,
}

/// How fast bytes moved, as nccl-tests counts them ("Performance reported by NCCL tests",
/// `doc/PERFORMANCE.md` of nccl-tests); GB are 10^9 bytes. `None` where no payload is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bandwidth {
    /// Sum over collectives of the shortest rank's duration: the rank that came last waited for nobody,
    /// so this is the time that moving the bytes took.
    pub latency_ms: f64,
    /// Sum of the payloads, where known; of ranks that move different amounts, the largest.
    pub bytes: Option<u64>,
    /// `bytes` over the latency of these collectives.
    pub algbw_gbs: Option<f64>,
    /// `algbw_gbs` times the share of the payload that crosses each rank's link, for example 2(n-1)/n for
    /// an all_reduce of n ranks; `None` for ops that have none.
    pub busbw_gbs: Option<f64>,
    /// `bytes` over the mean of the ranks' own durations, waits included: what each rank alone sees.
    pub own_algbw_gbs: Option<f64>,
    /// `own_algbw_gbs` times the same share.
    pub own_busbw_gbs: Option<f64>,
}

/// Figures of one op on one communicator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommunicatorWaits {
    /// The communicator.
    pub comm: String,
    /// Its ranks, those that were not read included.
    pub comm_size: u32,
    /// The imbalance between its ranks, as of an op.
    pub rank_imbalance_ratio: f64,
    /// The figures.
    #[serde(flatten)]
    pub figures: WaitFigures,
}

/// Figures of one op for payloads of similar size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeWaits {
    /// The sizes, for example `1 MiB-2 MiB`; `unknown` where the payload is not.
    pub size: String,
    /// The smallest payload in bytes.
    pub from_bytes: Option<u64>,
    /// All payloads are below this.
    pub below_bytes: Option<u64>,
    /// The imbalance between ranks, as of an op.
    pub rank_imbalance_ratio: f64,
    /// The figures.
    #[serde(flatten)]
    pub figures: WaitFigures,
}

/// Figures of one op in one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepWaits {
    /// The step's number.
    pub step: i64,
    /// The imbalance between ranks, as of an op; `None` if not all ranks took part, or for runs so long
    /// that steps were joined.
    pub rank_imbalance_ratio: Option<f64>,
    /// The figures.
    #[serde(flatten)]
    pub figures: WaitFigures,
}

/// One collective; times are means over its ranks, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorstCollective {
    /// The op.
    pub collective: String,
    /// The communicator.
    pub comm: String,
    /// The number in the communicator, if recorded.
    pub seq: Option<u64>,
    /// The step, if known.
    pub step: Option<i64>,
    /// Payload in bytes, if known.
    pub bytes: Option<u64>,
    /// From a rank's start to the last arrival.
    pub wait_ms: f64,
    /// From then on.
    pub transfer_ms: f64,
    /// The part of `wait_ms` without compute beside it.
    pub exposed_wait_ms: f64,
    /// The part of `transfer_ms` without compute beside it.
    pub exposed_transfer_ms: f64,
    /// From the first to the last arrival.
    pub arrival_spread_ms: f64,
    /// The global rank that arrived last.
    pub last_rank: u32,
}

/// Messages between two ranks: sends that were matched with their receives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointToPoint {
    /// Messages of which both sides are known.
    pub matched: u64,
    /// Calls whose other side is not known, or contradicts them; they are among those of [`CrossRank`].
    pub unmatched_events: u64,
    /// Sum of the payloads of matched messages in bytes; `None` if one is not known.
    pub bytes: Option<u64>,
    /// Sum of the times that receivers were in the call before the sender was: min(the receive's end,
    /// the send's start) − the receive's start. `None` if the ranks' clocks cannot be compared.
    pub late_sender_ms: Option<f64>,
    /// Sum of the times that senders were in the call before the receiver was.
    pub late_receiver_ms: Option<f64>,
    /// The senders and receivers that lost most, the worst first; at most 20.
    pub worst: Vec<PeerWaits>,
}

/// Matched messages from one rank to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerWaits {
    /// The communicator.
    pub comm: String,
    /// Global rank of the sender.
    pub source: u32,
    /// Global rank of the receiver.
    pub destination: u32,
    /// Messages.
    pub matched: u64,
    /// Sum of their payloads in bytes; `None` if one is not known.
    pub bytes: Option<u64>,
    /// As in [`PointToPoint`].
    pub late_sender_ms: Option<f64>,
    /// As in [`PointToPoint`].
    pub late_receiver_ms: Option<f64>,
}

/// A collective that is not in the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unmatched {
    /// The communicator, if recorded.
    pub comm: Option<String>,
    /// The number in the communicator, if recorded.
    pub seq: Option<u64>,
    /// The op (the first rank's, if they disagree).
    pub op: String,
    /// Why.
    pub reason: UnmatchedReason,
    /// The ranks whose events these are.
    pub ranks: Vec<u32>,
}

/// Why a collective is not in the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnmatchedReason {
    /// No communicator or sequence number was recorded, and the order of calls cannot be relied upon: the
    /// ranks' calls differ in number, op, type or size.
    NotNumbered,
    /// No other rank recorded it, or others did not while complete collectives of the op exist.
    MembersMissing,
    /// One rank recorded the number twice, or more ranks did than the communicator has.
    Ambiguous,
    /// The ranks disagree on op, bytes or dtype.
    Disagreement,
    /// A rank's event ends before it starts.
    EndBeforeStart,
}

impl UnmatchedReason {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotNumbered => "not_numbered",
            Self::MembersMissing => "members_missing",
            Self::Ambiguous => "ambiguous",
            Self::Disagreement => "disagreement",
            Self::EndBeforeStart => "end_before_start",
        }
    }
}
