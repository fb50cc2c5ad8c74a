//! What numbers events: a communicator's collectives, and the messages from one rank to another.

use crate::timeline::Sym;
use std::ops::Range;

/// Events that are numbered together.
#[allow(dead_code, reason = "for passes that need more than the figures")]
#[derive(Debug)]
pub(crate) struct Channel<'a> {
    /// The communicator.
    pub(crate) comm: Sym,
    /// Which start of the job: after a restart under the same run id, numbers begin again.
    pub(crate) generation: u32,
    /// What is numbered.
    pub(crate) kind: ChannelKind,
    /// Where the numbers come from.
    pub(crate) numbering: Numbering,
    /// Members: 2 for messages; of a communicator as recorded, else as listed, else as many tracks as
    /// were seen.
    pub(crate) size: usize,
    /// Global ranks of the communicator's members in its order, if an input lists them.
    pub(crate) members: Option<&'a [u32]>,
    /// Tracks with events in it, ascending.
    pub(crate) tracks: Vec<u32>,
    /// Where its parts stand.
    pub(super) parts: Range<usize>,
}

/// What a channel numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ChannelKind {
    /// A communicator's collectives.
    Collectives,
    /// Messages of a communicator from one rank to another, which are sent and received in the same
    /// order.
    Messages {
        /// Global rank of the sender.
        source: u32,
        /// Global rank of the receiver.
        destination: u32,
    },
}

impl ChannelKind {
    /// Whether all members take part in each of its groups.
    pub(crate) fn is_collective(self) -> bool {
        matches!(self, Self::Collectives)
    }
}

/// Where a channel's numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// The input.
    Recorded,
    /// The order of the events on each rank.
    Counted,
}
