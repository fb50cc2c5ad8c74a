//! The parts of a finding that all kinds share: of which call it is, since when, and why it is weakened.

use super::evidence::{CommEvidence, Entry, Evidence};
use super::finding::{Desync, DesyncKind};
use crate::timeline::Sym;
use crate::units;

/// The call that a finding is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub name: Option<Sym>,
    pub comm: Option<&'a CommEvidence>,
    pub seq: Option<u64>,
    /// The parts in it that are known.
    pub calls: &'a [Entry],
}

/// A finding of `kind` about `ranks`.
pub(super) fn about(
    evidence: &Evidence<'_>,
    subject: &Subject<'_>,
    kind: DesyncKind,
    ranks: &[u32],
) -> Desync {
    let calls = subject.calls;
    let since_ns = calls.iter().filter_map(|call| call.start_ns).min();
    let waited_ns =
        calls.iter().filter(|call| call.is_open()).filter_map(|call| evidence.waited_ns(call)).max();
    let mut bytes = calls.iter().filter_map(|call| call.bytes);
    let first_bytes = bytes.next();
    let comm_rank = |rank: &u32| match subject.comm {
        None => None,
        Some(comm) => comm.reach.get(rank).and_then(|reach| reach.comm_rank).or_else(|| {
            let at = comm.members.as_ref()?.iter().position(|member| member == rank)?;
            u32::try_from(at).ok()
        }),
    };
    Desync {
        comm: subject.name.map(|name| evidence.names.get(name).to_owned()),
        seq: subject.seq,
        op: most_frequent(calls).map(|op| evidence.names.get(op).to_owned()),
        kind,
        ranks: ranks.to_vec(),
        comm_ranks: ranks.iter().map(comm_rank).collect(),
        comm_size: subject.comm.and_then(|comm| comm.size),
        bytes: first_bytes.filter(|&first| bytes.all(|other| other == first)),
        since_ms: since_ns.zip(evidence.base_ns()).map(|(since, base)| ms(since.saturating_sub(base))),
        since_unix_ms: since_ns.filter(|_| evidence.unix).map(ms),
        waited_ms: waited_ns.map(ms),
        entered: calls.iter().map(|call| call.rank).collect(),
        waiting: calls.iter().filter(|call| call.is_open()).map(|call| call.rank).collect(),
        ..Desync::default()
    }
}

/// The op of most calls; of the first of them if several are as frequent.
fn most_frequent(calls: &[Entry]) -> Option<Sym> {
    let count = |op: Sym| calls.iter().filter(|call| call.op == op).count();
    let mut best: Option<(usize, Sym)> = None;
    for call in calls {
        if best.is_some_and(|(_, op)| op == call.op) {
            continue;
        }
        let count = count(call.op);
        if best.is_none_or(|(most, _)| count > most) {
            best = Some((count, call.op));
        }
    }
    best.map(|(_, op)| op)
}

pub(super) fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Why calls of `ranks` may be missing from their records.
pub(super) fn losses(evidence: &Evidence<'_>, ranks: &[u32]) -> Vec<String> {
    let mut said: Vec<(&str, Vec<u32>)> = Vec::new();
    for &rank in ranks {
        for loss in evidence.ranks.get(&rank).into_iter().flat_map(|state| &state.losses) {
            match said.iter_mut().find(|(known, _)| known == loss) {
                Some((_, ranks)) => ranks.push(rank),
                None => said.push((loss, vec![rank])),
            }
        }
    }
    said.into_iter().map(|(loss, ranks)| format!("{}: {loss}.", capital(&self::ranks(&ranks)))).collect()
}

/// That the records of `ranks` stop before the others entered.
pub(super) fn cut_before(evidence: &Evidence<'_>, ranks: &[u32], stopped: bool) -> String {
    let names = capital(&self::ranks(ranks));
    if stopped {
        return format!(
            "{names}: the record breaks off, and the call may have been entered after its last batch was \
             written."
        );
    }
    if !evidence.comparable {
        return format!(
            "{names}: the clock is not tied to that of the others, so the call may have been entered since."
        );
    }
    let seen = ranks.iter().filter_map(|rank| evidence.ranks.get(rank)?.complete_until_ns).max();
    let before = evidence.latest_ns().zip(seen).map(|(latest, seen)| ms(latest.saturating_sub(seen)));
    let before =
        before.map_or_else(String::new, |ms| format!(", {} before the latest of any rank", units::ms(ms)));
    format!("{names}: the record stops before the call{before}, which may have been entered since.")
}

/// With a capital letter, to begin a sentence.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `rank 3`, `ranks 0-3, 7`.
pub(crate) fn ranks(ranks: &[u32]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", crate::read::ranges(ranks.iter().copied(), 8))
}
