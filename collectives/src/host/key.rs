//! Which call of a communicator a call is, as all its ranks count.

use std::sync::Arc;

use crate::{CallId, CallKind, Op};

/// What a call counts as.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Collective,
    SendTo(usize),
    RecvFrom(usize),
}

/// Names a call. Ranks count within the communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Collective { seq: u64 },
    Message { source: usize, destination: usize, count: u64 },
    Split { count: u64 },
}

/// A communicator's name and members.
#[derive(Debug)]
pub(crate) struct Members {
    /// The name that spans carry.
    pub(crate) name: Arc<str>,
    /// Global rank of each rank.
    pub(crate) ranks: Box<[u32]>,
}

impl Members {
    pub(crate) fn size(&self) -> usize {
        self.ranks.len()
    }

    pub(crate) fn global(&self, rank: usize) -> u32 {
        self.ranks.get(rank).copied().unwrap_or_else(|| u32::try_from(rank).unwrap_or(u32::MAX))
    }

    /// How errors name the call `key`, an `op`.
    pub(crate) fn call_id(&self, key: Key, op: Op) -> CallId {
        let call = match key {
            Key::Collective { seq } => CallKind::Collective { op, seq },
            Key::Message { source, destination, count } => CallKind::PointToPoint {
                source: self.global(source),
                destination: self.global(destination),
                count,
            },
            Key::Split { count } => CallKind::Split { count },
        };
        CallId { comm: Arc::clone(&self.name), call }
    }

    /// `world/1` for color 1 of the first split of `world`, `world/1.2` for the third.
    pub(crate) fn part_name(&self, color: u32, count: u64) -> Arc<str> {
        let name = &self.name;
        if count == 0 { format!("{name}/{color}").into() } else { format!("{name}/{color}.{count}").into() }
    }
}

impl Key {
    /// How many ranks come to the call in a communicator of `size`: sender and receiver, or all.
    pub(crate) fn slots(self, size: usize) -> usize {
        match self {
            Self::Message { .. } => 2,
            Self::Collective { .. } | Self::Split { .. } => size,
        }
    }

    /// The rank that comes as the `slot`th.
    pub(crate) fn rank_of(self, slot: usize) -> usize {
        match self {
            Self::Message { source, destination, .. } => [source, destination][slot.min(1)],
            Self::Collective { .. } | Self::Split { .. } => slot,
        }
    }
}
