//! Lateness and waits, added up collective by collective.

use super::blocks::Blocks;
use super::lateness::{Blame, End, Part, blames};
use indexmap::{IndexMap, IndexSet};
use std::collections::{HashMap, VecDeque};

/// Ended collectives of a communicator that are kept to look back at, while later ones are in flight.
const MAX_IN_FLIGHT: usize = 64;
/// Waits of a track that are kept, to tell whom it was waiting for when it comes late elsewhere.
const MAX_WAITS: usize = 64;
/// Where no step is known, time is divided into blocks of about a millisecond.
const NS_PER_BLOCK: i64 = 1 << 20;

/// A communicator: any number that tells it from others, and which start of the job it is of.
pub(crate) type CommId = (u32, u32);

/// Who came late and who waited, in memory that does not grow with the number of collectives.
///
/// Collectives with all their members are [observed](Self::observe) in the order of their last
/// arrivals, and [closed](Self::close) once they ended on all of them; so each one's past is known.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(super) ranks: IndexMap<u32, Sums>,
    tracks: HashMap<u32, Track>,
    communicators: HashMap<CommId, Communicator>,
    /// A column of lateness for each rank of each communicator: the communicator, the rank's place.
    pub(super) columns: IndexSet<(CommId, usize)>,
    /// What belongs to steps, and what does not.
    pub(super) by_step: Axis,
    pub(super) by_time: Axis,
}

/// A rank's sums, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) collectives: u64,
    pub(super) arrived_last: u64,
    pub(super) caused_ns: f64,
    pub(super) suffered_ns: f64,
}

/// Sums along steps, or along time.
#[derive(Debug, Default)]
pub(super) struct Axis {
    /// Lateness by the rank's own time where others lost time, per column.
    pub(super) late: Blocks,
    /// Time not spent in exposed communication, per rank.
    pub(super) busy: Blocks,
    /// The first step with a collective that has no past to judge it by.
    pub(super) first_unjudged: Option<i64>,
    /// First arrival and last end.
    pub(super) extent: Option<(i64, i64)>,
    /// Sum of the recorded steps' lengths, where that is known.
    pub(super) recorded_ns: Option<f64>,
}

#[derive(Debug, Default)]
struct Track {
    busy_ns: Option<i64>,
    /// Until when its waits have been counted: collectives that are waited for at once cost time once.
    waited_until_ns: Option<i64>,
    /// Its last waits.
    waits: VecDeque<Wait>,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    until_ns: i64,
    wait_ns: u64,
    /// Place of the rank that caused most of it.
    origin: usize,
}

#[derive(Debug, Default)]
struct Communicator {
    tracks: Vec<u32>,
    /// Places of the tracks' ranks, and their columns of lateness.
    ranks: Vec<usize>,
    columns: Vec<usize>,
    /// Ends of the last collectives, oldest first.
    ended: VecDeque<Vec<End>>,
}

impl Communicator {
    /// The ends of a collective that all ranks had left when they arrived at this one: the last that held up
    /// all of them. Beside one that runs under compute, a rank may get ahead with its work, so that its end
    /// says nothing of where the rank stands; such are taken only where there is no other.
    fn since(&mut self, parts: &[Part]) -> Option<&[End]> {
        let left = |ends: &[End]| ends.iter().zip(parts).all(|(end, part)| end.end_ns <= part.start_ns);
        let blocked = |ends: &[End]| left(ends) && ends.iter().all(|end| end.blocked);
        let place = self
            .ended
            .iter()
            .rposition(|ends| blocked(ends))
            .or_else(|| self.ended.iter().rposition(|ends| left(ends)))?;
        // What else was left is not needed again: arrivals at one communicator's collectives come in order.
        let mut at = 0;
        self.ended.retain(|ends| {
            at += 1;
            at - 1 == place || !left(ends)
        });
        self.ended.front().map(Vec::as_slice)
    }
}

impl Ledger {
    /// Adds a collective with all its members, `parts` by ascending track; `rank` tells a track's global
    /// rank. Fewer than two members are ignored.
    pub(crate) fn observe(
        &mut self,
        comm: CommId,
        step: Option<i64>,
        parts: &[Part],
        end_ns: i64,
        rank: impl Fn(u32) -> u32,
    ) {
        let Some(last_ns) = parts.iter().map(|part| part.start_ns).max() else { return };
        if parts.len() < 2 {
            return;
        }
        self.meet(comm, parts, rank);
        let Some(communicator) = self.communicators.get_mut(&comm) else { return };
        let ranks = std::mem::take(&mut communicator.ranks);
        let since = communicator.since(parts);
        let judged = since.is_some();
        let blames = blames(parts, since);
        let inherited = inherited(&self.tracks, parts, &blames, since);
        communicator.ranks = ranks;

        let ranks = &communicator.ranks;
        let lost = lost_share(&mut self.tracks, parts, last_ns);
        let origin = origin(ranks, &blames, &inherited);
        for &(rank, ns) in &inherited {
            if let Some((_, sums)) = self.ranks.get_index_mut(rank) {
                sums.caused_ns += ns;
            }
        }
        let mut latest = parts.iter().filter(|part| part.start_ns == last_ns);
        let alone = latest.next().filter(|_| latest.next().is_none()).map(|part| part.track);
        let mut busy = Vec::with_capacity(parts.len());
        for ((part, blame), &rank) in parts.iter().zip(&blames).zip(ranks) {
            if let Some((_, sums)) = self.ranks.get_index_mut(rank) {
                sums.collectives += 1;
                sums.arrived_last += u64::from(alone == Some(part.track));
                sums.caused_ns += blame.own_ns;
                sums.suffered_ns += part.wait_ns as f64;
            }
            let Some(track) = self.tracks.get_mut(&part.track) else { continue };
            if let Some(before) = track.busy_ns.replace(part.busy_ns) {
                busy.push((rank, part.busy_ns.saturating_sub(before).max(0) as f64));
            }
            if let (true, Some(origin)) = (part.wait_ns > 0, origin) {
                if track.waits.len() >= MAX_WAITS {
                    track.waits.pop_front();
                }
                track.waits.push_back(Wait { until_ns: last_ns, wait_ns: part.wait_ns, origin });
            }
        }
        let (axis, number) = match step {
            Some(step) => (&mut self.by_step, step),
            None => (&mut self.by_time, block_of_time(last_ns)),
        };
        axis.widen(parts, end_ns);
        if !judged {
            axis.first_unjudged = Some(axis.first_unjudged.map_or(number, |first| first.min(number)));
        }
        axis.busy.add(number, busy);
        let late =
            communicator.columns.iter().zip(&blames).map(|(&column, blame)| (column, blame.late_ns * lost));
        axis.late.add(number, late.filter(|&(_, late)| judged && late > 0.0));
    }

    /// The lengths of the recorded steps add up to `ns`.
    pub(crate) fn steps_took(&mut self, ns: f64) {
        self.by_step.recorded_ns = Some(ns);
    }

    /// The collective of `comm` that was observed ended so on its tracks, by ascending track.
    pub(crate) fn close(&mut self, comm: CommId, ends: Vec<End>) {
        let Some(communicator) = self.communicators.get_mut(&comm) else { return };
        let same = ends.iter().map(|end| end.track).eq(communicator.tracks.iter().copied());
        if same && communicator.ended.len() < MAX_IN_FLIGHT {
            communicator.ended.push_back(ends);
        }
    }

    /// Makes sure that the communicator is known to consist of these tracks.
    fn meet(&mut self, comm: CommId, parts: &[Part], rank: impl Fn(u32) -> u32) {
        let communicator = self.communicators.entry(comm).or_default();
        if parts.iter().map(|part| part.track).eq(communicator.tracks.iter().copied()) {
            return;
        }
        *communicator = Communicator::default();
        for part in parts {
            let entry = self.ranks.entry(rank(part.track));
            let place = entry.index();
            entry.or_default();
            self.tracks.entry(part.track).or_default();
            communicator.tracks.push(part.track);
            communicator.ranks.push(place);
            communicator.columns.push(self.columns.insert_full((comm, place)).0);
        }
    }
}

/// The block of time in which an instant lies, where no step is known.
pub(crate) fn block_of_time(at_ns: i64) -> i64 {
    at_ns.div_euclid(NS_PER_BLOCK)
}

impl Axis {
    fn widen(&mut self, parts: &[Part], end_ns: i64) {
        let starts = || parts.iter().map(|part| part.start_ns);
        let (Some(first), Some(last)) = (starts().min(), starts().max()) else { return };
        let last = last.max(end_ns);
        self.extent = Some(self.extent.map_or((first, last), |(from, to)| (from.min(first), to.max(last))));
    }

    /// The time of the steps, in nanoseconds: from the first arrival to the last end; but if only a sample of
    /// the steps was recorded, whose numbers have gaps, what these took by their own records.
    pub(super) fn elapsed_ns(&self) -> f64 {
        let whole = self.extent.map_or(0.0, |(first, last)| last.abs_diff(first) as f64);
        match self.recorded_ns {
            Some(recorded) if self.late.has_gaps() => whole.min(recorded),
            _ => whole,
        }
    }
}

/// What late ranks pass on, per place of the rank that they had waited for since `since`. The part of an
/// inherited wait for which no wait is known (transfers, point-to-point calls) is charged to nobody.
fn inherited(
    tracks: &HashMap<u32, Track>,
    parts: &[Part],
    blames: &[Blame],
    since: Option<&[End]>,
) -> Vec<(usize, f64)> {
    let mut charges: Vec<(usize, f64)> = Vec::new();
    for ((part, blame), end) in parts.iter().zip(blames).zip(since.unwrap_or_default()) {
        // Most inherit nothing.
        if blame.inherited_ns <= 0.0 {
            continue;
        }
        let Some(track) = tracks.get(&part.track) else { continue };
        let waits = || track.waits.iter().rev().take_while(|wait| wait.until_ns > end.end_ns);
        let waited: u64 = waits().map(|wait| wait.wait_ns).sum();
        for wait in waits() {
            let ns = blame.inherited_ns * wait.wait_ns as f64 / waited as f64;
            match charges.iter_mut().find(|(rank, _)| *rank == wait.origin) {
                Some((_, sum)) => *sum += ns,
                None => charges.push((wait.origin, ns)),
            }
        }
    }
    charges
}

/// Place of the rank that caused most of the collective's waits.
fn origin(ranks: &[usize], blames: &[Blame], inherited: &[(usize, f64)]) -> Option<usize> {
    let own = ranks.iter().zip(blames).map(|(&rank, blame)| {
        let passed_on = inherited.iter().find(|(other, _)| *other == rank).map_or(0.0, |(_, ns)| *ns);
        (rank, blame.own_ns + passed_on)
    });
    let all = own.chain(inherited.iter().copied());
    all.filter(|(_, ns)| *ns > 0.0).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(rank, _)| rank)
}

/// The share of the waits in which the waiting ranks lost time: nothing to compute beside, and not waiting for
/// an earlier collective as well.
fn lost_share(tracks: &mut HashMap<u32, Track>, parts: &[Part], last_ns: i64) -> f64 {
    let (mut waited, mut lost) = (0.0, 0.0);
    for part in parts.iter().filter(|part| part.wait_ns > 0) {
        let Some(track) = tracks.get_mut(&part.track) else { continue };
        let whole = last_ns.abs_diff(part.start_ns) as f64;
        let from = track.waited_until_ns.unwrap_or(i64::MIN).max(part.start_ns).min(last_ns);
        track.waited_until_ns = track.waited_until_ns.max(Some(last_ns));
        waited += part.wait_ns as f64;
        lost += part.exposed_wait_ns.min(part.wait_ns) as f64 * last_ns.abs_diff(from) as f64 / whole;
    }
    if waited > 0.0 { lost / waited } else { 0.0 }
}
