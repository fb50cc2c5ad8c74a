//! Which events of different ranks belong together: the parts of one collective, the two sides of one
//! message.
//!
//! [`Matching::new`] groups the events of all selected tracks once; every analysis across ranks (waits,
//! clock alignment, stragglers, desynchronization, flow arrows) is a pass over its groups:
//!
//! ```text
//! let matching = Matching::new(&timeline, &selected);
//! for group in matching.groups() {                    // by channel, then by number
//!     if group.state.is_matched() && group.channel.kind.is_collective() {
//!         for &part in group.parts {                  // by track, then by row
//!             let (start_ns, end_ns) = matching.times_ns(part);
//! ```
//!
//! - A [`Channel`] is what numbers events: a communicator's collectives, or its messages from one rank to
//!   another. Collectives have the number that was recorded; where none was, and for messages, they are
//!   counted ([`order`], [`messages`] say when that is relied upon). A job that was restarted
//!   begins to count again: its channels are told apart by their generation.
//! - A [`Group`] is what stands under one number of a channel: one [`Part`] per member that was recorded,
//!   and a [`State`] that says whether they belong together. Groups of a single rank, and those whose
//!   ranks disagree, are visited too: what is missing is a finding.
//! - A [`Part`] is a place, `(track, row)`, of 16 bytes with its number; [`Matching::event`] reads the
//!   row. A track's number is its place among the selected tracks, as for covers and ranks.
//! - [`Matching::times_ns`] gives times on one time scale, [`Matching::arrivals_ns`] those of a collective in which
//!   only what the clocks can tell is a wait.
//!
//! Memory is 16 bytes per event and 24 per group beside the columns; time is that of sorting each
//! channel's events by their numbers.

mod channel;
mod collect;
mod communicator;
mod examine;
mod group;
mod messages;
mod op;
mod order;
#[cfg(test)]
mod tests;

pub(crate) use channel::{Channel, ChannelKind, Numbering};
pub(crate) use group::{Group, Part, State};
pub use op::is_synchronizing;
pub(crate) use op::{bytes_may_differ, is_point_to_point};

use super::arrivals::{Arrivals, Timed, tell_apart};
use super::clocks::Clocks;
use super::filter::Selected;
use crate::timeline::{Comm, Names, Sym, Timeline};
use collect::collect;
use examine::examine;
use group::{Place, Row};
use indexmap::{IndexMap, IndexSet};
use std::collections::BTreeSet;

/// The events of all selected tracks, grouped.
#[derive(Debug)]
pub(crate) struct Matching<'a> {
    names: &'a Names,
    selected: &'a [Selected<'a>],
    clocks: Clocks,
    channels: Vec<Channel<'a>>,
    /// By channel, number, track and row.
    parts: Vec<Part>,
    groups: Vec<Row>,
    ops: IndexSet<Sym>,
    not_numbered: IndexMap<Sym, NotNumbered>,
}

/// Events of one op that nothing numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotNumbered {
    /// How many.
    pub(crate) events: u64,
    /// Global ranks that recorded them.
    pub(crate) ranks: BTreeSet<u32>,
}

impl<'a> Matching<'a> {
    /// Groups the communication of `selected`.
    pub(crate) fn new(timeline: &'a Timeline, selected: &'a [Selected<'a>]) -> Self {
        let found = collect(timeline, selected);
        let mut matching = Self {
            names: &timeline.names,
            selected,
            clocks: Clocks::same(selected.len()),
            channels: found.channels,
            parts: found.parts,
            groups: Vec::new(),
            ops: found.ops,
            not_numbered: found.not_numbered,
        };
        matching.groups = matching.rows();
        matching
    }

    /// All groups, by channel and number.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Group<'_>> + '_ {
        (0..self.groups.len()).filter_map(|place| self.group(place))
    }

    /// The group at a place among all [`groups`](Self::groups).
    pub(crate) fn group(&self, place: usize) -> Option<Group<'_>> {
        let row = self.groups.get(place)?;
        let end = self.groups.get(place + 1).map_or(self.parts.len(), |next| next.first);
        let parts = self.parts.get(row.first..end)?;
        let number = parts.first()?.number;
        let channel = self.channels.get(row.channel as usize)?;
        Some(Group { channel, number, op: row.op, state: row.state, parts })
    }

    /// All channels, in order of first appearance.
    #[allow(dead_code, reason = "for passes that need more than the figures")]
    pub(crate) fn channels(&self) -> &[Channel<'a>] {
        &self.channels
    }

    /// The row of a part. Inlined, so that columns that the caller has no use for are not read.
    #[inline(always)]
    pub(crate) fn event(&self, part: Part) -> Option<Comm> {
        self.selected.get(part.track as usize)?.track.comm.get(part.row as usize)
    }

    /// Puts the clocks of all tracks on one time scale, which [`times_ns`](Self::times_ns) then gives. Until
    /// then, all tracks are taken to share a clock.
    pub(crate) fn align(&mut self, warnings: &mut Vec<String>) {
        self.clocks = Clocks::aligned(self, warnings);
    }

    /// The clocks of the tracks.
    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// Start and end of a part on the common time scale.
    pub(crate) fn times_ns(&self, part: Part) -> (i64, i64) {
        let (start, end) = self.own_times_ns(part);
        (self.clocks.to_common_ns(part.track, start), self.clocks.to_common_ns(part.track, end))
    }

    /// Start and end of a part on its track's own clock.
    pub(crate) fn own_times_ns(&self, part: Part) -> (i64, i64) {
        let Some(one) = self.selected.get(part.track as usize) else { return (0, 0) };
        let comm = &one.track.comm;
        let at = |column: &[i64]| column.get(part.row as usize).copied().unwrap_or(0);
        (at(comm.starts_ns()), at(comm.ends_ns()))
    }

    /// Start and end of each of `parts` as [`times_ns`](Self::times_ns), and with arrivals that the clocks
    /// cannot tell from the last one moved to it, end and all. `times` is filled anew; it is the caller's so
    /// that a pass over all groups sets memory aside once.
    pub(crate) fn arrivals_ns(&self, parts: &[Part], times: &mut Arrivals) {
        let timed = |&part: &Part| {
            let (start_ns, end_ns) = self.times_ns(part);
            Timed { clock: self.clocks.of(part.track), start_ns, end_ns }
        };
        times.measured.clear();
        times.measured.extend(parts.iter().map(timed));
        times.known.clone_from(&times.measured);
        times.uncertainty_ns = tell_apart(&mut times.known, self.clocks.alignment());
    }

    /// An instant of the common time scale on the clock of `track`: the inverse of what
    /// [`times_ns`](Self::times_ns) does.
    pub(crate) fn on_track_ns(&self, track: u32, common_ns: i64) -> i64 {
        self.clocks.to_own_ns(track, common_ns)
    }

    /// Sender's and receiver's part of each message that was matched.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (Part, Part)> + '_ {
        self.groups().filter_map(|group| self.message(&group))
    }

    /// All tracks; a track's number is its place.
    pub(crate) fn selected(&self) -> &'a [Selected<'a>] {
        self.selected
    }

    /// The track with this number.
    pub(crate) fn track(&self, track: u32) -> Option<&Selected<'a>> {
        self.selected.get(track as usize)
    }

    /// Global rank of a track.
    pub(crate) fn rank(&self, track: u32) -> u32 {
        self.track(track).map_or(0, |one| one.track.rank)
    }

    /// Global ranks of a group's parts.
    pub(crate) fn ranks(&self, parts: &[Part]) -> BTreeSet<u32> {
        parts.iter().map(|part| self.rank(part.track)).collect()
    }

    /// The step of a group: that of its first part with one.
    pub(crate) fn step(&self, group: &Group<'_>) -> Option<i64> {
        group.parts.iter().find_map(|&part| {
            let event = self.event(part)?;
            self.track(part.track)?.index.assign(event.step, event.start_ns)
        })
    }

    /// Sender's and receiver's part of a message that was matched.
    pub(crate) fn message(&self, group: &Group<'_>) -> Option<(Part, Part)> {
        let ChannelKind::Messages { .. } = group.channel.kind else { return None };
        let &[one, other] = group.parts else { return None };
        if !group.state.is_matched() {
            return None;
        }
        let sends = self.names.get(self.event(one)?.op) == "send";
        Some(if sends { (one, other) } else { (other, one) })
    }

    /// The strings of the timeline.
    pub(crate) fn names(&self) -> &'a Names {
        self.names
    }

    /// All ops, in order of first appearance.
    pub(crate) fn ops(&self) -> impl Iterator<Item = Sym> + '_ {
        self.ops.iter().copied()
    }

    /// Events that are in no channel, per op in order of first appearance.
    pub(crate) fn not_numbered(&self) -> &IndexMap<Sym, NotNumbered> {
        &self.not_numbered
    }

    /// Splits the sorted parts into groups.
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (channel, number) in self.channels.iter().zip(0..) {
            let Some(parts) = self.parts.get(channel.parts.clone()) else { continue };
            let mut first = channel.parts.start;
            for group in parts.chunk_by(|a, b| a.number == b.number) {
                if let Some((op, state)) = examine(self, channel, group) {
                    rows.push(Row { first, channel: number, op, state });
                }
                first += group.len();
            }
        }
        rows
    }
}
