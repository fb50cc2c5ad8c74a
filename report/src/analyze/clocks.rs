//! Which clock each track was timed with, and how these relate.

use super::align::{Aligner, Alignment, ClockedPart, OrderCheck, OrderReport};
use super::filter::Selected;
use super::matching::{Matching, Part, is_synchronizing};
use super::{RankAlignment, ms_from_ns};
use crate::timeline::Sym;
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet};

/// Ranks of a part that a warning names, at most.
const NAMED: usize = 8;

/// The clocks of the selected tracks.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// Per track, the index of its clock.
    of_track: Vec<u32>,
    alignment: Alignment,
}

/// What a clock is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Host(Sym),
    /// Nothing is known of it but that the rank used it.
    Rank(u32),
}

impl Clocks {
    /// All tracks timed by one clock.
    pub(crate) fn same(tracks: usize) -> Self {
        Self { of_track: vec![0; tracks], alignment: Alignment::same(1) }
    }

    /// The clocks of the tracks of `matching`, aligned by its collectives. The orders of messages, which
    /// check that, are added to `warnings` where they contradict, and so are clocks that could not be
    /// aligned.
    pub(crate) fn aligned(matching: &Matching<'_>, warnings: &mut Vec<String>) -> Self {
        let mut keys: IndexMap<Key, BTreeSet<u32>> = IndexMap::new();
        let of_track = matching
            .selected()
            .iter()
            .map(|one| {
                let key = one.track.clock.map_or(Key::Rank(one.track.rank), Key::Host);
                let entry = keys.entry(key);
                let clock = entry.index() as u32;
                entry.or_default().insert(one.track.rank);
                clock
            })
            .collect();
        let ranks: Vec<u32> = keys.values().map(|ranks| ranks.len() as u32).collect();
        if ranks.len() < 2 {
            return Self { of_track, alignment: Alignment::same(1) };
        }
        let mut clocks = Self { of_track, alignment: Alignment::same(ranks.len()) };
        clocks.alignment = clocks.fit(matching, ranks);
        let order = clocks.check(matching);
        warn_of_order(order, warnings);
        clocks.warn_of_parts(matching.selected(), warnings);
        clocks
    }

    fn fit(&self, matching: &Matching<'_>, ranks: Vec<u32>) -> Alignment {
        let names = matching.names();
        let mut aligner = Aligner::new(ranks);
        let mut parts = Vec::new();
        for group in matching.groups() {
            if !group.state.is_matched() || !is_synchronizing(names.get(group.op)) {
                continue;
            }
            parts.clear();
            parts.extend(group.parts.iter().map(|&part| {
                let (start_ns, end_ns) = matching.own_times_ns(part);
                ClockedPart { clock: self.of(part.track), start_ns, end_ns }
            }));
            aligner.add(group.channel.comm.index() as u64, &parts);
        }
        aligner.finish()
    }

    /// Messages against the fit, which they may make less certain.
    fn check(&mut self, matching: &Matching<'_>) -> OrderReport {
        let mut check = OrderCheck::default();
        for (send, receive) in matching.messages() {
            let side = |part: Part| (self.of(part.track), matching.own_times_ns(part));
            let ((sender, (sent_ns, _)), (receiver, (_, received_ns))) = (side(send), side(receive));
            check.add(&self.alignment, (sender, sent_ns), (receiver, received_ns));
        }
        check.finish(&mut self.alignment)
    }

    /// How the clocks relate.
    pub(crate) fn alignment(&self) -> &Alignment {
        &self.alignment
    }

    /// The clock of a track.
    pub(crate) fn of(&self, track: u32) -> u32 {
        self.of_track.get(track as usize).copied().unwrap_or(0)
    }

    /// An instant of a track's own clock on the common one.
    pub(crate) fn to_common_ns(&self, track: u32, own_ns: i64) -> i64 {
        self.alignment.to_common_ns(self.of(track), own_ns)
    }

    /// An instant of the common clock on a track's own.
    pub(crate) fn to_own_ns(&self, track: u32, common_ns: i64) -> i64 {
        self.alignment.to_local_ns(self.of(track), common_ns)
    }

    /// Each rank's clock, in ascending order of rank.
    pub(crate) fn report(&self, selected: &[Selected<'_>]) -> Vec<RankAlignment> {
        let start_ns = self.start_ns(selected);
        let mut ranks = BTreeMap::new();
        for (one, track) in selected.iter().zip(0..) {
            let clock = self.of(track);
            let known = self.alignment.is_aligned(clock);
            ranks.entry(one.track.rank).or_insert_with(|| RankAlignment {
                rank: one.track.rank,
                offset_ms: known.then(|| self.alignment.offset_ns(clock, start_ns) as f64 / 1e6),
                drift_ppm: known.then(|| self.alignment.drift_ppm(clock)),
                uncertainty_ms: known.then(|| ms_from_ns(self.alignment.uncertainty_ns(clock).into())),
                aligned: known,
            });
        }
        ranks.into_values().collect()
    }

    /// The first instant of the aligned tracks, on the common clock.
    fn start_ns(&self, selected: &[Selected<'_>]) -> i64 {
        let aligned =
            selected.iter().zip(0..).filter(|&(_, track)| self.alignment.is_aligned(self.of(track)));
        let firsts = aligned.filter_map(|(one, track)| {
            let comm = one.track.comm.starts_ns().iter().zip(one.track.comm.ends_ns());
            let compute = one.track.compute.starts_ns().iter().zip(one.track.compute.ends_ns());
            // What ends before it starts has a wrong time.
            let sound = comm.chain(compute).filter(|(start, end)| start <= end);
            Some(self.to_common_ns(track, *sound.map(|one| one.0).min()?))
        });
        firsts.min().unwrap_or(0)
    }

    fn warn_of_parts(&self, selected: &[Selected<'_>], warnings: &mut Vec<String>) {
        let mut apart: BTreeSet<u32> = BTreeSet::new();
        for (one, track) in selected.iter().zip(0..) {
            if !self.alignment.is_aligned(self.of(track)) && !one.track.comm.is_empty() {
                apart.insert(one.track.rank);
            }
        }
        if apart.is_empty() {
            return;
        }
        let named: Vec<String> = apart.iter().take(NAMED).map(u32::to_string).collect();
        let more = apart.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (ranks, have) = if apart.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
        warnings.push(format!(
            "The clocks of {ranks} {}{more} could not be aligned with the others: they {have} no synchronizing \
             collective in common with them. If all times are of one clock already, --no-align takes them so.",
            named.join(", ")
        ));
    }
}

fn warn_of_order(order: OrderReport, warnings: &mut Vec<String>) {
    if order.wrong == 0 {
        return;
    }
    let consequence = match order.widened {
        0 => "They are too few to doubt the alignment of the clocks.",
        _ => "The uncertainty of these clocks was widened for it.",
    };
    warnings.push(format!(
        "{} of {} messages between hosts end before they were sent, by up to {:.3} ms, once clocks are aligned. \
         {consequence}",
        order.wrong,
        order.checked,
        ms_from_ns(order.worst_ns.into())
    ));
}
