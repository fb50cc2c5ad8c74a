//! What one file contributes to a timeline.

use super::ReadOptions;
use super::builder::Builder;
use crate::timeline::{Sym, Timeline};
use std::collections::{BTreeSet, HashMap};

/// Whose intervals a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RankSource {
    /// One rank's; the numbers in the tracks do not count.
    File(u32),
    /// The ranks that the tracks name.
    Tracks,
    /// One rank's, which is the number in the largest communicator of its process: not the rank of the
    /// job if that communicator is not the whole job's.
    Claimed(u32),
    /// One rank's, and nothing says which.
    Unknown,
    /// Several ranks', which the tracks count from 0 since nothing says them.
    #[cfg(feature = "nsys")]
    Counted,
}

/// A file that was read on its own, with names of its own.
#[derive(Debug)]
pub(super) struct Fragment {
    /// Its tracks, inputs, warnings and communicators.
    pub timeline: Timeline,
    /// Whose they are.
    pub rank: RankSource,
}

/// Adds fragments to a timeline, one after the other.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// What was added: to find a file that is given twice, for example compressed and not.
    seen: Vec<Extent>,
    /// Ranks that files without one were given.
    assigned: BTreeSet<u32>,
    /// Ranks that files claimed.
    claimed: BTreeSet<u32>,
}

/// By what two files are taken for the same.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    path: String,
    rank: RankSource,
    tracks: Vec<TrackExtent>,
}

#[derive(Debug, PartialEq, Eq)]
struct TrackExtent {
    device: Option<u32>,
    compute: usize,
    comm: usize,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
}

impl Extent {
    fn of(fragment: &Fragment) -> Self {
        let tracks = &fragment.timeline.tracks;
        let tracks = tracks.iter().map(|track| {
            let first = track.compute.starts_ns().first().or(track.comm.starts_ns().first());
            let last = track.comm.ends_ns().last().or(track.compute.ends_ns().last());
            TrackExtent {
                device: track.device,
                compute: track.compute.len(),
                comm: track.comm.len(),
                first_ns: first.copied(),
                last_ns: last.copied(),
            }
        });
        let path = fragment.timeline.inputs.first().map(|input| input.path.clone()).unwrap_or_default();
        Self { path, rank: fragment.rank, tracks: tracks.collect() }
    }

    fn is_empty(&self) -> bool {
        self.tracks.iter().all(|track| track.compute + track.comm == 0)
    }

    /// Whether both hold the same events of the same rank.
    fn same_events(&self, other: &Self) -> bool {
        !self.is_empty() && self.rank == other.rank && self.tracks == other.tracks
    }
}

impl Commits {
    /// Adds `fragment` to `builder`, as far as `options` ask for it.
    pub fn add(&mut self, mut fragment: Fragment, options: &ReadOptions, builder: &mut Builder) {
        let extent = Extent::of(&fragment);
        if let Some(same) = self.seen.iter().find(|seen| seen.same_events(&extent)) {
            builder.warn(format!("{} holds the same events as {} and was left out.", extent.path, same.path));
            return;
        }
        let only = match fragment.rank {
            RankSource::File(rank) => Some(rank),
            RankSource::Tracks => None,
            #[cfg(feature = "nsys")]
            RankSource::Counted => {
                self.count(&mut fragment.timeline, &extent.path, builder);
                None
            }
            RankSource::Claimed(rank) => Some(self.claim(rank, &extent.path, builder)),
            RankSource::Unknown => {
                let present = builder.present();
                let taken = |rank: &u32| present.contains(rank) || self.assigned.contains(rank);
                let rank = (0..u32::MAX).find(|rank| !taken(rank)).unwrap_or(0);
                self.assigned.insert(rank);
                if rank > 0 || !self.seen.is_empty() {
                    builder.warn(format!(
                        "Neither {} nor its name says its rank; it is taken for rank {rank}. Name the rank \
                         with --rank-regex.",
                        extent.path
                    ));
                }
                Some(rank)
            }
        };
        self.seen.push(extent);
        if let Some(rank) = only {
            fragment.timeline.tracks.iter_mut().for_each(|track| track.rank = rank);
            fragment.timeline.inputs.iter_mut().for_each(|input| input.rank = Some(rank));
            if !options.wants(rank) {
                builder.left_out(rank);
                return;
            }
        }
        commit(fragment.timeline, options, builder);
    }
}

impl Commits {
    /// The rank of a file that claims this one: another if a file before claimed it as well.
    fn claim(&mut self, rank: u32, path: &str, builder: &mut Builder) -> u32 {
        if self.claimed.insert(rank) {
            return rank;
        }
        let present = builder.present();
        let taken = |rank: &u32| present.contains(rank) || self.claimed.contains(rank);
        let free = (0..u32::MAX).find(|rank| !taken(rank)).unwrap_or(rank);
        self.claimed.insert(free);
        builder.warn(format!(
            "{path} is of rank {rank} in its largest communicator, as another input is: the communicator of all \
             ranks is in none of them. It is taken for rank {free}; name the rank with --rank-regex."
        ));
        free
    }
}

#[cfg(feature = "nsys")]
impl Commits {
    /// Moves the ranks of a file that counts them from 0 behind those that there are.
    fn count(&mut self, timeline: &mut Timeline, path: &str, builder: &mut Builder) {
        let ranks: BTreeSet<u32> = timeline.tracks.iter().map(|track| track.rank).collect();
        let Some(&last) = ranks.last() else { return };
        let present = builder.present();
        let taken = |rank: u32| present.contains(&rank) || self.assigned.contains(&rank);
        let is_free =
            |first: &u32| (0..=last).all(|rank| first.checked_add(rank).is_some_and(|it| !taken(it)));
        let highest = present.last().max(self.assigned.last()).map_or(0, |rank| rank.saturating_add(1));
        let first = (0..=highest).find(is_free).unwrap_or(0);
        if first > 0 {
            builder.warn(format!(
                "Ranks 0 to {last} of {path} are taken for {first} to {}, since other inputs hold the former.",
                first + last
            ));
            timeline.tracks.iter_mut().for_each(|track| track.rank += first);
        }
        self.assigned.extend(ranks.into_iter().map(|rank| rank + first));
    }
}

fn commit(timeline: Timeline, options: &ReadOptions, builder: &mut Builder) {
    let Timeline { names, tracks, inputs, warnings, world_size, communicators } = timeline;
    let symbols: Vec<Sym> = names.iter().map(|text| builder.names().intern(text)).collect();
    let name = |sym: Sym| symbols.get(sym.index()).copied().unwrap_or(sym);
    // The same name for other ranks is another communicator.
    let mut renamed: HashMap<Sym, Sym> = HashMap::new();
    for (sym, ranks) in communicators {
        let shared = name(sym);
        let other = builder.members(shared).is_some_and(|known| known != ranks);
        let sym = if other {
            let text = format!("{} {ranks:?}", builder.names().get(shared));
            builder.names().intern(&text)
        } else {
            shared
        };
        renamed.insert(shared, sym);
        builder.communicator(sym, ranks);
    }
    let communicator = |sym: Sym| renamed.get(&name(sym)).copied().unwrap_or_else(|| name(sym));
    for mut track in tracks {
        if options.wants(track.rank) {
            track.rename(name, communicator);
            builder.add(track);
        } else {
            builder.left_out(track.rank);
        }
    }
    inputs.into_iter().for_each(|input| builder.input(input));
    warnings.into_iter().for_each(|warning| builder.warn(warning));
    if let Some(size) = world_size {
        builder.world_size(size);
    }
}
