//! What numbers events: communicators.

use super::group::Part;
use super::is_point_to_point;
use crate::analyze::filter::Selected;
use crate::timeline::{Comm, Names, Sym, Timeline};
use indexmap::IndexMap;
use std::collections::HashMap;
use std::ops::Range;

/// Events that are numbered together.
#[allow(dead_code, reason = "for passes that need more than the figures")]
#[derive(Debug)]
pub(crate) struct Channel<'a> {
    /// The communicator.
    pub(crate) comm: Sym,
    /// What is numbered.
    pub(crate) kind: ChannelKind,
    /// Members of the communicator: as recorded, else as listed, else as many tracks as were seen.
    pub(crate) size: usize,
    /// Global ranks of the members in the communicator's order, if an input lists them.
    pub(crate) members: Option<&'a [u32]>,
    /// Tracks with events in it, ascending.
    pub(crate) tracks: Vec<u32>,
    /// Where its parts stand.
    pub(super) parts: Range<usize>,
}

/// What a channel numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ChannelKind {
    /// A communicator's collectives, by the number that was recorded.
    Collectives,
}

impl ChannelKind {
    /// Whether all members take part in each of its groups.
    #[allow(dead_code, reason = "for passes that need more than the figures")]
    pub(crate) fn is_collective(self) -> bool {
        matches!(self, Self::Collectives)
    }
}

type Key = (Sym, ChannelKind);

/// Channels while their events are counted.
pub(super) struct Channels<'a> {
    names: &'a Names,
    members: &'a IndexMap<Sym, Vec<u32>>,
    counted: IndexMap<Key, Counted>,
    point_to_point: HashMap<Sym, bool>,
}

#[derive(Debug, Default)]
struct Counted {
    events: usize,
    size: Option<u32>,
    tracks: Vec<u32>,
}

impl<'a> Channels<'a> {
    pub(super) fn new(timeline: &'a Timeline) -> Self {
        Self {
            names: &timeline.names,
            members: &timeline.communicators,
            counted: IndexMap::new(),
            point_to_point: HashMap::new(),
        }
    }

    /// Counts an event of `track`; tracks come in ascending order. False if nothing numbers it.
    pub(super) fn note(&mut self, track: u32, event: &Comm) -> bool {
        let Some((key, _)) = self.place(event) else { return false };
        let counted = self.counted.entry(key).or_default();
        counted.events += 1;
        counted.size = counted.size.max(event.comm_size);
        if counted.tracks.last() != Some(&track) {
            counted.tracks.push(track);
        }
        true
    }

    /// The channel of an event and its number there.
    fn place(&mut self, event: &Comm) -> Option<(Key, u64)> {
        let names = self.names;
        let point_to_point =
            *self.point_to_point.entry(event.op).or_insert_with(|| is_point_to_point(names.get(event.op)));
        if point_to_point {
            return None;
        }
        Some(((event.comm?, ChannelKind::Collectives), event.seq?))
    }

    /// The channels, and the parts of each, sorted.
    pub(super) fn fill(mut self, selected: &[Selected<'_>]) -> (Vec<Channel<'a>>, Vec<Part>) {
        let mut next = 0;
        let mut ends: Vec<usize> = Vec::with_capacity(self.counted.len());
        for counted in self.counted.values() {
            ends.push(next);
            next += counted.events;
        }
        let mut parts = vec![Part { number: 0, track: 0, row: 0 }; next];
        for (one, track) in selected.iter().zip(0..) {
            for (event, row) in one.track.comm.iter().zip(0..) {
                let Some((key, number)) = self.place(&event) else { continue };
                let Some(end) = self.counted.get_index_of(&key).and_then(|at| ends.get_mut(at)) else {
                    continue;
                };
                if let Some(part) = parts.get_mut(*end) {
                    *part = Part { number, track, row };
                    *end += 1;
                }
            }
        }
        let members = self.members;
        let mut start = 0;
        let channels = self
            .counted
            .into_iter()
            .zip(ends)
            .map(|(((comm, kind), counted), end)| {
                let range = start..end;
                start = end;
                if let Some(parts) = parts.get_mut(range.clone()) {
                    parts.sort_unstable();
                }
                let members = members.get(&comm).map(Vec::as_slice).filter(|listed| !listed.is_empty());
                let recorded = counted.size.map(|size| size as usize);
                let size = recorded.or(members.map(<[u32]>::len)).unwrap_or(counted.tracks.len());
                Channel { comm, kind, size, members, tracks: counted.tracks, parts: range }
            })
            .collect();
        (channels, parts)
    }
}
