//! Collectives of this process's ranks, matched as they come.

use super::queue::Interval;
use super::stragglers::Stragglers;
use super::track::TrackState;
use crate::analyze::{
    self, Collective, CrossRank, CrossRankAccumulator, LeftOut, Member, Position, Unmatched, UnmatchedReason,
    bytes_may_differ, conclude, is_point_to_point, is_synchronizing,
};
use crate::timeline::{Names, Sym};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// Collectives that wait for members at most; beyond, the oldest counts with those that it has. In a
/// process with few of a communicator's ranks, members never come.
const MAX_WAITING: usize = 4096;

/// Unmatched collectives that are listed; the rest is only counted.
const LISTED: usize = 20;

/// A communicator and a number in it.
type Key = (Sym, u64);

/// Collectives of this process's ranks, matched as they come.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    synchronizing: HashMap<Sym, bool>,
    point_to_point: HashSet<Sym>,
    /// Ranks with any communication.
    ranks: BTreeSet<u32>,
    communicators: HashMap<Sym, Communicator>,
    waiting: HashMap<Key, Waiting>,
    /// Keys of `waiting` from the oldest on, and of some that are no longer there.
    order: VecDeque<Key>,
    accumulator: CrossRankAccumulator,
    left_out: LeftOut,
    pub stragglers: Stragglers,
}

/// A collective that not all members have left.
#[derive(Debug, Default)]
struct Waiting {
    parts: Vec<Part>,
    /// Whether its arrivals are in the figures of stragglers.
    observed: bool,
}

#[derive(Debug, Default)]
struct Communicator {
    tracks: BTreeSet<u32>,
    size: Option<u32>,
}

/// One rank's part in a collective.
#[derive(Debug)]
pub(super) struct Part {
    /// The interval's id while it runs.
    id: Option<u32>,
    track: u32,
    pub rank: u32,
    device: Option<u32>,
    op: Sym,
    bytes: Option<u64>,
    dtype: Option<Sym>,
    step: Option<i64>,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Compute of its track before the start, before the turn from waiting to transfer, before the end.
    at_start_ns: u64,
    at_turn_ns: u64,
    at_end_ns: u64,
    turn_ns: i64,
    /// Its track's time in exposed communication and all other, before the start and before the end.
    until_start_ns: (i64, i64),
    until_end_ns: (i64, i64),
    /// Whether its track computed nothing at the end.
    blocked_at_end: bool,
}

impl Collectives {
    /// Fixes the op's place in the report, and says whether each rank waits for all others in it.
    pub fn declare(&mut self, op: Sym, name: &str) -> bool {
        let accumulator = &mut self.accumulator;
        let point_to_point = &mut self.point_to_point;
        *self.synchronizing.entry(op).or_insert_with(|| {
            let synchronizing = is_synchronizing(name);
            if is_point_to_point(name) {
                point_to_point.insert(op);
            }
            if synchronizing {
                accumulator.declare(name);
            }
            synchronizing
        })
    }

    /// A rank enters a collective; the sweep is at `at_ns`.
    pub fn arrive(
        &mut self,
        at_ns: i64,
        id: u32,
        interval: &Interval,
        tracks: &mut [TrackState],
        names: &Names,
    ) {
        let Some(call) = &interval.call else { return };
        let op = names.get(call.op);
        let Some(track) = tracks.get(interval.track as usize) else { return };
        let (rank, device) = (track.rank, track.first_device);
        self.ranks.insert(rank);
        if !call.synchronizing {
            // The other side of a message is mostly in another process.
            if self.point_to_point.contains(&call.op) {
                self.left_out.events += 1;
                self.left_out.not_numbered.entry(call.op).or_default().insert(rank);
            }
            return;
        }
        let (Some(comm), Some(seq)) = (call.comm, call.seq) else {
            self.left_out.events += 1;
            self.left_out.not_numbered.entry(call.op).or_default().insert(rank);
            return;
        };
        let communicator = self.communicators.entry(comm).or_default();
        communicator.tracks.insert(interval.track);
        communicator.size = communicator.size.max(call.comm_size);
        let size = communicator.size;
        let until_start_ns = track.away_and_busy_ns();
        let waiting = self.waiting.entry((comm, seq)).or_default();
        let parts = &mut waiting.parts;
        if parts.is_empty() {
            self.order.push_back((comm, seq));
        }
        // The last arrival so far: from here on, those who wait transfer.
        for part in parts.iter_mut() {
            if part.id.is_some() {
                if let Some(track) = tracks.get_mut(part.track as usize) {
                    track.advance(at_ns);
                    part.at_turn_ns = track.compute_ns();
                }
                part.turn_ns = part.turn_ns.max(interval.start_ns);
            } else if part.turn_ns < interval.start_ns {
                part.turn_ns = part.end_ns;
                part.at_turn_ns = part.at_end_ns;
            }
        }
        let covered_ns = call.covered_at_start_ns;
        parts.push(Part {
            id: Some(id),
            track: interval.track,
            rank,
            device,
            op: call.op,
            bytes: call.bytes,
            dtype: call.dtype,
            step: interval.step,
            start_ns: interval.start_ns,
            end_ns: interval.end_ns,
            at_start_ns: covered_ns,
            at_turn_ns: covered_ns,
            at_end_ns: covered_ns,
            turn_ns: interval.start_ns,
            until_start_ns,
            until_end_ns: until_start_ns,
            blocked_at_end: false,
        });
        if size.is_some_and(|size| parts.len() == size as usize) {
            parts.sort_by_key(|part| part.track);
            if objection(op, parts, parts.len()).is_none() {
                waiting.observed = true;
                self.stragglers.observe(comm, parts.iter().find_map(|part| part.step), parts);
            }
        }
    }

    /// A rank leaves a collective; `blocked` if there was no compute beside at last. The track has been moved
    /// on to that instant.
    pub fn leave(
        &mut self,
        id: u32,
        interval: &Interval,
        blocked: bool,
        tracks: &[TrackState],
        names: &Names,
    ) {
        let Some(call) = interval.call.as_ref().filter(|call| call.synchronizing) else { return };
        let (Some(comm), Some(seq)) = (call.comm, call.seq) else { return };
        let key = (comm, seq);
        let Some(Waiting { parts, .. }) = self.waiting.get_mut(&key) else { return };
        let track = tracks.get(interval.track as usize);
        if let Some(part) = parts.iter_mut().find(|part| part.id == Some(id)) {
            part.id = None;
            part.at_end_ns = track.map_or(0, TrackState::compute_ns);
            part.until_end_ns = track.map_or((0, 0), TrackState::away_and_busy_ns);
            part.blocked_at_end = blocked;
        }
        let size = self.communicators.get(&comm).and_then(|known| known.size);
        let all = size.is_some_and(|size| parts.len() >= size as usize);
        if all
            && parts.iter().all(|part| part.id.is_none())
            && let Some(waiting) = self.waiting.remove(&key)
        {
            self.settle(key, waiting, names);
        }
        while self.waiting.len() > MAX_WAITING {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(waiting) = self.waiting.remove(&oldest) {
                self.settle(oldest, waiting, names);
            }
        }
        if self.order.len() > 2 * MAX_WAITING {
            self.order.retain(|key| self.waiting.contains_key(key));
        }
    }

    /// Adds a collective to the figures, or to what could not be matched.
    fn settle(&mut self, key: Key, waiting: Waiting, names: &Names) {
        let Waiting { mut parts, observed } = waiting;
        let entered = parts.len();
        // Those who are still inside have no end that could be told.
        parts.retain(|part| part.id.is_none());
        self.left_out.events += (entered - parts.len()) as u64;
        parts.sort_by_key(|part| part.track);
        let Some(first) = parts.first() else { return };
        let op = names.get(first.op);
        let size = self.communicators.get(&key.0).map_or(parts.len(), |known| match known.size {
            Some(size) => size as usize,
            None => known.tracks.len(),
        });
        if let Some(reason) = objection(op, &parts, size) {
            self.left_out.events += parts.len() as u64;
            self.list(key, reason, &parts, names);
            return;
        }
        let step = parts.iter().find_map(|part| part.step);
        let position = match step {
            Some(step) => Position::Step(step),
            None => Position::Sequence { comm: key.0.index() as u32, seq: key.1 },
        };
        let members: Vec<Member> = parts.iter().map(Part::member).collect();
        let complete = parts.len() == size;
        if complete {
            // Where the size is not known, all were there only in hindsight.
            if !observed {
                self.stragglers.observe(key.0, step, &parts);
            }
            self.stragglers.close(key.0, &parts);
        } else {
            self.list(key, UnmatchedReason::MembersMissing, &parts, names);
        }
        let collective = Collective {
            op,
            comm: names.get(key.0),
            comm_size: u32::try_from(size).unwrap_or(u32::MAX),
            seq: Some(key.1),
            position,
            complete,
        };
        self.accumulator.add(&collective, &members);
    }

    fn list(&mut self, key: Key, reason: UnmatchedReason, parts: &[Part], names: &Names) {
        let Some(first) = parts.first() else { return };
        if self.left_out.listed.len() < LISTED {
            let ranks: BTreeSet<u32> = parts.iter().map(|part| part.rank).collect();
            self.left_out.listed.push(Unmatched {
                comm: Some(names.get(key.0).to_owned()),
                seq: Some(key.1),
                op: names.get(first.op).to_owned(),
                reason,
                ranks: ranks.into_iter().collect(),
            });
        }
    }

    /// The figures across ranks; `None` if there are not two ranks with a collective in common.
    pub fn finish(mut self, names: &Names, warnings: &mut Vec<String>) -> Option<CrossRank> {
        let mut left: Vec<(Key, Waiting)> = std::mem::take(&mut self.waiting).into_iter().collect();
        left.sort_by_key(|(key, _)| *key);
        for (key, waiting) in left {
            self.settle(key, waiting, names);
        }
        if self.ranks.len() < 2 {
            return None;
        }
        let mut across = conclude(&self.accumulator, self.left_out, names, warnings);
        (across.stragglers, across.by_rank) = self.stragglers.finish(names);
        Some(across)
    }
}

impl Part {
    /// As far as stragglers are concerned, once the last rank has come at `last_ns`.
    pub fn arrival(&self, last_ns: i64) -> analyze::Part {
        analyze::Part {
            track: self.track,
            start_ns: self.start_ns,
            wait_ns: analyze::duration_ns(self.start_ns, self.end_ns.min(last_ns)),
            exposed_wait_ns: self.member().exposed_wait_ns,
            away_ns: self.until_start_ns.0,
            busy_ns: self.until_start_ns.1,
        }
    }

    pub fn track(&self) -> u32 {
        self.track
    }

    pub fn end(&self) -> analyze::End {
        analyze::End {
            track: self.track,
            end_ns: self.end_ns,
            away_ns: self.until_end_ns.0,
            busy_ns: self.until_end_ns.1,
            blocked: self.blocked_at_end,
        }
    }

    fn member(&self) -> Member {
        let duration = analyze::duration_ns;
        let turn = self.turn_ns.min(self.end_ns).max(self.start_ns);
        let hidden_wait = self.at_turn_ns.saturating_sub(self.at_start_ns);
        let hidden_transfer = self.at_end_ns.saturating_sub(self.at_turn_ns);
        Member {
            rank: self.rank,
            device: self.device,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            exposed_wait_ns: duration(self.start_ns, turn).saturating_sub(hidden_wait),
            exposed_transfer_ns: duration(turn, self.end_ns).saturating_sub(hidden_transfer),
            bytes: self.bytes,
        }
    }
}

/// Why these parts, sorted by track, are not one collective with at least two ranks.
fn objection(op: &str, parts: &[Part], size: usize) -> Option<UnmatchedReason> {
    if parts.windows(2).any(|pair| pair[0].track == pair[1].track) || parts.len() > size {
        return Some(UnmatchedReason::Ambiguous);
    }
    if parts.windows(2).all(|pair| pair[0].rank == pair[1].rank) {
        return Some(UnmatchedReason::MembersMissing);
    }
    let same_op = agree(parts.iter().map(|part| part.op));
    let same_bytes = bytes_may_differ(op) || agree(parts.iter().filter_map(|part| part.bytes));
    if !same_op || !same_bytes || !agree(parts.iter().filter_map(|part| part.dtype)) {
        return Some(UnmatchedReason::Disagreement);
    }
    parts.iter().any(|part| part.end_ns < part.start_ns).then_some(UnmatchedReason::EndBeforeStart)
}

fn agree<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    let Some(first) = values.next() else { return true };
    values.all(|value| value == first)
}
