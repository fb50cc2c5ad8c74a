//! A timeline in the making, shared by the readers of all formats.

use super::process::Processes;
use crate::timeline::{CommColumns, Input, Names, Step, Sym, Timeline, Track};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;

/// A timeline in the making: tracks by rank and device, in any order.
#[derive(Debug, Default)]
pub(super) struct Builder {
    timeline: Timeline,
    tracks: BTreeMap<(u32, Option<u32>), Track>,
    /// Steps that belong to a rank, not to one of its devices.
    steps: BTreeMap<u32, Vec<Step>>,
    /// Ranks whose host-timed intervals were recorded beside those of its devices.
    recorded: BTreeSet<u32>,
    /// Per recorded rank, which of its communication a device timed, in record order.
    by_device: BTreeMap<u32, Vec<bool>>,
    /// The processes that recorded ranks, in the order of their records.
    processes: Processes,
    /// Ranks that an input holds and the options leave out.
    left_out: BTreeSet<u32>,
}

impl Builder {
    pub fn names(&mut self) -> &mut Names {
        &mut self.timeline.names
    }

    /// The track of `rank` on `device`, and the names, added if they are new.
    pub fn track(&mut self, rank: u32, device: Option<u32>) -> (&mut Track, &mut Names) {
        let track = self.tracks.entry((rank, device)).or_insert_with(|| Track::new(rank, device));
        (track, &mut self.timeline.names)
    }

    /// Adds a whole track. Intervals of a rank and device that is there already are appended to it.
    pub fn add(&mut self, track: Track) {
        let known = self.tracks.get(&(track.rank, track.device));
        if known.is_some_and(|known| known.clock != track.clock) {
            self.warn(format!(
                "Rank {} is in several inputs with different hosts: its times are of different clocks and must \
                 not be compared.",
                track.rank
            ));
        }
        match self.tracks.entry((track.rank, track.device)) {
            Entry::Vacant(vacant) => {
                vacant.insert(track);
            }
            Entry::Occupied(mut occupied) => append(occupied.get_mut(), track),
        }
    }

    /// Adds what was read into a builder of its own, of ranks that are not here yet: as if it had been read
    /// into this one.
    pub fn absorb(&mut self, mut other: Self) {
        let symbols: Vec<Sym> = other.timeline.names.iter().map(|text| self.names().intern(text)).collect();
        let name = |sym: Sym| symbols.get(sym.index()).copied().unwrap_or(sym);
        let renamed = symbols.iter().enumerate().any(|(index, sym)| index != sym.index());
        for (key, mut track) in other.tracks {
            if renamed {
                track.rename(name, name);
            }
            self.tracks.insert(key, track);
        }
        self.steps.append(&mut other.steps);
        self.recorded.append(&mut other.recorded);
        self.by_device.append(&mut other.by_device);
        self.processes.append(other.processes);
        self.left_out.append(&mut other.left_out);
        let Timeline { inputs, warnings, world_size, communicators, .. } = other.timeline;
        self.timeline.inputs.extend(inputs);
        self.timeline.warnings.extend(warnings);
        if let Some(size) = world_size {
            self.world_size(size);
        }
        communicators.into_iter().for_each(|(sym, ranks)| self.communicator(name(sym), ranks));
    }

    /// Gives back memory that was set aside for more intervals.
    pub fn shrink(&mut self) {
        self.tracks.values_mut().for_each(Track::shrink);
    }

    /// Notes that an input holds `rank` and the options leave it out.
    pub fn left_out(&mut self, rank: u32) {
        self.left_out.insert(rank);
    }

    pub fn ranks_left_out(&self) -> &BTreeSet<u32> {
        &self.left_out
    }

    /// The ranks of the communicator `name`, if an input lists them.
    #[cfg(feature = "import")]
    pub fn members(&self, name: Sym) -> Option<&[u32]> {
        self.timeline.communicators.get(&name).map(Vec::as_slice)
    }

    /// Ranks that have been read, those without any interval included.
    pub fn present(&self) -> BTreeSet<u32> {
        self.tracks.keys().map(|key| key.0).chain(self.recorded.iter().copied()).collect()
    }

    /// Whether any input is a record of ours.
    pub fn has_records(&self) -> bool {
        !self.recorded.is_empty()
    }

    pub fn get_world_size(&self) -> Option<u32> {
        self.timeline.world_size
    }

    /// States the clock of all of the rank's tracks so far.
    pub fn set_clock(&mut self, rank: u32, clock: Option<Sym>) {
        if self.tracks.range(of(rank)).next().is_none() {
            self.track(rank, None);
        }
        let mut differs = false;
        for track in self.tracks.range_mut(of(rank)).map(|(_, track)| track) {
            differs |= track.clock.zip(clock).is_some_and(|(known, clock)| known != clock);
            track.clock = track.clock.or(clock);
        }
        if differs {
            self.warn(format!(
                "Rank {rank} ran on two hosts or across a reboot: its times are of different clocks and \
                 must not be compared."
            ));
        }
    }

    /// Which of `starts` (an instant and the op or span name) belong to intervals of `rank`.
    pub fn finished(&self, rank: u32, starts: &HashSet<(i64, Sym)>) -> HashSet<(i64, Sym)> {
        let mut found = HashSet::new();
        if starts.is_empty() {
            return found;
        }
        let instants: HashSet<i64> = starts.iter().map(|start| start.0).collect();
        for track in self.tracks.range(of(rank)).map(|(_, track)| track) {
            let comm = track.comm.iter().map(|comm| (comm.start_ns, comm.op));
            found.extend(comm.filter(|start| starts.contains(start)));
        }
        // A step's row has no name of its own in the timeline.
        let steps = self.steps.get(&rank).into_iter().flatten();
        for step in steps.filter(|step| instants.contains(&step.start_ns)) {
            found.extend(starts.iter().filter(|start| start.0 == step.start_ns));
        }
        found
    }

    /// Adds a step of all of the rank's devices.
    pub fn rank_step(&mut self, rank: u32, step: Step) {
        self.steps.entry(rank).or_default().push(step);
    }

    /// Notes that `rank` comes from a record, where host-timed intervals join the rank's only device.
    pub fn recorded(&mut self, rank: u32) {
        self.recorded.insert(rank);
    }

    /// Notes whether a device timed the communication that is added next to a track of `rank`.
    pub fn note_order(&mut self, rank: u32, by_device: bool) {
        self.by_device.entry(rank).or_default().push(by_device);
    }

    /// Notes that what is added to tracks of `rank` from here on is of a process that was started at
    /// `start_unix_ns`.
    pub fn process(&mut self, rank: u32, start_unix_ns: i64) {
        let rows = self.tracks.range(of(rank)).map(|(&(_, device), track)| (device, track.comm.len()));
        let noted = self.by_device.get(&rank).map_or(0, Vec::len);
        self.processes.begin(rank, start_unix_ns, rows.collect(), noted);
    }

    /// Notes when the last process of `rank` recorded its last interval.
    pub fn process_end(&mut self, rank: u32, end_unix_ns: i64) {
        self.processes.end(rank, end_unix_ns);
    }

    pub fn input(&mut self, input: Input) {
        self.timeline.inputs.push(input);
    }

    pub fn warn(&mut self, warning: impl Into<String>) {
        self.timeline.warnings.push(warning.into());
    }

    /// Notes what an input says of the number of ranks. Several inputs may disagree, for example after
    /// an elastic restart; the largest job is the one whose ranks may be missing.
    pub fn world_size(&mut self, size: u32) {
        self.timeline.world_size = self.timeline.world_size.max(Some(size));
    }

    pub fn communicator(&mut self, name: Sym, ranks: Vec<u32>) {
        self.timeline.communicators.insert(name, ranks);
    }

    /// The finished timeline.
    pub fn finish(mut self) -> Timeline {
        let separate: BTreeMap<(u32, Option<u32>), usize> =
            self.tracks.iter().map(|(&key, track)| (key, track.comm.len())).collect();
        for rank in std::mem::take(&mut self.recorded) {
            self.join_host(rank);
        }
        self.processes.assign();
        for (&(rank, device), track) in &mut self.tracks {
            // Where host and device were joined, rows stand as they were recorded.
            let joined = separate.get(&(rank, device)) != Some(&track.comm.len());
            track.processes = self.processes.rows(rank, device, joined);
        }
        for (rank, mut steps) in std::mem::take(&mut self.steps) {
            // A step's row is written when the step ends; open intervals resolve later.
            steps.sort_by_key(|step| step.start_ns);
            for track in self.tracks.range_mut(of(rank)).map(|(_, track)| track) {
                track.steps.extend_from_slice(&steps);
            }
        }
        self.timeline.tracks = self.tracks.into_values().collect();
        self.timeline
    }

    /// Moves what `rank`'s host timed to its only device. With several devices it stands alone, and a
    /// warning says so.
    fn join_host(&mut self, rank: u32) {
        let devices: Vec<u32> = self
            .tracks
            .range((rank, Some(0))..=(rank, Some(u32::MAX)))
            .filter_map(|(key, _)| key.1)
            .collect();
        match devices[..] {
            [] => {}
            [device] => {
                if let Some(mut host) = self.tracks.remove(&(rank, None)) {
                    let order = self.by_device.remove(&rank).unwrap_or_default();
                    let (track, _) = self.track(rank, Some(device));
                    track.comm = interleave(&track.comm, &std::mem::take(&mut host.comm), &order);
                    append(track, host);
                }
            }
            _ => {
                if self.tracks.get(&(rank, None)).is_some_and(|host| !host.compute.is_empty()) {
                    self.warn(format!(
                        "Rank {rank} has {} devices: compute that was timed by the host stands alone, since \
                         it is not known which device's communication it hides.",
                        devices.len()
                    ));
                }
            }
        }
    }
}

/// The keys of the tracks of a rank.
fn of(rank: u32) -> RangeInclusive<(u32, Option<u32>)> {
    (rank, None)..=(rank, Some(u32::MAX))
}

/// The communication of a device and of the host as it was recorded: ties between ops go to the one
/// that was seen first.
fn interleave(device: &CommColumns, host: &CommColumns, by_device: &[bool]) -> CommColumns {
    let mut both = CommColumns::default();
    let (mut device, mut host) = (device.iter_exchanges(), host.iter_exchanges());
    for &by_device in by_device {
        let next = if by_device { device.next() } else { host.next() };
        next.into_iter().for_each(|(interval, exchange)| both.push_exchange(interval, exchange));
    }
    device.chain(host).for_each(|(interval, exchange)| both.push_exchange(interval, exchange));
    both
}

/// Appends the intervals of `other`, which is of the same rank.
fn append(track: &mut Track, other: Track) {
    for (interval, label) in other.compute.iter_labelled() {
        track.compute.push_labelled(interval, label);
    }
    let pairs = [(&other.comm, &mut track.comm), (&other.unplaced, &mut track.unplaced)];
    for (from, to) in pairs {
        from.iter_exchanges().for_each(|(interval, exchange)| to.push_exchange(interval, exchange));
    }
    track.steps.extend(other.steps);
    track.open.extend(other.open);
    track.clock = track.clock.or(other.clock);
    track.untimed.count += other.untimed.count;
    track.untimed.bytes = track.untimed.bytes.saturating_add(other.untimed.bytes);
    for (reason, count) in other.untimed.reasons {
        *track.untimed.reasons.entry(reason).or_default() += count;
    }
}

/// Numbers in ascending order as ranges, for example `0-3, 7`; after `most` ranges, how many follow.
pub(crate) fn ranges(numbers: impl IntoIterator<Item = u32>, most: usize) -> String {
    name_ranges(&in_ranges(numbers), most)
}

/// Numbers in ascending order as ranges, each its first and last.
pub(super) fn in_ranges(numbers: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

/// Ranges as [`ranges`] writes them.
pub(super) fn name_ranges(ranges: &[(u32, u32)], most: usize) -> String {
    let left: u64 = ranges.iter().skip(most).map(|&(first, last)| u64::from(last - first) + 1).sum();
    let mut text = ranges
        .iter()
        .take(most)
        .map(|&(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first}-{last}"),
        })
        .collect::<Vec<_>>()
        .join(", ");
    if left > 0 {
        text.push_str(&format!(" and {left} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_name_the_few() {
        assert_eq!(ranges([], 3), "");
        assert_eq!(ranges([4], 3), "4");
        assert_eq!(ranges([1, 2, 3, 5, 8, 9], 9), "1-3, 5, 8, 9");
        assert_eq!(ranges([0, 2, 4, 6, 7], 2), "0, 2 and 3 more");
        assert_eq!(ranges([u32::MAX - 1, u32::MAX], 3), "4294967294, 4294967295");
    }
}
