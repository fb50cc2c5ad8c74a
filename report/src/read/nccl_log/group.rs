//! Which ranks form a communicator.

use super::text::{number, value};
use crate::nccl::{Communicator, LastCall, Member};
use indexmap::IndexMap;
use std::collections::HashMap;

/// Ranks of communicators that are kept.
const MOST: usize = 1 << 18;

/// What a message of a communicator's initialization says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity<'a> {
    pub address: &'a str,
    pub rank: u32,
    pub nranks: u32,
    pub comm_id: Option<&'a str>,
    pub cuda_dev: Option<u32>,
    pub nvml_dev: Option<u32>,
    pub bus_id: Option<&'a str>,
    /// Color and count of a split.
    pub split: Option<(&'a str, &'a str)>,
    pub complete: bool,
}

impl<'a> Identity<'a> {
    /// The identity in `text`, if it is about initialization.
    pub fn of(text: &'a str) -> Option<Self> {
        let complete = text.contains("Init COMPLETE");
        if !complete && !text.contains("Init START") {
            return None;
        }
        Some(Self {
            address: value(text, "comm")?,
            rank: number(text, "rank")?,
            nranks: number(text, "nranks").filter(|&nranks| nranks > 0)?,
            comm_id: value(text, "commId"),
            cuda_dev: number(text, "cudaDev"),
            nvml_dev: number(text, "nvmlDev"),
            bus_id: value(text, "busId"),
            split: value(text, "color").map(|color| (color, value(text, "splitCount").unwrap_or(""))),
            complete,
        })
    }
}

/// What tells one communicator from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// By its id.
    Id(String, u32),
    /// Without an id: a split's color and count.
    Split { nranks: u32, color: String, count: String, ordinal: u32 },
    /// Without an id: the how-manieth of its size that each rank made.
    Ordinal { nranks: u32, ordinal: u32 },
}

/// A rank in communicators without an id: host, process, size, rank, and color and count of a split.
type Unnamed = (String, u32, u32, u32, Option<(String, String)>);

/// The ranks of all communicators.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    members: Vec<(Key, Member)>,
    /// The member that a process means by an address now; addresses are used again.
    current: HashMap<(String, u32, String), usize>,
    /// Communicators without an id so far, per process, size, rank and split.
    ordinals: HashMap<Unnamed, u32>,
}

impl Ranks {
    /// Adds what a process says of its rank; false if there are too many.
    pub fn add(
        &mut self,
        process: &(String, u32),
        launcher_rank: Option<u32>,
        identity: &Identity<'_>,
    ) -> bool {
        let place = (process.0.clone(), process.1, identity.address.to_owned());
        if let Some((key, member)) = self.current.get(&place).and_then(|&at| self.members.get_mut(at)) {
            let id = match key {
                Key::Id(id, _) => Some(id.as_str()),
                _ => None,
            };
            let same = member.rank == identity.rank && id == identity.comm_id;
            if same && !member.initialized {
                member.initialized = identity.complete;
                return true;
            }
        }
        if self.members.len() >= MOST {
            return false;
        }
        let key = self.key(process, identity);
        self.current.insert(place, self.members.len());
        let clip = |text: &str| text.chars().take(64).collect::<String>();
        let member = Member {
            rank: identity.rank,
            launcher_rank,
            host: clip(&process.0),
            pid: process.1,
            address: clip(identity.address),
            cuda_dev: identity.cuda_dev,
            nvml_dev: identity.nvml_dev,
            bus_id: identity.bus_id.map(clip),
            initialized: identity.complete,
            calls: 0,
            last_call: None,
        };
        self.members.push((key, member));
        true
    }

    fn key(&mut self, process: &(String, u32), identity: &Identity<'_>) -> Key {
        let nranks = identity.nranks;
        if let Some(id) = identity.comm_id {
            return Key::Id(id.to_owned(), nranks);
        }
        let split = identity.split.map(|(color, count)| (color.to_owned(), count.to_owned()));
        let (host, pid) = process.clone();
        let ordinal = self.ordinals.entry((host, pid, nranks, identity.rank, split.clone())).or_default();
        let own = *ordinal;
        *ordinal += 1;
        match split {
            Some((color, count)) => Key::Split { nranks, color, count, ordinal: own },
            None => Key::Ordinal { nranks, ordinal: own },
        }
    }

    /// Notes a call on the communicator at `address`; its rank, if it is known.
    pub fn called(&mut self, process: &(String, u32), address: &str, call: LastCall) -> Option<u32> {
        let place = (process.0.clone(), process.1, address.to_owned());
        let (_, member) = self.members.get_mut(*self.current.get(&place)?)?;
        member.calls += 1;
        member.last_call = Some(call);
        Some(member.rank)
    }

    /// All communicators, in order of appearance.
    pub fn communicators(self) -> Vec<Communicator> {
        let mut groups: IndexMap<Key, (Vec<Communicator>, HashMap<u32, usize>)> = IndexMap::new();
        for (key, member) in self.members {
            let (comm_id, nranks) = match &key {
                Key::Id(id, nranks) => (Some(id.clone()), *nranks),
                Key::Split { nranks, .. } | Key::Ordinal { nranks, .. } => (None, *nranks),
            };
            let (same, seen) = groups.entry(key).or_default();
            // The same rank again: another communicator that nothing else tells apart.
            let nth = seen.entry(member.rank).or_default();
            match same.get_mut(*nth) {
                Some(known) => known.members.push(member),
                None => same.push(Communicator { comm_id, nranks, members: vec![member] }),
            }
            *nth += 1;
        }
        let mut communicators: Vec<Communicator> = groups.into_values().flat_map(|(same, _)| same).collect();
        communicators.iter_mut().for_each(|known| known.members.sort_by_key(|member| member.rank));
        communicators
    }
}
