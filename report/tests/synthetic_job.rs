//! The synthetic jobs themselves: what other tests rest on.

mod synthetic;

use commtrace_report::read::{ReadOptions, read};
use std::collections::{HashMap, HashSet};
use synthetic::{Fault, Group, JobSpec, Straggler, timeline, write_folder};

/// A job of three dimensions on four hosts whose clocks disagree.
fn three_dimensions() -> JobSpec {
    JobSpec {
        tensor: 2,
        data: 2,
        pipeline: 2,
        steps: 4,
        ranks_per_host: Some(2),
        max_offset_ns: 3e9,
        max_drift_ppm: 100.0,
        end_noise_ns: 5e3,
        compute_jitter: 0.1,
        ..JobSpec::default()
    }
}

#[test]
fn a_job_read_from_its_files_is_the_job_in_memory() {
    let spec = three_dimensions();
    let folder = tempfile::tempdir().expect("a folder");
    let written = write_folder(&spec, folder.path()).expect("files can be written");
    let read = read(&[folder.path().to_owned()], &ReadOptions::default()).expect("files can be read");
    let (made, truth) = timeline(&spec);
    assert_eq!(read.warnings, Vec::<String>::new());
    assert_eq!(read.world_size, made.world_size);
    assert_eq!(read.tracks.len(), 8);
    assert_eq!(written.events, truth.events);
    for (read_track, made_track) in read.tracks.iter().zip(&made.tracks) {
        assert_eq!((read_track.rank, read_track.device), (made_track.rank, made_track.device));
        assert_eq!(read_track.steps, made_track.steps);
        assert_eq!(read_track.comm.starts_ns(), made_track.comm.starts_ns());
        assert_eq!(read_track.comm.ends_ns(), made_track.comm.ends_ns());
        assert_eq!(read_track.compute.starts_ns(), made_track.compute.starts_ns());
        let seqs = |track: &commtrace_report::timeline::Track| -> Vec<_> {
            track.comm.iter().map(|comm| (comm.seq, comm.peer, comm.comm_size, comm.bytes)).collect()
        };
        assert_eq!(seqs(read_track), seqs(made_track));
    }
    assert_eq!(read.communicators.len(), made.communicators.len());
}

#[test]
fn every_collective_has_all_its_members_and_ends_after_the_last_arrival() {
    let (timeline, truth) = timeline(&JobSpec { ranks_per_host: Some(u32::MAX), ..three_dimensions() });
    let mut calls: HashMap<_, Vec<_>> = HashMap::new();
    for track in &timeline.tracks {
        for comm in track.comm.iter().filter(|comm| comm.seq.is_some()) {
            calls.entry((comm.comm, comm.seq)).or_default().push(comm);
        }
    }
    let mut matched = 0;
    for members in calls.values() {
        assert_eq!(members.len(), members[0].comm_size.unwrap_or(0) as usize);
        assert!(members.iter().all(|member| member.op == members[0].op));
        let last = members.iter().map(|member| member.start_ns).max();
        assert!(members.iter().all(|member| Some(member.end_ns) > last));
        matched += 1;
    }
    assert_eq!(matched, truth.ops.values().map(|op| op.matched).sum::<u64>());
    assert!(truth.hanging.is_empty());
}

#[test]
fn the_same_seed_gives_the_same_job() {
    let (one, _) = timeline(&three_dimensions());
    let (same, _) = timeline(&three_dimensions());
    let (other, _) = timeline(&JobSpec { seed: 2, ..three_dimensions() });
    assert_eq!(one.tracks[5].comm, same.tracks[5].comm);
    assert_ne!(one.tracks[5].comm, other.tracks[5].comm);
}

#[test]
fn a_straggler_causes_the_wait() {
    let stragglers = vec![Straggler::always(2, "mlp", 3_000_000)];
    let (_, truth) = timeline(&JobSpec { stragglers, ..JobSpec::default() });
    // Three ranks wait 3 ms in each of ten steps, less what the collectives beside compute take up.
    assert!(truth.caused_wait_ns[2] > 60e6, "{:?}", truth.caused_wait_ns);
    let others: f64 = truth.caused_wait_ns.iter().enumerate().filter(|one| one.0 != 2).map(|one| one.1).sum();
    assert!(others < truth.caused_wait_ns[2] / 10.0, "{:?}", truth.caused_wait_ns);
}

#[test]
fn a_rank_that_skips_a_collective_makes_the_others_hang() {
    let faults = vec![Fault::Skips { rank: 1, group: Group::World, seq: 3 }];
    let (timeline, truth) = timeline(&JobSpec { faults, ..JobSpec::default() });
    assert!(truth.hanging.contains(&0), "{:?}", truth.hanging);
    let last: HashSet<_> = timeline.tracks[0].open.iter().map(|open| open.seq).collect();
    assert!(!last.is_empty());
}

#[test]
fn a_killed_rank_and_one_that_leaves() {
    let killed = Fault::Killed { rank: 1, step: 2 };
    let leaves = Fault::Leaves { rank: 3, group: Group::World, seq: 2 };
    let silent = Fault::NoRecord { rank: 0 };
    for (fault, ended) in [(killed, Some(false)), (leaves, Some(true))] {
        let spec = JobSpec { faults: vec![fault, silent.clone()], ..three_dimensions() };
        let folder = tempfile::tempdir().expect("a folder");
        let truth = write_folder(&spec, folder.path()).expect("files can be written");
        let read = read(&[folder.path().to_owned()], &ReadOptions::default()).expect("files can be read");
        assert_eq!(read.tracks.len(), 7);
        let culprit = if ended == Some(true) { 3 } else { 1 };
        let input = read.inputs.iter().find(|input| input.rank == Some(culprit)).expect("its file");
        assert_eq!(input.ended, ended);
        assert_eq!(truth.hanging.len(), 7, "{:?}", truth.hanging);
        let open = read.tracks.iter().filter(|track| !track.open.is_empty()).count();
        assert!(open >= 6, "{open}");
    }
}

#[test]
fn a_disagreement_hangs_or_goes_on() {
    for hangs in [true, false] {
        let faults =
            vec![Fault::Disagrees { rank: 2, group: Group::World, seq: 1, op: None, bytes: Some(8), hangs }];
        let (_, truth) = timeline(&JobSpec { faults, ..JobSpec::default() });
        assert_eq!(truth.hanging.len(), if hangs { 4 } else { 0 });
    }
}
