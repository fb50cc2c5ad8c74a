//! Stragglers of a whole timeline: a pass over its matched collectives.

use super::{End, Found, Ledger, Part, RankWaits, SpanTimes, Straggler, block_of_time};
use crate::analyze::arrivals::{Arrivals, Timed};
use crate::analyze::filter::Selected;
use crate::analyze::interval::{Cover, Hint, duration_ns};
use crate::analyze::matching::{self, Group, Matching, State, is_synchronizing};
use crate::timeline::Step;

/// The stragglers, worst first, and the sums of every rank. `covers` are the unions of the tracks' compute.
pub(in crate::analyze) fn stragglers(
    matching: &Matching<'_>,
    covers: &[Cover],
) -> (Vec<Straggler>, Vec<RankWaits>) {
    let away: Vec<Cover> =
        matching.selected().iter().zip(covers).map(|(one, cover)| away(one, cover)).collect();
    let mut ledger = Ledger::default();
    let hints: Vec<Hint> = covers.iter().map(|_| Hint::default()).collect();
    let tracks = Tracks { matching, covers, hints, away: &away };
    let mut times = Arrivals::default();
    for (_, place) in order(matching) {
        if let Some(group) = matching.group(place as usize) {
            tracks.add(&mut ledger, &group, &mut times);
        }
    }
    drop(away);
    let lengths = matching.selected().iter().map(|one| recorded_ns(&one.steps)).filter(|&ns| ns > 0.0);
    if let Some(ns) = lengths.max_by(f64::total_cmp) {
        ledger.steps_took(ns);
    }
    let by_step = ledger.knows_steps();
    let found = ledger.judge();
    let spans = spans(matching, &found, by_step);
    found.explain(spans, matching.names())
}

/// Last arrival and place of the collectives with all their members, in the order of their last arrivals: so a
/// rank's earlier collectives come before its later ones.
fn order(matching: &Matching<'_>) -> Vec<(i64, u32)> {
    let names = matching.names();
    let mut order: Vec<(i64, u32)> = matching
        .groups()
        .zip(0..)
        .filter(|(group, _)| group.state == State::Complete && is_synchronizing(names.get(group.op)))
        .filter_map(|(group, place)| {
            Some((group.parts.iter().map(|&part| matching.times_ns(part).0).max()?, place))
        })
        .collect();
    order.sort_unstable();
    order
}

/// When a track does nothing but communicate: the union of its communication without its compute.
fn away(one: &Selected<'_>, compute: &Cover) -> Cover {
    Cover::new(one.track.comm.starts_ns(), one.track.comm.ends_ns()).without(compute)
}

/// Lengths of the steps, added up.
fn recorded_ns(steps: &[Step]) -> f64 {
    steps.iter().map(|step| duration_ns(step.start_ns, step.end_ns) as f64).sum()
}

struct Tracks<'a> {
    matching: &'a Matching<'a>,
    covers: &'a [Cover],
    /// For `covers`: other passes may use these at the same time.
    hints: Vec<Hint>,
    away: &'a [Cover],
}

impl Tracks<'_> {
    fn add(&self, ledger: &mut Ledger, group: &Group<'_>, times: &mut Arrivals) {
        let matching = self.matching;
        let comm = (group.channel.comm.index() as u32, group.channel.generation);
        // Nobody is late by less than the clocks can tell.
        matching.arrivals_ns(group.parts, times);
        let end = times.measured.iter().map(|time| time.end_ns).max();
        let (Some(last), Some(end)) = (times.last_ns(), end) else { return };
        let timed = || group.parts.iter().zip(&times.measured);
        let parts: Option<Vec<Part>> = timed()
            .zip(&times.known)
            .map(|((&part, measured), known)| self.part(part, measured, known, last))
            .collect();
        let ends: Option<Vec<End>> =
            timed().map(|(&part, measured)| self.end(part, measured.end_ns)).collect();
        if let (Some(parts), Some(ends)) = (parts, ends) {
            ledger.observe(comm, matching.step(group), &parts, end, |track| matching.rank(track));
            ledger.close(comm, ends);
        }
    }

    /// What a track computes is known on its own clock, when it arrives on the common one.
    fn part(&self, part: matching::Part, measured: &Timed, known: &Timed, last_ns: i64) -> Option<Part> {
        let (own_start_ns, own_end_ns) = self.matching.own_times_ns(part);
        let waited_until = measured.start_ns.saturating_add(last_ns.saturating_sub(known.start_ns));
        let last = self.matching.on_track_ns(part.track, waited_until);
        let turn = own_end_ns.min(last).max(own_start_ns);
        let hidden_ns = self.computed_ns(part.track, own_start_ns, turn)?;
        let exposed_wait_ns = duration_ns(own_start_ns, turn).saturating_sub(hidden_ns);
        let (away_ns, busy_ns) = self.time_until(part.track, own_start_ns)?;
        Some(Part {
            track: part.track,
            start_ns: known.start_ns,
            wait_ns: duration_ns(known.start_ns, known.end_ns.min(last_ns)),
            exposed_wait_ns,
            away_ns,
            busy_ns,
        })
    }

    fn end(&self, part: matching::Part, end_ns: i64) -> Option<End> {
        let (_, own_end_ns) = self.matching.own_times_ns(part);
        let (compute, hint) = self.compute(part.track)?;
        let blocked = !compute.covers_before(hint, own_end_ns);
        let (away_ns, busy_ns) = self.time_until(part.track, own_end_ns)?;
        Some(End { track: part.track, end_ns, away_ns, busy_ns, blocked })
    }

    /// Time between two instants of its own clock that the track computed.
    fn computed_ns(&self, track: u32, from_ns: i64, to_ns: i64) -> Option<u64> {
        let (compute, hint) = self.compute(track)?;
        Some(compute.overlap_near(hint, from_ns, to_ns))
    }

    fn compute(&self, track: u32) -> Option<(&Cover, &Hint)> {
        self.covers.get(track as usize).zip(self.hints.get(track as usize))
    }

    /// Time that the track spent in exposed communication up to an instant of its own clock, and all other.
    fn time_until(&self, track: u32, at_ns: i64) -> Option<(i64, i64)> {
        let away_ns = self.away.get(track as usize)?.overlap_ns(i64::MIN, at_ns);
        let away_ns = i64::try_from(away_ns).unwrap_or(i64::MAX);
        Some((away_ns, at_ns.saturating_sub(away_ns)))
    }
}

/// Compute per span of the ranks that are to be explained.
fn spans(matching: &Matching<'_>, found: &Found, by_step: bool) -> SpanTimes {
    let mut spans = SpanTimes::default();
    let wanted = found.ranks_to_explain();
    for one in matching.selected().iter().filter(|one| wanted.contains(&one.track.rank)) {
        for (compute, label) in one.track.compute.iter_labelled() {
            let number = match by_step {
                true => one.index.assign(compute.step, compute.start_ns),
                false => Some(block_of_time(compute.start_ns)),
            };
            if let Some(number) = number {
                let ns = duration_ns(compute.start_ns, compute.end_ns);
                spans.add(one.track.rank, compute.name, label, number, ns);
            }
        }
    }
    spans
}
