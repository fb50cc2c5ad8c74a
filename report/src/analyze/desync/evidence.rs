//! What is known of ranks, communicators and calls at the end of a record: the input of the judgement.
//!
//! Instants of different ranks stand on one axis where that is possible (one clock, or several that are
//! tied to the time of day); [`Evidence::comparable`] says so. Lengths of time are always taken within
//! one rank.

use crate::timeline::{Names, Sym};
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet};

/// How a rank's recording ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Ending {
    /// Regularly: nothing comes after it.
    Regular,
    /// It has no end: the process was killed or still runs.
    Cut,
    /// The format does not say.
    #[default]
    Unknown,
}

/// What is known of one rank as a whole.
#[derive(Debug, Clone, Default)]
pub(super) struct RankState {
    pub ending: Ending,
    /// The first instant that is known of it.
    pub first_ns: Option<i64>,
    /// The last instant at which it is known to have run.
    pub seen_ns: Option<i64>,
    /// Every call that was entered by then is known.
    pub complete_until_ns: Option<i64>,
    /// Whether the recording says up to when it is complete. If it does not, `seen_ns` is no more than
    /// its last interval, and nothing can be said about how long a call has been open.
    pub says_when: bool,
    /// Whether its record holds only the beginning of the run: what is not in it may have happened.
    pub truncated: bool,
    /// Why calls may be missing from its record, each to stand behind the rank's name and a colon.
    pub losses: Vec<String>,
}

/// A call of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub rank: u32,
    pub op: Sym,
    pub bytes: Option<u64>,
    pub dtype: Option<Sym>,
    pub start_ns: Option<i64>,
    /// `None` while it is open.
    pub end_ns: Option<i64>,
}

impl Entry {
    pub fn is_open(&self) -> bool {
        self.end_ns.is_none()
    }
}

/// One rank's calls on one communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reach {
    /// The rank's number inside the communicator.
    pub comm_rank: Option<u32>,
    /// Number of its first call that is known.
    pub first: u64,
    /// Number of its last.
    pub last: u64,
}

/// What is known of one communicator.
#[derive(Debug, Clone, Default)]
pub(super) struct CommEvidence {
    /// Global ranks of all members, if known.
    pub members: Option<Vec<u32>>,
    /// Number of members, if known.
    pub size: Option<u32>,
    /// Global rank by number inside the communicator, as far as ranks recorded theirs.
    pub numbers: BTreeMap<u32, u32>,
    /// Per global rank.
    pub reach: BTreeMap<u32, Reach>,
    /// The longest that a finished call took.
    pub longest_ns: u64,
    /// The calls with the numbers that matter, in order of rank.
    pub calls: BTreeMap<u64, Vec<Entry>>,
    /// The first finished call on which ranks disagree.
    pub disagreement: Option<(u64, Vec<Entry>)>,
}

/// A point-to-point channel: communicator, source and destination as global ranks.
pub(super) type Channel = (Sym, u32, u32);

/// The calls on a channel.
#[derive(Debug, Clone, Default)]
pub(super) struct ChannelEvidence {
    pub sends: u64,
    pub recvs: u64,
    pub longest_ns: u64,
    /// Sends and receives that have not ended.
    pub open: Vec<Entry>,
}

/// What is known of ranks from outside their records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Ranks whose process is gone.
    pub gone: BTreeSet<u32>,
    /// Ranks whose process runs.
    pub running: BTreeSet<u32>,
}

/// Everything that the judgement rests on.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub names: &'a Names,
    /// The ranks that were read.
    pub ranks: BTreeMap<u32, RankState>,
    /// What is known of ranks from outside their records.
    pub known: &'a Known,
    /// Ranks that the caller asked for, if not all.
    pub wanted: Option<&'a BTreeSet<u32>>,
    pub world_size: Option<u32>,
    /// Whether the inputs are records, so that a rank without an input is worth a word.
    pub records: bool,
    /// Whether instants of different ranks can be compared.
    pub comparable: bool,
    /// Whether instants are nanoseconds since the Unix epoch.
    pub unix: bool,
    pub comms: IndexMap<Sym, CommEvidence>,
    pub channels: IndexMap<Channel, ChannelEvidence>,
    /// Open calls without communicator or number.
    pub unnumbered: Vec<Entry>,
    /// A call has to be open for this long to be one that hangs.
    pub patience_ns: i64,
}

impl Evidence<'_> {
    /// How long `entry` has been open; `None` if that is not known.
    pub fn waited_ns(&self, entry: &Entry) -> Option<i64> {
        let state = self.ranks.get(&entry.rank).filter(|state| state.says_when)?;
        Some(state.seen_ns?.saturating_sub(entry.start_ns?).max(0))
    }

    /// Whether `entry` is open for longer than calls of its communicator take. A recording that does not
    /// say up to when it goes writes only what was open for long.
    pub fn hangs(&self, entry: &Entry, longest_ns: u64) -> bool {
        let usual = i64::try_from(longest_ns.saturating_mul(3)).unwrap_or(i64::MAX);
        entry.is_open() && self.waited_ns(entry).is_none_or(|waited| waited >= self.patience_ns.max(usual))
    }

    /// The first instant that is known of any rank.
    pub fn base_ns(&self) -> Option<i64> {
        self.ranks.values().filter_map(|state| state.first_ns).min()
    }

    /// The latest instant at which any rank is known to have run.
    pub fn latest_ns(&self) -> Option<i64> {
        self.ranks.values().filter_map(|state| state.seen_ns).max()
    }

    /// Whether `rank` stopped while others went on: it has no end, and others ended regularly or are known
    /// to have run for long after.
    pub fn stopped(&self, rank: u32) -> bool {
        let Some(state) = self.ranks.get(&rank) else { return false };
        if state.ending != Ending::Cut {
            return false;
        }
        if self.known.gone.contains(&rank) || self.known.running.contains(&rank) {
            return self.known.gone.contains(&rank);
        }
        let others = || self.ranks.iter().filter(|(other, _)| **other != rank).map(|(_, state)| state);
        if others().any(|other| other.ending == Ending::Regular) {
            return true;
        }
        let (true, Some(seen_ns)) = (self.comparable && state.says_when, state.seen_ns) else { return false };
        others().filter_map(|other| other.seen_ns).any(|other| other.saturating_sub(seen_ns) >= SILENCE_NS)
    }
}

/// A recorder that runs says so at least every 30 s; twice that allows for a writer that had to wait.
pub(super) const SILENCE_NS: i64 = 60_000_000_000;
