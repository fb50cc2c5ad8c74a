//! Ranks that make different calls under one number.

use super::evidence::{CommEvidence, Entry, Evidence};
use super::finding::{Desync, DesyncKind, DesyncSide};
use super::say::{self, Subject};
use crate::analyze::{bytes_may_differ, is_synchronizing};
use crate::timeline::{Names, Sym};

/// What the ranks of a call disagree on, if they do: the first of op, bytes and dtype.
pub(super) fn disagreement(names: &Names, calls: &[Entry]) -> Option<DesyncKind> {
    let first = calls.first()?;
    if calls.iter().any(|call| call.op != first.op) {
        return Some(DesyncKind::Op);
    }
    // What one rank does not say does not contradict the others.
    let op = names.get(first.op);
    let same_size = is_synchronizing(op) && !bytes_may_differ(op) || matches!(op, "broadcast" | "reduce");
    if same_size && differ(calls.iter().filter_map(|call| call.bytes)) {
        return Some(DesyncKind::Bytes);
    }
    differ(calls.iter().filter_map(|call| call.dtype)).then_some(DesyncKind::Dtype)
}

fn differ<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    let first = values.next();
    values.any(|value| first.as_ref() != Some(&value))
}

/// The calls by what they say about what they disagree on, the majority first. Of sides of one size, the one
/// with the lowest rank is first.
fn sides(kind: DesyncKind, calls: &[Entry]) -> Vec<Vec<Entry>> {
    let same = |a: &Entry, b: &Entry| match kind {
        DesyncKind::Op => a.op == b.op,
        DesyncKind::Bytes => a.bytes == b.bytes,
        _ => a.dtype == b.dtype,
    };
    let says = |call: &&Entry| match kind {
        DesyncKind::Op => true,
        DesyncKind::Bytes => call.bytes.is_some(),
        _ => call.dtype.is_some(),
    };
    let mut sides: Vec<Vec<Entry>> = Vec::new();
    for call in calls.iter().filter(says) {
        match sides.iter_mut().find(|side| side.first().is_some_and(|first| same(first, call))) {
            Some(side) => side.push(*call),
            None => sides.push(vec![*call]),
        }
    }
    let lowest = |side: &[Entry]| side.iter().map(|call| call.rank).min();
    sides.sort_by_key(|side| (std::cmp::Reverse(side.len()), lowest(side)));
    sides
}

/// The first call of a communicator on which ranks disagree: one that they went past, or one that hangs.
pub(super) fn first(evidence: &Evidence<'_>, name: Sym, comm: &CommEvidence) -> Option<Desync> {
    let passed = comm.disagreement.iter().map(|(seq, calls)| (*seq, calls));
    let last = comm.calls.iter().map(|(seq, calls)| (*seq, calls));
    let mut all: Vec<(u64, &Vec<Entry>)> = last.chain(passed).collect();
    all.sort_by_key(|(seq, _)| *seq);
    all.into_iter().find_map(|(seq, calls)| judge(evidence, name, comm, seq, calls))
}

/// The finding about a call on which ranks disagree; `None` if they agree.
fn judge(
    evidence: &Evidence<'_>,
    name: Sym,
    comm: &CommEvidence,
    seq: u64,
    calls: &[Entry],
) -> Option<Desync> {
    let kind = disagreement(evidence.names, calls)?;
    let sides = sides(kind, calls);
    let ranks_of = |side: &[Entry]| {
        let mut ranks: Vec<u32> = side.iter().map(|call| call.rank).collect();
        ranks.sort_unstable();
        ranks
    };
    let mut few: Vec<u32> = sides.iter().skip(1).flat_map(|side| ranks_of(side)).collect();
    few.sort_unstable();
    let mut weakened = Vec::new();
    if let [first, second, ..] = sides.as_slice()
        && first.len() == second.len()
    {
        weakened.push("No side is the larger: which of them is wrong is not known.".to_owned());
    }
    let subject = Subject { name: Some(name), comm: Some(comm), seq: Some(seq), calls };
    let named = |side: &Vec<Entry>| {
        let first = side.first()?;
        Some(DesyncSide {
            op: evidence.names.get(first.op).to_owned(),
            bytes: first.bytes.filter(|_| side.iter().all(|call| call.bytes == first.bytes)),
            dtype: first.dtype.map(|dtype| evidence.names.get(dtype).to_owned()),
            ranks: ranks_of(side),
        })
    };
    Some(Desync {
        sides: sides.iter().filter_map(named).collect(),
        weakened,
        ..say::about(evidence, &subject, kind, &few)
    })
}
