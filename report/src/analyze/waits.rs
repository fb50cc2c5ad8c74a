//! Waits and transfers over matched collectives: the pass that makes the figures across ranks.

use super::arrivals::{Arrivals, Timed};
use super::conclude::{LeftOut, conclude};
use super::interval::Cover;
use super::matching::{Group, Matching, Part, State, is_point_to_point, is_synchronizing};
use super::point_to_point::point_to_point;
use super::{
    Collective, CrossRank, CrossRankAccumulator, Member, Position, Unmatched, UnmatchedReason, ms_from_ns,
};
use crate::timeline::Sym;
use std::collections::{BTreeSet, HashMap};

/// Unmatched collectives that are listed; the rest is only counted.
const LISTED: usize = 20;

/// The figures across the tracks of `matching`, whose compute is `covers`. `None` if there are not two
/// ranks with communication.
pub(super) fn cross_rank(
    matching: &Matching<'_>,
    covers: &[Cover],
    warnings: &mut Vec<String>,
) -> Option<CrossRank> {
    if communicating(matching).len() < 2 {
        return None;
    }
    let names = matching.names();
    let mut accumulator = CrossRankAccumulator::default();
    for op in matching.ops().map(|op| names.get(op)).filter(|op| is_synchronizing(op)) {
        accumulator.declare(op);
    }
    let mut uncertainties: HashMap<Sym, u64> = HashMap::new();
    let mut left_out = LeftOut::default();
    let mut times = Arrivals::default();
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
            if group.channel.kind.is_collective() {
                matching.arrivals_ns(group.parts, &mut times);
                let uncertainty = add(&mut accumulator, matching, &group, &times, covers);
                let worst = uncertainties.entry(group.op).or_default();
                *worst = uncertainty.max(*worst);
            }
        } else {
            left_out.events += group.parts.len() as u64;
        }
    }
    let mut across = conclude(&accumulator, left_out, names, warnings);
    across.point_to_point = point_to_point(matching);
    across.alignment = matching.clocks().report(matching.selected());
    for (op, uncertainty) in uncertainties {
        if let Some(figures) = across.ops.iter_mut().find(|one| one.collective == names.get(op)) {
            figures.uncertainty_ms = ms_from_ns(uncertainty.into());
        }
    }
    Some(across)
}

/// The ranks that communicate.
fn communicating(matching: &Matching<'_>) -> BTreeSet<u32> {
    let taking_part = matching.selected().iter().filter(|one| !one.track.comm.is_empty());
    taking_part.map(|one| one.track.rank).collect()
}

/// Adds a matched collective; returns the uncertainty of the clocks that applied.
fn add(
    accumulator: &mut CrossRankAccumulator,
    matching: &Matching<'_>,
    group: &Group<'_>,
    times: &Arrivals,
    covers: &[Cover],
) -> u64 {
    let Some(last) = times.last_ns() else { return 0 };
    let position = match matching.step(group) {
        Some(step) => Position::Step(step),
        None => Position::Sequence { comm: group.channel.comm.index() as u32, seq: group.number },
    };
    let member = |((&part, measured), known): ((&Part, &Timed), &Timed)| {
        let event = matching.event(part)?;
        let identity = &matching.track(part.track)?.track;
        let compute = covers.get(part.track as usize)?;
        // What is hidden is read off the track's own compute, so on its own clock.
        let waited_until = measured.start_ns.saturating_add(last.saturating_sub(known.start_ns));
        let own_last = matching.on_track_ns(part.track, waited_until);
        let own =
            Member::new((identity.rank, identity.device), (event.start_ns, event.end_ns), own_last, compute);
        Some(Member { start_ns: known.start_ns, end_ns: known.end_ns, bytes: event.bytes, ..own })
    };
    let parts = group.parts.iter().zip(&times.measured).zip(&times.known);
    let members: Vec<Member> = parts.filter_map(member).collect();
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
    times.uncertainty_ns
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
