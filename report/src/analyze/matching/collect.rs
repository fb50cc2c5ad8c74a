//! From the events of all tracks to channels with sorted parts.

use super::communicator::{Communicators, Key};
use super::{Channel, ChannelKind, NotNumbered, Numbering, Part, Place, is_point_to_point, messages, order};
use crate::analyze::filter::Selected;
use crate::timeline::{Comm, Names, Sym, Timeline};
use indexmap::{IndexMap, IndexSet};
use std::collections::HashMap;

/// What was collected.
pub(super) struct Collected<'a> {
    pub channels: Vec<Channel<'a>>,
    /// By channel, number, track and row.
    pub parts: Vec<Part>,
    /// In order of first appearance.
    pub ops: IndexSet<Sym>,
    pub not_numbered: IndexMap<Sym, NotNumbered>,
}

/// Where an event belongs.
enum Belongs {
    /// To the collective with this number in its communicator.
    Numbered(Key, u64),
    /// To a collective of its communicator.
    Loose,
    /// To the messages.
    Message,
    /// It names no communicator.
    Nowhere,
}

/// Tells where events belong; looks each op up once.
struct Sorter<'a> {
    names: &'a Names,
    point_to_point: HashMap<Sym, bool>,
}

impl Sorter<'_> {
    fn place(&mut self, event: &Comm, generation: u32) -> Belongs {
        let names = self.names;
        let is_message =
            *self.point_to_point.entry(event.op).or_insert_with(|| is_point_to_point(names.get(event.op)));
        match (is_message, event.comm, event.seq) {
            (true, ..) => Belongs::Message,
            (false, Some(comm), Some(number)) => Belongs::Numbered((comm, generation), number),
            (false, Some(_), None) => Belongs::Loose,
            (false, None, _) => Belongs::Nowhere,
        }
    }
}

pub(super) fn collect<'a>(timeline: &'a Timeline, selected: &[Selected<'_>]) -> Collected<'a> {
    let mut sorter = Sorter { names: &timeline.names, point_to_point: HashMap::new() };
    let mut communicators = Communicators::new(&timeline.communicators);
    let (mut ops, mut messages, mut left) = (IndexSet::new(), Vec::new(), Vec::new());
    for (one, track) in selected.iter().zip(0..) {
        let rank = one.track.rank;
        for (event, row) in one.track.comm.iter().zip(0..) {
            ops.insert(event.op);
            let place = Place { track, row };
            let generation = one.track.generation(row as usize);
            // A message tells its communicator's ranks as well.
            let communicator =
                event.comm.and_then(|comm| communicators.note((comm, generation), track, rank, &event));
            match (sorter.place(&event, generation), communicator) {
                (Belongs::Numbered(..), Some(communicator)) => {
                    communicator.numbered += 1;
                    if communicator.tracks.last() != Some(&track) {
                        communicator.tracks.push(track);
                    }
                }
                (Belongs::Loose, Some(communicator)) => communicator.loose.push(place),
                (Belongs::Message, _) => messages.push(place),
                _ => left.push(place),
            }
        }
    }

    let (mut channels, mut parts) = numbered(&mut sorter, &mut communicators, selected);
    for (key, places) in communicators.take_loose() {
        let (counted, not) = order::number(places, selected, &timeline.names);
        left.extend(not);
        add(&mut channels, &mut parts, &communicators, key, ChannelKind::Collectives, counted);
    }
    let (counted, not) = messages::number(messages, &communicators, selected, timeline);
    left.extend(not);
    for (key, kind, counted) in counted {
        add(&mut channels, &mut parts, &communicators, key, kind, counted);
    }

    left.sort_unstable();
    let mut not_numbered: IndexMap<Sym, NotNumbered> = IndexMap::new();
    for place in left {
        let Some(one) = selected.get(place.track as usize) else { continue };
        let Some(event) = one.track.comm.get(place.row as usize) else { continue };
        let entry = not_numbered.entry(event.op).or_default();
        entry.events += 1;
        entry.ranks.insert(one.track.rank);
    }
    Collected { channels, parts, ops, not_numbered }
}

/// The channels of collectives that the inputs number: counted first, so that each event is moved once.
fn numbered<'a>(
    sorter: &mut Sorter<'_>,
    communicators: &mut Communicators<'a>,
    selected: &[Selected<'_>],
) -> (Vec<Channel<'a>>, Vec<Part>) {
    let mut ends = Vec::new();
    let mut total = 0;
    for (_, communicator) in communicators.iter() {
        ends.push(total);
        total += communicator.numbered;
    }
    let mut parts = vec![Part { number: 0, track: 0, row: 0 }; total];
    for (one, track) in selected.iter().zip(0..) {
        for (event, row) in one.track.comm.iter().zip(0..) {
            let place = sorter.place(&event, one.track.generation(row as usize));
            let Belongs::Numbered(key, number) = place else { continue };
            let Some(end) = communicators.index(key).and_then(|index| ends.get_mut(index)) else { continue };
            if let Some(part) = parts.get_mut(*end) {
                *part = Part { number, track, row };
                *end += 1;
            }
        }
    }
    let mut start = 0;
    let mut channels = Vec::new();
    for ((key, communicator), end) in communicators.iter().zip(ends) {
        let range = start..end;
        start = end;
        let Some(sorted) = parts.get_mut(range.clone()).filter(|parts| !parts.is_empty()) else { continue };
        sorted.sort_unstable();
        channels.push(Channel {
            comm: key.0,
            generation: key.1,
            kind: ChannelKind::Collectives,
            numbering: Numbering::Recorded,
            size: communicators.size(key).unwrap_or(communicator.tracks.len()),
            members: communicators.members(key.0),
            tracks: communicator.tracks.clone(),
            parts: range,
        });
    }
    (channels, parts)
}

/// Adds a channel whose numbers were counted.
fn add<'a>(
    channels: &mut Vec<Channel<'a>>,
    parts: &mut Vec<Part>,
    communicators: &Communicators<'a>,
    key: Key,
    kind: ChannelKind,
    mut counted: Vec<Part>,
) {
    if counted.is_empty() {
        return;
    }
    counted.sort_unstable();
    let mut tracks: Vec<u32> = counted.iter().map(|part| part.track).collect();
    tracks.sort_unstable();
    tracks.dedup();
    let first = parts.len();
    parts.append(&mut counted);
    let size = match kind {
        ChannelKind::Collectives => communicators.size(key).unwrap_or(tracks.len()),
        ChannelKind::Messages { .. } => 2,
    };
    channels.push(Channel {
        comm: key.0,
        generation: key.1,
        kind,
        numbering: Numbering::Counted,
        size,
        members: communicators.members(key.0),
        tracks,
        parts: first..parts.len(),
    });
}
