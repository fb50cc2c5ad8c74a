//! Which events of different ranks are the same collective.

use super::conclude::{LeftOut, conclude};
use super::filter::Selected;
use super::interval::Cover;
use super::{CrossRank, CrossRankAccumulator, Member, Position, Unmatched, UnmatchedReason, last_arrival_ns};
use crate::timeline::{Comm, Names, Sym, Timeline};
use indexmap::IndexMap;
use std::collections::{BTreeSet, HashMap};

/// Unmatched collectives that are listed; the rest is only counted.
const LISTED: usize = 20;

/// Whether every rank of `op` has to wait for every other, so that the last arrival tells waiting from
/// transfer.
///
/// Not so for rooted ops: only receivers of a broadcast wait, and only for the root; a reduce makes its
/// root wait and lets the others go. Nor for point-to-point calls.
pub fn is_synchronizing(op: &str) -> bool {
    matches!(
        op,
        "all_reduce"
            | "all_gather"
            | "all_gather_v"
            | "reduce_scatter"
            | "reduce_scatter_v"
            | "all_to_all"
            | "all_to_all_v"
            | "barrier"
    )
}

/// Ranks of one collective may move different amounts.
pub(crate) fn bytes_may_differ(op: &str) -> bool {
    op.ends_with("_v")
}

/// One track's event in a communicator's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    comm: Sym,
    seq: u64,
    track: u32,
    index: usize,
}

/// The figures across the selected tracks, whose compute is `covers`. `None` if there are not two ranks
/// on one known clock with a collective in common; `warnings` says why where that is not obvious.
pub(super) fn cross_rank(
    timeline: &Timeline,
    selected: &[Selected<'_>],
    covers: &[Cover],
    warnings: &mut Vec<String>,
) -> Option<CrossRank> {
    let taking_part: Vec<_> = selected.iter().filter(|one| !one.track.comm.is_empty()).collect();
    let ranks: BTreeSet<u32> = taking_part.iter().map(|one| one.track.rank).collect();
    if ranks.len() < 2 {
        return None;
    }
    let clocks: BTreeSet<Option<Sym>> = taking_part.iter().map(|one| one.track.clock).collect();
    if clocks.contains(&None) {
        warnings.push(
            "Waits across ranks are not given: it is not known whether the ranks' clocks agree.".to_string(),
        );
        return None;
    }
    if clocks.len() > 1 {
        warnings.push(format!(
            "Waits across ranks are not given: the ranks were timed by {} different clocks, and clocks \
             are not aligned.",
            clocks.len()
        ));
        return None;
    }

    let mut matching = Matching::new(timeline, selected, covers);
    let parts = matching.collect();
    for group in parts.chunk_by(|a, b| (a.comm, a.seq) == (b.comm, b.seq)) {
        matching.add(group);
    }
    matching.finish(warnings)
}

/// What is known of one communicator.
#[derive(Debug, Default)]
struct Communicator {
    tracks: BTreeSet<u32>,
    size: Option<u32>,
}

struct Matching<'a> {
    names: &'a Names,
    /// Ranks of communicators, where an input lists them.
    members: &'a IndexMap<Sym, Vec<u32>>,
    selected: &'a [Selected<'a>],
    covers: &'a [Cover],
    communicators: HashMap<Sym, Communicator>,
    accumulator: CrossRankAccumulator,
    unmatched_events: u64,
    unmatched: Vec<Unmatched>,
    /// Ranks of events without a number, per op.
    not_numbered: IndexMap<Sym, BTreeSet<u32>>,
}

impl<'a> Matching<'a> {
    fn new(timeline: &'a Timeline, selected: &'a [Selected<'a>], covers: &'a [Cover]) -> Self {
        Self {
            names: &timeline.names,
            members: &timeline.communicators,
            selected,
            covers,
            communicators: HashMap::new(),
            accumulator: CrossRankAccumulator::default(),
            unmatched_events: 0,
            unmatched: Vec::new(),
            not_numbered: IndexMap::new(),
        }
    }

    /// All numbered events of synchronizing ops, sorted so that a collective's stand together.
    fn collect(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut synchronizing: HashMap<Sym, bool> = HashMap::new();
        for (one, track) in self.selected.iter().zip(0..) {
            for (index, event) in one.track.comm.iter().enumerate() {
                let names = self.names;
                let accumulator = &mut self.accumulator;
                let takes_part = *synchronizing.entry(event.op).or_insert_with(|| {
                    let op = names.get(event.op);
                    let takes_part = is_synchronizing(op);
                    if takes_part {
                        accumulator.declare(op);
                    }
                    takes_part
                });
                if !takes_part {
                    continue;
                }
                let (Some(comm), Some(seq)) = (event.comm, event.seq) else {
                    self.unmatched_events += 1;
                    self.not_numbered.entry(event.op).or_default().insert(one.track.rank);
                    continue;
                };
                let communicator = self.communicators.entry(comm).or_default();
                communicator.tracks.insert(track);
                communicator.size = communicator.size.max(event.comm_size);
                parts.push(Part { comm, seq, track, index });
            }
        }
        parts.sort_unstable();
        parts
    }

    /// Adds the events of one communicator's number.
    fn add(&mut self, group: &[Part]) {
        let events: Vec<(usize, Comm)> = group
            .iter()
            .filter_map(|part| {
                let track = part.track as usize;
                Some((track, self.selected.get(track)?.track.comm.get(part.index)?))
            })
            .collect();
        let (Some(part), Some((_, first))) = (group.first(), events.first()) else { return };
        let op = self.names.get(first.op);
        let size = self.size(part.comm).unwrap_or(events.len());
        if let Some(reason) = self.objection(op, &events, size) {
            self.leave_out(part, op, reason, &events);
            return;
        }
        let Some(last) = last_arrival_ns(events.iter().map(|(_, event)| event.start_ns)) else { return };
        let step = events
            .iter()
            .find_map(|&(track, event)| self.selected.get(track)?.index.assign(event.step, event.start_ns));
        let position = match step {
            Some(step) => Position::Step(step),
            None => Position::Sequence { comm: part.comm.index() as u32, seq: part.seq },
        };
        let members: Vec<Member> = events
            .iter()
            .filter_map(|&(track, event)| {
                let identity = &self.selected.get(track)?.track;
                let compute = self.covers.get(track)?;
                let part = (event.start_ns, event.end_ns);
                Some(Member::new((identity.rank, identity.device), part, last, compute))
            })
            .collect();
        let complete = events.len() == size;
        if !complete && self.unmatched.len() < LISTED {
            // Listed here, counted at the end: only if the op has complete collectives.
            self.list(part, op, UnmatchedReason::MembersMissing, &events);
        }
        self.accumulator.add(op, position, &members, complete);
    }

    /// Number of members: as recorded, else as many as were seen.
    fn size(&self, comm: Sym) -> Option<usize> {
        let seen = self.communicators.get(&comm)?;
        let recorded = seen.size.map(|size| size as usize);
        let listed = self.members.get(&comm).map(Vec::len).filter(|&listed| listed > 0);
        Some(recorded.or(listed).unwrap_or(seen.tracks.len()))
    }

    /// Why these events are not one collective with at least two ranks.
    fn objection(&self, op: &str, events: &[(usize, Comm)], size: usize) -> Option<UnmatchedReason> {
        let repeated = events.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if repeated || events.len() > size {
            return Some(UnmatchedReason::Ambiguous);
        }
        let ranks: BTreeSet<u32> = events.iter().map(|&(track, _)| self.rank(track)).collect();
        if ranks.len() < 2 {
            return Some(UnmatchedReason::MembersMissing);
        }
        let same_op = events.windows(2).all(|pair| pair[0].1.op == pair[1].1.op);
        // What one rank does not say does not contradict the others.
        let same_bytes = bytes_may_differ(op) || agree(events.iter().filter_map(|(_, event)| event.bytes));
        if !same_op || !same_bytes || !agree(events.iter().filter_map(|(_, event)| event.dtype)) {
            return Some(UnmatchedReason::Disagreement);
        }
        let reversed = events.iter().any(|(_, event)| event.end_ns < event.start_ns);
        reversed.then_some(UnmatchedReason::EndBeforeStart)
    }

    fn leave_out(&mut self, part: &Part, op: &str, reason: UnmatchedReason, events: &[(usize, Comm)]) {
        self.unmatched_events += events.len() as u64;
        if self.unmatched.len() < LISTED {
            self.list(part, op, reason, events);
        }
    }

    fn list(&mut self, part: &Part, op: &str, reason: UnmatchedReason, events: &[(usize, Comm)]) {
        let ranks: BTreeSet<u32> = events.iter().map(|&(track, _)| self.rank(track)).collect();
        self.unmatched.push(Unmatched {
            comm: Some(self.names.get(part.comm).to_string()),
            seq: Some(part.seq),
            op: op.to_string(),
            reason,
            ranks: ranks.into_iter().collect(),
        });
    }

    fn rank(&self, track: usize) -> u32 {
        self.selected.get(track).map_or(0, |one| one.track.rank)
    }

    fn finish(self, warnings: &mut Vec<String>) -> Option<CrossRank> {
        let left_out = LeftOut {
            events: self.unmatched_events,
            listed: self.unmatched,
            not_numbered: self.not_numbered,
        };
        conclude(&self.accumulator, left_out, self.names, warnings)
    }
}

fn agree<T: PartialEq>(values: impl Iterator<Item = T>) -> bool {
    let mut values = values;
    let first = values.next();
    values.all(|value| first.as_ref() == Some(&value))
}
