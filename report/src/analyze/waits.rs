//! Waits and transfers over matched collectives: the pass that makes the figures across ranks.

use super::conclude::{LeftOut, conclude};
use super::interval::Cover;
use super::matching::{Group, Matching, Part, State, is_point_to_point, is_synchronizing};
use super::point_to_point::point_to_point;
use super::{
    Collective, CrossRank, CrossRankAccumulator, Member, Position, Unmatched, UnmatchedReason,
    last_arrival_ns,
};
use crate::timeline::Sym;
use std::collections::BTreeSet;

/// Unmatched collectives that are listed; the rest is only counted.
const LISTED: usize = 20;

/// The figures across the tracks of `matching`, whose compute is `covers`. `None` if there are not two
/// ranks with communication. Waits are given only of ranks on one known clock; `warnings` says so where
/// they are not.
pub(super) fn cross_rank(
    matching: &Matching<'_>,
    covers: &[Cover],
    warnings: &mut Vec<String>,
) -> Option<CrossRank> {
    if communicating(matching).len() < 2 {
        return None;
    }
    let comparable = comparable(matching, warnings);
    let names = matching.names();
    let mut accumulator = CrossRankAccumulator::default();
    for op in matching.ops().map(|op| names.get(op)).filter(|op| is_synchronizing(op)) {
        accumulator.declare(op);
    }
    let mut left_out = LeftOut::default();
    let is_counted = |op: Sym| is_synchronizing(names.get(op)) || is_point_to_point(names.get(op));
    for (&op, events) in matching.not_numbered().iter().filter(|(op, _)| is_counted(**op)) {
        left_out.events += events.events;
        left_out.not_numbered.insert(op, events.ranks.clone());
    }
    for group in matching.groups().filter(|group| is_counted(group.op)) {
        if let Some(reason) = group.state.reason()
            && left_out.listed.len() < LISTED
        {
            left_out.listed.push(unmatched(matching, &group, reason));
        }
        // Incomplete ones are counted at the end: only if the op has complete collectives.
        if group.state.is_matched() {
            if comparable && group.channel.kind.is_collective() {
                add(&mut accumulator, matching, &group, covers);
            }
        } else {
            left_out.events += group.parts.len() as u64;
        }
    }
    let unsaid = if comparable { Some(&mut *warnings) } else { None };
    let mut across = conclude(&accumulator, left_out, names, unsaid);
    across.point_to_point = point_to_point(matching, comparable);
    Some(across)
}

/// The ranks that communicate.
fn communicating(matching: &Matching<'_>) -> BTreeSet<u32> {
    let taking_part = matching.selected().iter().filter(|one| !one.track.comm.is_empty());
    taking_part.map(|one| one.track.rank).collect()
}

/// Whether all ranks that communicate are on one known clock.
fn comparable(matching: &Matching<'_>, warnings: &mut Vec<String>) -> bool {
    let taking_part = matching.selected().iter().filter(|one| !one.track.comm.is_empty());
    let clocks: BTreeSet<Option<Sym>> = taking_part.map(|one| one.track.clock).collect();
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
        Some(Member { start_ns, end_ns, bytes: event.bytes, ..own })
    };
    let members: Vec<Member> = group.parts.iter().filter_map(member).collect();
    let names = matching.names();
    let collective = Collective {
        op: names.get(group.op),
        comm: names.get(group.channel.comm),
        comm_size: u32::try_from(group.channel.size).unwrap_or(u32::MAX),
        seq: group.recorded_number(),
        position,
        complete: group.state == State::Complete,
    };
    accumulator.add(&collective, &members);
}

fn unmatched(matching: &Matching<'_>, group: &Group<'_>, reason: UnmatchedReason) -> Unmatched {
    let names = matching.names();
    Unmatched {
        comm: Some(names.get(group.channel.comm).to_string()),
        seq: group.recorded_number(),
        op: names.get(group.op).to_string(),
        reason,
        ranks: matching.ranks(group.parts).into_iter().collect(),
    }
}
