//! Who did not enter what others entered, per communicator at the end of the record.

use super::evidence::{CommEvidence, Ending, Entry, Evidence};
use super::finding::{Desync, DesyncKind};
use super::say::{self, Subject};
use crate::analyze::is_synchronizing;
use crate::timeline::Sym;
use std::collections::BTreeSet;

/// The calls of a communicator that have to be looked at: the first that a rank did not enter, and the
/// first that a rank did not leave.
pub(super) fn targets(
    evidence: &Evidence<'_>,
    comm: &CommEvidence,
    open: impl Iterator<Item = u64>,
) -> BTreeSet<u64> {
    first_missing(evidence, comm).into_iter().chain(open.min()).collect()
}

/// Members that were read, in ascending order.
fn readable(evidence: &Evidence<'_>, comm: &CommEvidence) -> BTreeSet<u32> {
    match &comm.members {
        Some(members) => members.iter().copied().filter(|rank| evidence.ranks.contains_key(rank)).collect(),
        None => comm.reach.keys().copied().collect(),
    }
}

/// Members that were not read, in ascending order.
fn not_read(evidence: &Evidence<'_>, comm: &CommEvidence) -> BTreeSet<u32> {
    let members = comm.members.iter().flatten().copied();
    members.filter(|rank| !evidence.ranks.contains_key(rank)).collect()
}

/// The first number that a rank that was read did not reach and another did.
fn first_missing(evidence: &Evidence<'_>, comm: &CommEvidence) -> Option<u64> {
    let newest = comm.reach.values().map(|reach| reach.last).max()?;
    let first = comm.reach.values().map(|reach| reach.first).min()?;
    let next = |rank: &u32| comm.reach.get(rank).map_or(first, |reach| reach.last.saturating_add(1));
    readable(evidence, comm).iter().map(next).min().filter(|&number| number <= newest)
}

/// What is wrong with the communicator's last calls.
pub(super) fn judge(evidence: &Evidence<'_>, name: Sym, comm: &CommEvidence) -> Vec<Desync> {
    let missing_at = first_missing(evidence, comm);
    let mut found = Vec::new();
    for (&seq, calls) in &comm.calls {
        if Some(seq) == missing_at {
            found.extend(missing(evidence, name, comm, seq, calls));
        } else if missing_at.is_none_or(|first| seq < first) {
            found.extend(stalled(evidence, name, comm, seq, calls));
        }
    }
    found
}

fn missing(
    evidence: &Evidence<'_>,
    name: Sym,
    comm: &CommEvidence,
    seq: u64,
    calls: &[Entry],
) -> Option<Desync> {
    let readable = readable(evidence, comm);
    let reached = |rank: &u32| comm.reach.get(rank).is_some_and(|reach| reach.last >= seq);
    let (entered, missing): (Vec<u32>, Vec<u32>) = readable.into_iter().partition(reached);
    let proof = absence(evidence, &missing, calls);
    let hangs = calls.iter().any(|call| evidence.hangs(call, comm.longest_ns));
    let waits = calls.iter().any(Entry::is_open);
    let stopped = missing.iter().all(|&rank| evidence.stopped(rank));
    let real = match proof {
        // Who left for good will not come.
        Proof::Left | Proof::Unknown => true,
        Proof::Absent { for_ns } => hangs || (!waits && for_ns >= evidence.patience_ns),
        Proof::Unproven => hangs || (waits && stopped),
    };
    if !real {
        return None;
    }
    let few = missing.len() <= entered.len();
    let ranks = if few { missing.clone() } else { entered.clone() };
    let mut weakened = say::losses(evidence, &missing);
    match proof {
        Proof::Unknown => weakened.push(
            "The input does not say whether the recordings ended regularly: later calls may be missing."
                .to_owned(),
        ),
        Proof::Unproven => weakened.push(say::cut_before(evidence, &missing, stopped)),
        Proof::Left | Proof::Absent { .. } => {}
    }
    let completed = |call: &Entry| !call.is_open() && is_synchronizing(evidence.names.get(call.op));
    if calls.iter().any(completed) {
        weakened.push(
            "The call ended on ranks that entered it, which it can only if all took part: it failed there, \
             its span covers no more than its submission, or records are missing."
                .to_owned(),
        );
    }
    let kind = if few { DesyncKind::Missing } else { DesyncKind::Extra };
    let subject = Subject { name: Some(name), comm: Some(comm), seq: Some(seq), calls };
    Some(Desync {
        entered,
        missing,
        not_read: not_read(evidence, comm).into_iter().collect(),
        weakened,
        ..say::about(evidence, &subject, kind, &ranks)
    })
}

/// What is known of the absence of ranks from a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// One of them ended regularly without it.
    Left,
    /// One of them is known not to have entered for this long after the others had.
    Absent { for_ns: i64 },
    /// Their records stop before, so they may have entered it.
    Unproven,
    /// The format does not say how the recording ended.
    Unknown,
}

/// What is known of the absence of the ranks `missing` from a call that others entered as `calls`.
pub(super) fn absence(evidence: &Evidence<'_>, missing: &[u32], calls: &[Entry]) -> Proof {
    let entered_ns = calls.iter().filter_map(|call| call.start_ns).min();
    let states =
        || missing.iter().filter_map(|rank| evidence.ranks.get(rank)).filter(|state| !state.truncated);
    if states().any(|state| state.ending == Ending::Regular) {
        return Proof::Left;
    }
    if states().any(|state| state.ending == Ending::Unknown) {
        return Proof::Unknown;
    }
    let longest = states()
        .filter_map(|state| Some(state.complete_until_ns?.saturating_sub(entered_ns?)))
        .max()
        .filter(|&for_ns| evidence.comparable && for_ns >= 0);
    longest.map_or(Proof::Unproven, |for_ns| Proof::Absent { for_ns })
}

/// A call that every rank that was read entered and not every rank left.
fn stalled(
    evidence: &Evidence<'_>,
    name: Sym,
    comm: &CommEvidence,
    seq: u64,
    calls: &[Entry],
) -> Option<Desync> {
    if !calls.iter().any(|call| evidence.hangs(call, comm.longest_ns)) {
        return None;
    }
    let waiting: Vec<u32> = calls.iter().filter(|call| call.is_open()).map(|call| call.rank).collect();
    let left = calls.iter().any(|call| !call.is_open());
    let not_read: Vec<u32> = not_read(evidence, comm).into_iter().collect();
    let unlisted = comm.members.is_none() && comm.size.is_some_and(|size| size as usize > comm.reach.len());
    let mut weakened = Vec::new();
    // Whoever has left shows that all came; else those of whom nothing is known may not have.
    let (kind, ranks) = if left {
        (DesyncKind::Stalled, waiting)
    } else if !not_read.is_empty() && evidence.records && evidence.wanted.is_none() {
        weakened.push(
            "The missing ranks have no record, so nothing is known of them: they may hang, have ended, or \
             record elsewhere."
                .to_owned(),
        );
        (DesyncKind::Missing, not_read.clone())
    } else {
        if unlisted || !not_read.is_empty() {
            weakened.push("Members that were not read may not have entered it.".to_owned());
        }
        (DesyncKind::Stalled, Vec::new())
    };
    let subject = Subject { name: Some(name), comm: Some(comm), seq: Some(seq), calls };
    Some(Desync {
        entered: comm.reach.iter().filter(|(_, reach)| reach.last >= seq).map(|(&rank, _)| rank).collect(),
        not_read,
        weakened,
        ..say::about(evidence, &subject, kind, &ranks)
    })
}
