//! What stands under one number of a channel.

use super::{Channel, Numbering};
use crate::analyze::UnmatchedReason;
use crate::timeline::Sym;

/// One event of one track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// The event's number in its channel.
    pub(crate) number: u64,
    /// The track's place among the selected ones.
    pub(crate) track: u32,
    /// The event's place in the track's communication.
    pub(crate) row: u32,
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The track's place among the selected ones.
    pub(super) track: u32,
    /// The event's place in the track's communication.
    pub(super) row: u32,
}

impl Place {
    /// The part with this number.
    pub(super) fn part(self, number: u64) -> Part {
        Part { number, track: self.track, row: self.row }
    }
}

/// The events under one number of a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'m> {
    /// What they are numbered in.
    pub(crate) channel: &'m Channel<'m>,
    /// Their number: of a collective as recorded, else, and of messages, as counted.
    pub(crate) number: u64,
    /// The op of the first part.
    pub(crate) op: Sym,
    /// Whether they belong together.
    pub(crate) state: State,
    /// The events, by track and row; never empty.
    pub(crate) parts: &'m [Part],
}

impl Group<'_> {
    /// The number, if the input tells it.
    pub(crate) fn recorded_number(&self) -> Option<u64> {
        (self.channel.numbering == Numbering::Recorded).then_some(self.number)
    }
}

/// Whether the events under one number belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// All members are there and agree.
    Complete,
    /// Those that are there agree: at least two ranks, and not all members.
    Partial,
    /// A single rank.
    Alone,
    /// One track recorded the number twice, or more did than there are members; a message with two
    /// senders or receivers.
    Ambiguous,
    /// They differ in op, bytes or dtype.
    Disagreement,
    /// An event ends before it starts.
    EndBeforeStart,
}

impl State {
    /// Whether the events are parts of one collective, of at least two ranks, or both sides of a message.
    pub(crate) fn is_matched(self) -> bool {
        matches!(self, Self::Complete | Self::Partial)
    }

    /// Why the group is not complete; `None` if it is.
    pub(crate) fn reason(self) -> Option<UnmatchedReason> {
        match self {
            Self::Complete => None,
            Self::Partial | Self::Alone => Some(UnmatchedReason::MembersMissing),
            Self::Ambiguous => Some(UnmatchedReason::Ambiguous),
            Self::Disagreement => Some(UnmatchedReason::Disagreement),
            Self::EndBeforeStart => Some(UnmatchedReason::EndBeforeStart),
        }
    }
}

/// A group as it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Place of its first part; it reaches to the next group's.
    pub(super) first: usize,
    pub(super) channel: u32,
    pub(super) op: Sym,
    pub(super) state: State,
}
