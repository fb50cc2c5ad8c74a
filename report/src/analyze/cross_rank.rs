//! Waits across ranks: the figures.

use serde::{Deserialize, Serialize};

/// What the ranks tell together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CrossRank {
    /// Figures per op that synchronizes its ranks, in first-seen order.
    pub ops: Vec<OpAcrossRanks>,
    /// Communication events of such ops that could not be matched with the other ranks' or are not in
    /// the figures.
    pub unmatched_events: u64,
    /// The first of them, per collective.
    pub unmatched: Vec<Unmatched>,
}

/// One op over its matched collectives. Times are sums over collectives of the mean over ranks, in
/// milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpAcrossRanks {
    /// The op.
    pub collective: String,
    /// Collectives that the figures are over: those with all members, if there is any; else those with
    /// at least two ranks.
    pub matched: u64,
    /// Whether members are missing from all of them. Waits are lower bounds then: who is missing may
    /// have come later.
    pub partial: bool,
    /// From a rank's start to the last arrival.
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
    pub bootstrap_blocks: u64,
    /// Sum of (last − first arrival) / sum of the longest rank's durations, at most 1. Lateness that
    /// moves from rank to rank shows here and not in the imbalance.
    pub arrival_spread_ratio: f64,
    /// What the op's time mostly is.
    pub verdict: Verdict,
}

/// What an op's time mostly is: waiting for the last rank, or moving bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// At most a third of the time is waiting.
    TransferDominated,
    /// At least two thirds of the time is waiting.
    ArrivalDominated,
    /// In between.
    Mixed,
    /// Fewer than 5 collectives, no time at all, or members missing (unless waiting dominates anyway).
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

/// A collective that is not in the figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[serde(rename_all = "snake_case")]
pub enum UnmatchedReason {
    /// No communicator or sequence number was recorded.
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
