//! Point-to-point calls: the n-th send from one rank to another meets the n-th receive there.
//!
//! That holds from the beginning of a communicator on. Of a trace that may begin later, or that lost
//! events, it is relied upon only where both sides have equally many: over the whole trace, else within a
//! step.

use super::communicator::{Communicators, Key};
use super::{ChannelKind, Part, Place};
use crate::analyze::filter::Selected;
use crate::timeline::{Comm, Names, Timeline};
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet};

/// Formats that hold a run from its beginning on.
const FROM_THE_START: [&str; 2] = ["commtrace-record", "timeline-json"];

/// One side of a message.
#[derive(Debug, Clone, Copy)]
struct Side {
    place: Place,
    start_ns: i64,
    step: Option<i64>,
}

/// The calls of one sender and one receiver.
#[derive(Debug, Default)]
struct Traffic {
    sent: Vec<Side>,
    received: Vec<Side>,
}

/// Numbered messages by communicator, sender and receiver.
pub(super) type Numbered = Vec<(Key, ChannelKind, Vec<Part>)>;

/// Numbers `places`; the second list holds those that cannot be numbered.
pub(super) fn number(
    places: Vec<Place>,
    communicators: &Communicators<'_>,
    selected: &[Selected<'_>],
    timeline: &Timeline,
) -> (Numbered, Vec<Place>) {
    let mut left = Vec::new();
    let mut traffic: IndexMap<(Key, u32, u32), Traffic> = IndexMap::new();
    for place in places {
        let Some(one) = selected.get(place.track as usize) else { continue };
        let Some(event) = one.track.comm.get(place.row as usize) else { continue };
        let generation = one.track.generation(place.row as usize);
        let ends = ends(&event, one.track.rank, generation, communicators, &timeline.names);
        let Some((key, source, destination, sends)) = ends else {
            left.push(place);
            continue;
        };
        let step = one.index.assign(event.step, event.start_ns);
        let side = Side { place, start_ns: event.start_ns, step };
        let traffic = traffic.entry((key, source, destination)).or_default();
        if sends { traffic.sent.push(side) } else { traffic.received.push(side) }
    }
    let partial = partial_ranks(timeline);
    let numbered = traffic
        .into_iter()
        .filter_map(|((key, source, destination), traffic)| {
            let whole = !partial.covers(source) && !partial.covers(destination);
            let parts = traffic.number(whole, &mut left);
            let kind = ChannelKind::Messages { source, destination };
            (!parts.is_empty()).then_some((key, kind, parts))
        })
        .collect();
    (numbered, left)
}

/// Communicator, sender and receiver of a call, and whether it sends.
fn ends(
    event: &Comm,
    rank: u32,
    generation: u32,
    communicators: &Communicators<'_>,
    names: &Names,
) -> Option<(Key, u32, u32, bool)> {
    let key = (event.comm?, generation);
    let peer = communicators.global(key, event.peer?)?;
    match names.get(event.op) {
        "send" => Some((key, rank, peer, true)),
        "recv" => Some((key, peer, rank, false)),
        _ => None,
    }
}

/// Ranks whose calls may not be all there are.
#[derive(Debug, Default)]
struct PartialRanks {
    all: bool,
    ranks: BTreeSet<u32>,
}

impl PartialRanks {
    fn covers(&self, rank: u32) -> bool {
        self.all || self.ranks.contains(&rank)
    }
}

fn partial_ranks(timeline: &Timeline) -> PartialRanks {
    let mut partial = PartialRanks::default();
    for input in &timeline.inputs {
        let lossy = input.dropped > 0 || input.skipped.contains_key("damaged");
        if lossy || !FROM_THE_START.contains(&input.format.as_str()) {
            match input.rank {
                Some(rank) => {
                    partial.ranks.insert(rank);
                }
                None => partial.all = true,
            }
        }
    }
    partial
}

impl Traffic {
    /// The calls with their numbers. `whole` says that both sides hold all calls from the first on.
    fn number(mut self, whole: bool, left: &mut Vec<Place>) -> Vec<Part> {
        let order = |side: &Side| (side.start_ns, side.place);
        self.sent.sort_unstable_by_key(order);
        self.received.sort_unstable_by_key(order);
        let counted = |sides: &[Side], from: u64| -> Vec<Part> {
            (from..).zip(sides).map(|(number, side)| side.place.part(number)).collect()
        };
        let one_sided = self.sent.is_empty() || self.received.is_empty();
        if whole || one_sided || self.sent.len() == self.received.len() {
            let mut parts = counted(&self.sent, 0);
            parts.extend(counted(&self.received, 0));
            return parts;
        }
        let mut steps: BTreeMap<Option<i64>, [Vec<Side>; 2]> = BTreeMap::new();
        for (sides, at) in [(self.sent, 0), (self.received, 1)] {
            for side in sides {
                steps.entry(side.step).or_default()[at].push(side);
            }
        }
        let mut parts = Vec::new();
        let mut next = 0;
        for (step, [sent, received]) in steps {
            if step.is_some() && sent.len() == received.len() {
                parts.extend(counted(&sent, next));
                parts.extend(counted(&received, next));
                next += sent.len() as u64;
            } else {
                left.extend(sent.iter().chain(&received).map(|side| side.place));
            }
        }
        parts
    }
}
