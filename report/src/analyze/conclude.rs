//! What is said across ranks, once all collectives were matched.

use super::{CrossRank, CrossRankAccumulator, Unmatched, UnmatchedReason};
use crate::timeline::{Names, Sym};
use indexmap::IndexMap;
use std::collections::BTreeSet;

/// What did not make it into the figures.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Events of collectives that could not be matched.
    pub events: u64,
    /// The first such collectives.
    pub listed: Vec<Unmatched>,
    /// Ranks of events without a number, per op.
    pub not_numbered: IndexMap<Sym, BTreeSet<u32>>,
}

/// The figures across ranks. `warnings` says if no two ranks have a collective in common, and
/// which figures are lower bounds.
pub(crate) fn conclude(
    accumulator: &CrossRankAccumulator,
    left_out: LeftOut,
    names: &Names,
    warnings: &mut Vec<String>,
) -> CrossRank {
    let (ops, incomplete) = accumulator.finish();
    let partial: BTreeSet<&str> =
        ops.iter().filter(|op| op.partial).map(|op| op.collective.as_str()).collect();
    let numbered = left_out.listed.into_iter().filter(|one| {
        // Two ranks or more of an op that is partial throughout are in its figures.
        one.reason != UnmatchedReason::MembersMissing
            || one.ranks.len() < 2
            || !partial.contains(one.op.as_str())
    });
    let not_numbered = left_out.not_numbered.into_iter().map(|(op, ranks)| Unmatched {
        comm: None,
        seq: None,
        op: names.get(op).to_string(),
        reason: UnmatchedReason::NotNumbered,
        ranks: ranks.into_iter().collect(),
    });
    let unmatched = not_numbered.chain(numbered).collect();
    let unmatched_events = left_out.events + incomplete;
    if ops.is_empty() {
        warnings.push(format!(
            "Waits across ranks are not given: no collective was recorded by two ranks with the same \
             communicator and sequence number ({unmatched_events} events unmatched)."
        ));
    } else if !partial.is_empty() {
        let partial: Vec<&str> =
            ops.iter().filter(|op| op.partial).map(|op| op.collective.as_str()).collect();
        warnings.push(format!(
            "Not all ranks of a communicator were read: waits of {} are lower bounds.",
            partial.join(", ")
        ));
    }
    CrossRank { ops, worst: accumulator.worst(), unmatched_events, unmatched, ..CrossRank::default() }
}
