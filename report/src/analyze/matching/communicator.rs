//! What the events of one communicator say of it.

use super::Place;
use crate::timeline::{Comm, Sym};
use indexmap::IndexMap;
use std::collections::HashMap;

/// A communicator of one start of the job.
pub(super) type Key = (Sym, u32);

/// A communicator while its events are collected.
#[derive(Debug, Default)]
pub(super) struct Communicator {
    /// Events of collectives with a number.
    pub numbered: usize,
    /// Tracks that have them, ascending.
    pub tracks: Vec<u32>,
    /// Collectives without a number.
    pub loose: Vec<Place>,
    /// Ranks as recorded with an event.
    size: Option<u32>,
    /// Global ranks by the rank's number in the communicator, as its events tell.
    global: HashMap<u32, u32>,
    last_track: Option<u32>,
}

/// All communicators, in order of first appearance.
pub(super) struct Communicators<'a> {
    found: IndexMap<Key, Communicator>,
    /// As inputs list them.
    listed: &'a IndexMap<Sym, Vec<u32>>,
    /// Where the last event's stands: neighbours are mostly of one communicator.
    last: Option<(Key, usize)>,
}

impl<'a> Communicators<'a> {
    pub fn new(listed: &'a IndexMap<Sym, Vec<u32>>) -> Self {
        Self { found: IndexMap::new(), listed, last: None }
    }

    /// The place of a communicator in [`get`](Self::get).
    pub fn index(&mut self, key: Key) -> Option<usize> {
        match self.last {
            Some((last, index)) if last == key => Some(index),
            _ => {
                let index = self.found.get_index_of(&key)?;
                self.last = Some((key, index));
                Some(index)
            }
        }
    }

    /// The communicator of an event of `track` (of `rank`), which it now knows of.
    pub fn note(&mut self, key: Key, track: u32, rank: u32, event: &Comm) -> Option<&mut Communicator> {
        let index = match self.index(key) {
            Some(index) => index,
            None => self.found.insert_full(key, Communicator::default()).0,
        };
        let (_, communicator) = self.found.get_index_mut(index)?;
        communicator.size = communicator.size.max(event.comm_size);
        if communicator.last_track != Some(track) {
            communicator.last_track = Some(track);
            if let Some(own) = event.comm_rank {
                communicator.global.entry(own).or_insert(rank);
            }
        }
        Some(communicator)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &Communicator)> {
        self.found.iter().map(|(&key, communicator)| (key, communicator))
    }

    /// Takes the collectives without a number out, by communicator.
    pub fn take_loose(&mut self) -> Vec<(Key, Vec<Place>)> {
        let taken = self.found.iter_mut().map(|(&key, one)| (key, std::mem::take(&mut one.loose)));
        taken.filter(|(_, places)| !places.is_empty()).collect()
    }

    /// Global ranks in the communicator's order, if an input lists them.
    pub fn members(&self, comm: Sym) -> Option<&'a [u32]> {
        self.listed.get(&comm).map(Vec::as_slice).filter(|listed| !listed.is_empty())
    }

    /// Members: as recorded, else as listed.
    pub fn size(&self, key: Key) -> Option<usize> {
        let recorded = self.found.get(&key).and_then(|one| one.size).map(|size| size as usize);
        recorded.or_else(|| self.members(key.0).map(<[u32]>::len))
    }

    /// The global rank of a communicator's member. What events tell stands above the list, which is of
    /// the last start of a job that was restarted with other ranks.
    pub fn global(&self, key: Key, member: u32) -> Option<u32> {
        let told = self.found.get(&key).and_then(|one| one.global.get(&member)).copied();
        told.or_else(|| self.members(key.0)?.get(member as usize).copied())
    }
}
