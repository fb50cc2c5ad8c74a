//! Ranks whose record breaks off, and ranks without one.

use super::evidence::{Evidence, SILENCE_NS};
use super::finding::{Desync, DesyncKind};
use super::say;

/// Ranks that are listed as being without a record. An input may state any world size.
const LISTED: usize = 4096;

/// One finding about all ranks whose record breaks off while others go on, one about those without any.
pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Desync> {
    stopped(evidence).into_iter().chain(no_record(evidence)).collect()
}

fn stopped(evidence: &Evidence<'_>) -> Option<Desync> {
    let ranks: Vec<u32> = evidence.ranks.keys().copied().filter(|&rank| evidence.stopped(rank)).collect();
    if ranks.is_empty() {
        return None;
    }
    let states = || ranks.iter().filter_map(|rank| evidence.ranks.get(rank));
    let first_ns = states().filter_map(|state| state.seen_ns).min();
    let last_ns = states().filter_map(|state| state.seen_ns).max();
    let silent = evidence
        .latest_ns()
        .zip(last_ns)
        .is_some_and(|(latest, seen)| evidence.comparable && latest.saturating_sub(seen) >= SILENCE_NS);
    let mut weakened = Vec::new();
    if !silent && !ranks.iter().all(|rank| evidence.known.gone.contains(rank)) {
        weakened.push(
            "The records of others had ended when this was read, but not long after: the rank may still be \
             running."
                .to_owned(),
        );
    }
    Some(Desync {
        kind: DesyncKind::Stopped,
        comm_ranks: vec![None; ranks.len()],
        since_ms: first_ns.zip(evidence.base_ns()).map(|(seen, base)| say::ms(seen.saturating_sub(base))),
        since_unix_ms: first_ns.filter(|_| evidence.unix).map(say::ms),
        ranks,
        weakened,
        ..Desync::default()
    })
}

fn no_record(evidence: &Evidence<'_>) -> Option<Desync> {
    if !evidence.records || evidence.wanted.is_some() {
        return None;
    }
    let of_world = 0..evidence.world_size.unwrap_or(0);
    let mut ranks: Vec<u32> =
        of_world.filter(|rank| !evidence.ranks.contains_key(rank)).take(LISTED).collect();
    if evidence.world_size.is_none() {
        let members = evidence.comms.values().filter_map(|comm| comm.members.as_ref()).flatten().copied();
        ranks.extend(members.filter(|rank| !evidence.ranks.contains_key(rank)));
        ranks.sort_unstable();
        ranks.dedup();
        ranks.truncate(LISTED);
    }
    if ranks.is_empty() {
        return None;
    }
    Some(Desync {
        kind: DesyncKind::NoRecord,
        comm_ranks: vec![None; ranks.len()],
        not_read: ranks.clone(),
        ranks,
        weakened: vec![
            "They may have recorded into another folder, or ended before they recorded anything.".to_owned(),
        ],
        ..Desync::default()
    })
}
