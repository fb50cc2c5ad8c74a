//! Waits and transfers over matched collectives: the pass that makes the figures across ranks.

use super::conclude::{LeftOut, conclude};
use super::interval::Cover;
use super::matching::{Group, Matching, Part, is_synchronizing};
use super::{CrossRank, CrossRankAccumulator, Member, Position, Unmatched, UnmatchedReason, last_arrival_ns};
use crate::timeline::Sym;
use std::collections::BTreeSet;

/// Unmatched collectives that are listed; the rest is only counted.
const LISTED: usize = 20;

/// The figures across the tracks of `matching`, whose compute is `covers`. `None` if there are not two
/// ranks on one known clock with a collective in common; `warnings` says why where that is not obvious.
pub(super) fn cross_rank(
    matching: &Matching<'_>,
    covers: &[Cover],
    warnings: &mut Vec<String>,
) -> Option<CrossRank> {
    if !comparable(matching, warnings) {
        return None;
    }
    let names = matching.names();
    let mut accumulator = CrossRankAccumulator::default();
    for op in matching.ops().map(|op| names.get(op)).filter(|op| is_synchronizing(op)) {
        accumulator.declare(op);
    }
    let mut left_out = LeftOut::default();
    for (&op, events) in matching.not_numbered().iter().filter(|(op, _)| is_synchronizing(names.get(**op))) {
        left_out.events += events.events;
        left_out.not_numbered.insert(op, events.ranks.clone());
    }
    for group in matching.groups().filter(|group| is_synchronizing(names.get(group.op))) {
        if let Some(reason) = group.state.reason()
            && left_out.listed.len() < LISTED
        {
            left_out.listed.push(unmatched(matching, &group, reason));
        }
        // Incomplete ones are counted at the end: only if the op has complete collectives.
        if group.state.is_matched() {
            add(&mut accumulator, matching, &group, covers);
        } else {
            left_out.events += group.parts.len() as u64;
        }
    }
    conclude(&accumulator, left_out, names, warnings)
}

/// Whether at least two ranks communicate, all on one known clock.
fn comparable(matching: &Matching<'_>, warnings: &mut Vec<String>) -> bool {
    let taking_part = || matching.selected().iter().filter(|one| !one.track.comm.is_empty());
    let ranks: BTreeSet<u32> = taking_part().map(|one| one.track.rank).collect();
    if ranks.len() < 2 {
        return false;
    }
    let clocks: BTreeSet<Option<Sym>> = taking_part().map(|one| one.track.clock).collect();
    if clocks.contains(&None) {
        warnings.push(
            "Waits across ranks are not given: it is not known whether the ranks' clocks agree.".to_string(),
        );
        return false;
    }
    if clocks.len() > 1 {
        warnings.push(format!(
            "Waits across ranks are not given: the ranks were timed by {} different clocks, and clocks \
             are not aligned.",
            clocks.len()
        ));
        return false;
    }
    true
}

fn add(accumulator: &mut CrossRankAccumulator, matching: &Matching<'_>, group: &Group<'_>, covers: &[Cover]) {
    let arrivals = group.parts.iter().map(|&part| matching.times_ns(part).0);
    let Some(last) = last_arrival_ns(arrivals) else { return };
    let position = match matching.step(group) {
        Some(step) => Position::Step(step),
        None => Position::Sequence { comm: group.channel.comm.index() as u32, seq: group.number },
    };
    // What is hidden is read off the track's own compute, so on its own clock.
    let member = |&part: &Part| {
        let event = matching.event(part)?;
        let identity = &matching.track(part.track)?.track;
        let compute = covers.get(part.track as usize)?;
        let last = matching.on_track_ns(part.track, last);
        let own =
            Member::new((identity.rank, identity.device), (event.start_ns, event.end_ns), last, compute);
        let (start_ns, end_ns) = matching.times_ns(part);
        Some(Member { start_ns, end_ns, ..own })
    };
    let members: Vec<Member> = group.parts.iter().filter_map(member).collect();
    let complete = group.state.reason().is_none();
    accumulator.add(matching.names().get(group.op), position, &members, complete);
}

fn unmatched(matching: &Matching<'_>, group: &Group<'_>, reason: UnmatchedReason) -> Unmatched {
    let names = matching.names();
    Unmatched {
        comm: Some(names.get(group.channel.comm).to_string()),
        seq: Some(group.number),
        op: names.get(group.op).to_string(),
        reason,
        ranks: matching.ranks(group.parts).into_iter().collect(),
    }
}
