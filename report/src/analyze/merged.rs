//! All tracks on one time scale, and which events of theirs belong together: what a merged trace shows.

use super::AnalyzeOptions;
use super::filter::{Selected, select};
use super::matching::{Group, Matching, Part, is_synchronizing};
use crate::timeline::Timeline;

/// Calls `show` with the tracks of `timeline` on one time scale, which is that of the lowest rank if clocks
/// are to be aligned, and otherwise each track's own.
pub(crate) fn merged<T>(timeline: &Timeline, align: bool, show: impl FnOnce(&Merged<'_>) -> T) -> T {
    let options = AnalyzeOptions { align, ..AnalyzeOptions::default() };
    let selected = select(timeline, &options);
    let mut matching = Matching::new(timeline, &selected);
    if align {
        // What there is to say of the clocks, a report says.
        matching.align(&mut Vec::new());
    }
    let places: Vec<Option<u32>> = timeline.tracks.iter().map(|track| place(track, &selected)).collect();
    let mut tracks = vec![None; selected.len()];
    for (index, place) in places.iter().enumerate() {
        if let Some(slot) = place.and_then(|place| tracks.get_mut(place as usize)) {
            // A track that only holds steps stands behind those that use them.
            slot.get_or_insert(index);
        }
    }
    show(&Merged { matching, places, tracks })
}

/// The place among the selected tracks of one that is timed by the same clock: its own, else another of its
/// rank, for a track of steps alone.
fn place(track: &crate::timeline::Track, selected: &[Selected<'_>]) -> Option<u32> {
    let itself = selected.iter().position(|one| std::ptr::eq(&*one.track, track));
    let other =
        || selected.iter().position(|one| one.track.rank == track.rank && one.track.clock == track.clock);
    itself.or_else(other).and_then(|place| u32::try_from(place).ok())
}

/// A timeline's tracks on one time scale.
pub(crate) struct Merged<'a> {
    matching: Matching<'a>,
    /// Of the timeline's tracks, their place among the selected ones.
    places: Vec<Option<u32>>,
    /// Of the selected tracks, their index in the timeline.
    tracks: Vec<Option<usize>>,
}

/// A communication event: the index of its track in the timeline, and its row.
pub(crate) type Event = (usize, usize);

/// What released what: the last arrival the other ranks, a sender its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrow {
    /// Where it begins.
    pub(crate) from: Event,
    /// The instant there, on the common time scale; within the event.
    pub(crate) from_ns: i64,
    /// Where it ends.
    pub(crate) to: Event,
    /// The instant there.
    pub(crate) to_ns: i64,
}

impl Merged<'_> {
    /// An instant of a timeline's track on the common time scale.
    pub(crate) fn common_ns(&self, track: usize, own_ns: i64) -> i64 {
        match self.places.get(track).copied().flatten() {
            Some(place) => self.matching.clocks().to_common_ns(place, own_ns),
            None => own_ns,
        }
    }

    /// Calls `draw` with the arrows of all collectives and messages that were matched.
    ///
    /// Of a collective that synchronizes its ranks: from the last arrival to the others. Of a broadcast: from
    /// the root to the others; of a reduce: from the others to the root. Of a message: from the send to the
    /// receive.
    ///
    /// # Errors
    ///
    /// The first of `draw`.
    pub(crate) fn arrows<E>(&self, mut draw: impl FnMut(Arrow) -> Result<(), E>) -> Result<(), E> {
        for group in self.matching.groups().filter(|group| group.state.is_matched()) {
            if let Some((send, receive)) = self.matching.message(&group) {
                self.arrow(send, receive, &mut draw)?;
            } else if let Some((hub, outward)) = self.hub(&group) {
                for &part in group.parts.iter().filter(|&&part| part != hub) {
                    let (from, to) = if outward { (hub, part) } else { (part, hub) };
                    self.arrow(from, to, &mut draw)?;
                }
            }
        }
        Ok(())
    }

    /// The part that the others depend on, or that depends on them (then false).
    fn hub(&self, group: &Group<'_>) -> Option<(Part, bool)> {
        if !group.channel.kind.is_collective() {
            return None;
        }
        let op = self.matching.names().get(group.op);
        if is_synchronizing(op) {
            let last = group.parts.iter().max_by_key(|&&part| self.matching.times_ns(part).0);
            return last.map(|&last| (last, true));
        }
        let outward = match op {
            "broadcast" => true,
            "reduce" => false,
            _ => return None,
        };
        let is_root = |&&part: &&Part| {
            let event = self.matching.event(part);
            event.is_some_and(|event| event.peer.is_some() && event.peer == event.comm_rank)
        };
        group.parts.iter().find(is_root).map(|&root| (root, outward))
    }

    fn arrow<E>(&self, from: Part, to: Part, draw: &mut impl FnMut(Arrow) -> Result<(), E>) -> Result<(), E> {
        let (Some(from_event), Some(to_event)) = (self.event(from), self.event(to)) else { return Ok(()) };
        let (from_ns, _) = self.matching.times_ns(from);
        let (start_ns, end_ns) = self.matching.times_ns(to);
        // The last instant within the event; an arrow leads forward.
        let to_ns = end_ns.saturating_sub(1).max(start_ns).max(from_ns.min(end_ns));
        draw(Arrow { from: from_event, from_ns, to: to_event, to_ns })
    }

    fn event(&self, part: Part) -> Option<Event> {
        Some(((*self.tracks.get(part.track as usize)?)?, part.row as usize))
    }
}
