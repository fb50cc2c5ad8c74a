//! From a timeline to the evidence.

use super::disagree::disagreement;
use super::evidence::{ChannelEvidence, CommEvidence, Ending, Entry, Evidence, Known, RankState, Reach};
use super::{DesyncOptions, missing};
use crate::analyze::duration_ns;
use crate::analyze::matching::{Group, Matching, Numbering, State};
use crate::timeline::{Input, Names, Open, Sym, Timeline, Track};
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A communicator of more ranks is not listed member by member unless an input does.
const MOST_MEMBERS: u32 = 1 << 20;

/// Without a word from the recording on up to when it is complete: calls that had been open for less
/// than this are not in it.
const OPEN_AFTER_NS: i64 = 1_000_000_000;

/// What of a timeline bears on desynchronization.
pub(super) fn evidence<'a>(
    timeline: &'a Timeline,
    matching: &Matching<'_>,
    options: &'a DesyncOptions,
    known: &'a Known,
) -> Evidence<'a> {
    let wanted = options.ranks.as_ref();
    let judged = judged(timeline, wanted);
    let records = timeline.inputs.iter().any(|input| input.ended.is_some());
    let selected = timeline.inputs.iter().flat_map(|input| &input.selection);
    let axis = Axis::new(timeline);
    let ranks = ranks(timeline, &judged, &axis);
    let tracks: Vec<&Track> = timeline.tracks.iter().filter(|track| judged.contains(&track.rank)).collect();
    let mut evidence = Evidence {
        names: &timeline.names,
        ranks,
        known,
        wanted,
        world_size: timeline.world_size,
        // Those that were not to be recorded are not missing.
        records: records && !selected.into_iter().any(|one| one.starts_with("ranks")),
        comparable: axis.comparable,
        unix: axis.unix,
        comms: IndexMap::new(),
        channels: IndexMap::new(),
        unnumbered: Vec::new(),
        patience_ns: i64::try_from(options.patience_ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX),
    };
    let mut p2p = PointToPoint::default();
    for track in &tracks {
        reach(track, &axis, &mut evidence, &mut p2p);
    }
    for (name, comm) in &mut evidence.comms {
        comm.members = timeline.communicators.get(name).cloned().or_else(|| {
            let size = comm.size.filter(|&size| size <= MOST_MEMBERS)?;
            // A communicator as large as the job has all its ranks.
            (Some(size) == timeline.world_size).then(|| (0..size).collect())
        });
        if comm.size.is_none() {
            comm.size = comm.members.as_ref().and_then(|members| u32::try_from(members.len()).ok());
        }
    }
    p2p.resolve(&mut evidence);
    calls(&tracks, &axis, &mut evidence);
    disagreements(matching, &axis, &mut evidence);
    evidence
}

/// The first calls on which ranks disagree, per communicator. Numbers that were only counted, in what a
/// profiler's window holds, may be those of different calls.
fn disagreements(matching: &Matching<'_>, axis: &Axis, evidence: &mut Evidence<'_>) {
    let certain = |group: &Group<'_>| {
        group.channel.kind.is_collective() && group.channel.numbering == Numbering::Recorded
    };
    for group in matching.groups().filter(|group| group.state == State::Disagreement && certain(group)) {
        let comm = evidence.comms.entry(group.channel.comm).or_default();
        // Numbers ascend.
        if comm.disagreement.is_some() {
            continue;
        }
        let calls: Vec<Entry> = group
            .parts
            .iter()
            .filter_map(|&part| {
                let (event, track) = (matching.event(part)?, &matching.track(part.track)?.track);
                Some(Entry {
                    rank: track.rank,
                    op: event.op,
                    bytes: event.bytes,
                    dtype: event.dtype,
                    start_ns: Some(axis.place(track.clock, event.start_ns)),
                    end_ns: Some(axis.place(track.clock, event.end_ns)),
                })
            })
            .collect();
        comm.disagreement = disagreement(evidence.names, &calls).map(|_| (group.number, calls));
    }
}

/// The ranks whose recordings go to the end of the run, or to where it hung; not those of which only a
/// profiler's window is known.
fn judged(timeline: &Timeline, wanted: Option<&BTreeSet<u32>>) -> BTreeSet<u32> {
    let windows = timeline.inputs.iter().any(Input::is_window);
    let recorded: BTreeSet<u32> =
        timeline.inputs.iter().filter(|input| !input.is_window()).filter_map(|input| input.rank).collect();
    let ranks = timeline.tracks.iter().map(|track| track.rank).chain(recorded.iter().copied());
    ranks
        .filter(|rank| !windows || recorded.contains(rank))
        .filter(|rank| wanted.is_none_or(|wanted| wanted.contains(rank)))
        .collect()
}

/// Puts instants of different ranks on one axis, as far as that is possible.
struct Axis {
    /// What is added to instants of a clock.
    offsets: HashMap<Option<Sym>, i64>,
    comparable: bool,
    unix: bool,
}

impl Axis {
    fn new(timeline: &Timeline) -> Self {
        let clocks: BTreeSet<Option<Sym>> = timeline.tracks.iter().map(|track| track.clock).collect();
        let mut offsets = HashMap::new();
        for process in timeline.inputs.iter().filter_map(|input| input.process.as_ref()) {
            // Converted traces have clocks without a beginning.
            if let Some(clock) = timeline.names.find(&process.boot_id).filter(|_| process.start_ns != 0) {
                let offset = process.start_unix_ns.saturating_sub(process.start_ns);
                offsets.entry(Some(clock)).or_insert(offset);
            }
        }
        let unix = !clocks.is_empty() && clocks.iter().all(|clock| offsets.contains_key(clock));
        if !unix {
            offsets.clear();
        }
        let one_clock = clocks.len() <= 1 && !clocks.contains(&None);
        Self { offsets, comparable: unix || one_clock, unix }
    }

    fn place(&self, clock: Option<Sym>, ns: i64) -> i64 {
        ns.saturating_add(self.offsets.get(&clock).copied().unwrap_or(0))
    }
}

fn ranks(timeline: &Timeline, judged: &BTreeSet<u32>, axis: &Axis) -> BTreeMap<u32, RankState> {
    let mut inputs: HashMap<u32, Vec<&Input>> = HashMap::new();
    for input in &timeline.inputs {
        if let Some(rank) = input.rank.filter(|_| input.ended.is_some()) {
            inputs.entry(rank).or_default().push(input);
        }
    }
    let mut tracks: HashMap<u32, Vec<&Track>> = HashMap::new();
    timeline.tracks.iter().for_each(|track| tracks.entry(track.rank).or_default().push(track));
    let none = Vec::new();
    judged
        .iter()
        .map(|&rank| {
            let mut inputs = inputs.remove(&rank).unwrap_or_default();
            inputs.sort_by_key(|input| input.process.as_ref().map(|process| process.start_unix_ns));
            (rank, state(&inputs, tracks.get(&rank).unwrap_or(&none), axis))
        })
        .collect()
}

/// What is known of a rank with these records, in the order in which they were written.
fn state(inputs: &[&Input], tracks: &[&Track], axis: &Axis) -> RankState {
    let clock = tracks.iter().find_map(|track| track.clock);
    let starts = |track: &Track| {
        let open = track.open.iter().filter_map(|open| open.start_ns);
        let comm = track.comm.starts_ns().iter().chain(track.compute.starts_ns()).copied();
        comm.chain(open).chain(track.steps.iter().map(|step| step.start_ns)).min()
    };
    let ends = |track: &Track| {
        let comm = track.comm.ends_ns().iter().chain(track.compute.ends_ns()).copied();
        comm.chain(track.steps.iter().map(|step| step.end_ns)).max()
    };
    let first_ns = tracks.iter().copied().filter_map(starts).min();
    let ended_ns = tracks.iter().copied().filter_map(ends).max();
    let opened_ns = tracks.iter().flat_map(|track| &track.open).filter_map(|open| open.start_ns).max();
    let last = inputs.last();
    let seen = last.and_then(|input| input.seen);
    let (seen_ns, complete_ns) = match seen {
        Some(seen) => (Some(seen.at_ns).max(ended_ns), Some(seen.at_ns.saturating_sub(seen.open_after_ns))),
        None => (ended_ns.max(opened_ns), ended_ns.map(|end| end.saturating_sub(OPEN_AFTER_NS))),
    };
    let place = |ns: i64| axis.place(clock, ns);
    let mut losses: Vec<String> = inputs.iter().flat_map(|input| input_losses(input)).collect();
    let untimed: u64 = tracks.iter().map(|track| track.untimed.count).sum();
    if untimed > 0 {
        losses.push(format!("{untimed} calls were recorded without a time, and their numbers are not known"));
    }
    if inputs.len() > 1 {
        losses.push("restarted, so numbers of an earlier process are mixed in".to_owned());
    }
    RankState {
        ending: match last.map(|input| input.ended) {
            Some(Some(true)) => Ending::Regular,
            Some(_) => Ending::Cut,
            None => Ending::Unknown,
        },
        first_ns: first_ns.map(place),
        seen_ns: seen_ns.map(place),
        complete_until_ns: complete_ns.map(place),
        says_when: seen.is_some(),
        truncated: inputs.iter().any(|input| input.capped.is_some()),
        losses,
    }
}

/// Why calls may be missing from a record, each behind the rank's name and a colon.
fn input_losses(input: &Input) -> Vec<String> {
    let mut losses = Vec::new();
    if input.dropped > 0 {
        losses.push(format!("{} records were lost while recording", input.dropped));
    }
    if input.capped.is_some() {
        losses.push("the record reached its size limit, and later calls are not in it".to_owned());
    }
    if input.anomalies.contains_key("torn_tail") {
        losses.push("the record ends within a batch".to_owned());
    }
    if input.anomalies.contains_key("damaged") {
        losses.push("the record is damaged".to_owned());
    }
    for selection in input.selection.iter().filter(|selection| selection.starts_with("steps")) {
        losses.push(format!("only {selection} were to be recorded"));
    }
    losses
}

fn is_send(names: &Names, op: Sym) -> Option<bool> {
    match names.get(op) {
        "send" => Some(true),
        "recv" => Some(false),
        _ => None,
    }
}

/// How far a track came on each communicator.
fn reach(track: &Track, axis: &Axis, evidence: &mut Evidence<'_>, p2p: &mut PointToPoint) {
    let names = evidence.names;
    let mut point_to_point: HashMap<Sym, Option<bool>> = HashMap::new();
    let rank = track.rank;
    for event in track.comm.iter() {
        let Some(comm) = event.comm else { continue };
        let took_ns = duration_ns(event.start_ns, event.end_ns);
        if let Some(send) = *point_to_point.entry(event.op).or_insert_with(|| is_send(names, event.op)) {
            if let Some(peer) = event.peer {
                p2p.note((comm, rank, peer, send), took_ns);
                note_member(evidence.comms.entry(comm).or_default(), rank, event.comm_rank, event.comm_size);
            }
        } else if let Some(seq) = event.seq {
            let known = evidence.comms.entry(comm).or_default();
            known.longest_ns = known.longest_ns.max(took_ns);
            note_member(known, rank, event.comm_rank, event.comm_size);
            note_reach(known, rank, event.comm_rank, seq);
        }
    }
    for open in &track.open {
        let entry = entry(track, axis, open);
        let send = is_send(names, open.name);
        match (open.comm, open.seq, open.peer, send) {
            (Some(comm), _, Some(peer), Some(send)) => {
                note_member(evidence.comms.entry(comm).or_default(), rank, open.comm_rank, open.comm_size);
                p2p.open((comm, rank, peer, send), entry);
            }
            (Some(comm), Some(seq), _, None) => {
                let known = evidence.comms.entry(comm).or_default();
                note_member(known, rank, open.comm_rank, open.comm_size);
                note_reach(known, rank, open.comm_rank, seq);
            }
            // A step has none of these.
            _ if open.comm.is_some() || open.seq.is_some() || open.bytes.is_some() || send.is_some() => {
                evidence.unnumbered.push(entry);
            }
            _ => {}
        }
    }
}

fn note_member(comm: &mut CommEvidence, rank: u32, comm_rank: Option<u32>, size: Option<u32>) {
    comm.size = comm.size.max(size);
    if let Some(comm_rank) = comm_rank {
        comm.numbers.entry(comm_rank).or_insert(rank);
    }
}

fn note_reach(comm: &mut CommEvidence, rank: u32, comm_rank: Option<u32>, seq: u64) {
    let reach = comm.reach.entry(rank).or_insert(Reach { comm_rank, first: seq, last: seq });
    reach.first = reach.first.min(seq);
    reach.last = reach.last.max(seq);
    reach.comm_rank = reach.comm_rank.or(comm_rank);
}

fn entry(track: &Track, axis: &Axis, open: &Open) -> Entry {
    Entry {
        rank: track.rank,
        op: open.name,
        bytes: open.bytes,
        dtype: open.dtype,
        start_ns: open.start_ns.map(|start| axis.place(track.clock, start)),
        end_ns: None,
    }
}

/// Fetches the calls that the judgement has to look at.
fn calls(tracks: &[&Track], axis: &Axis, evidence: &mut Evidence<'_>) {
    let mut open: HashMap<Sym, BTreeSet<u64>> = HashMap::new();
    for one in tracks.iter().flat_map(|track| &track.open) {
        if let (Some(comm), Some(seq)) = (one.comm, one.seq) {
            open.entry(comm).or_default().insert(seq);
        }
    }
    let targets: HashMap<Sym, BTreeSet<u64>> = evidence
        .comms
        .iter()
        .map(|(&name, comm)| {
            let open = open.get(&name).into_iter().flatten().copied();
            (name, missing::targets(evidence, comm, open))
        })
        .filter(|(_, targets)| !targets.is_empty())
        .collect();
    if targets.is_empty() {
        return;
    }
    let is_target = |comm: Option<Sym>, seq: Option<u64>| {
        let (comm, seq) = (comm?, seq?);
        targets.get(&comm)?.contains(&seq).then_some((comm, seq))
    };
    let names = evidence.names;
    for track in tracks {
        let ended = track.comm.iter().filter_map(|event| {
            let place = is_target(event.comm, event.seq)?;
            let at = |ns: i64| axis.place(track.clock, ns);
            let entry = Entry {
                rank: track.rank,
                op: event.op,
                bytes: event.bytes,
                dtype: event.dtype,
                start_ns: Some(at(event.start_ns)),
                end_ns: Some(at(event.end_ns)),
            };
            Some((place, entry))
        });
        let open = track
            .open
            .iter()
            .filter_map(|open| Some((is_target(open.comm, open.seq)?, entry(track, axis, open))));
        for ((comm, seq), entry) in ended.chain(open).filter(|(_, entry)| is_send(names, entry.op).is_none())
        {
            let Some(comm) = evidence.comms.get_mut(&comm) else { continue };
            let calls = comm.calls.entry(seq).or_default();
            // A number that a rank has twice is of two of its processes: the later one counts.
            match calls.iter_mut().find(|known| known.rank == entry.rank) {
                Some(known) => *known = entry,
                None => calls.push(entry),
            }
        }
    }
    for calls in evidence.comms.values_mut().flat_map(|comm| comm.calls.values_mut()) {
        calls.sort_by_key(|call| call.rank);
    }
}

/// Point-to-point calls before it is known which global rank a peer is: communicator, global rank, peer
/// as a rank of the communicator, whether it sends.
type Side = (Sym, u32, u32, bool);

#[derive(Default)]
struct PointToPoint {
    sides: IndexMap<Side, ChannelEvidence>,
}

impl PointToPoint {
    fn note(&mut self, side: Side, took_ns: u64) {
        let known = self.sides.entry(side).or_default();
        known.longest_ns = known.longest_ns.max(took_ns);
        *if side.3 { &mut known.sends } else { &mut known.recvs } += 1;
    }

    fn open(&mut self, side: Side, entry: Entry) {
        self.note(side, 0);
        self.sides.entry(side).or_default().open.push(entry);
    }

    /// Brings both sides of a channel together.
    fn resolve(self, evidence: &mut Evidence<'_>) {
        for ((name, rank, peer, send), side) in self.sides {
            let comm = evidence.comms.get(&name);
            let global = comm.and_then(|comm| match &comm.members {
                Some(members) => members.get(peer as usize).copied(),
                None => comm.numbers.get(&peer).copied(),
            });
            let Some(peer) = global else {
                evidence.unnumbered.extend(side.open);
                continue;
            };
            let (source, destination) = if send { (rank, peer) } else { (peer, rank) };
            let channel = evidence.channels.entry((name, source, destination)).or_default();
            channel.sends += side.sends;
            channel.recvs += side.recvs;
            channel.longest_ns = channel.longest_ns.max(side.longest_ns);
            channel.open.extend(side.open);
        }
    }
}
