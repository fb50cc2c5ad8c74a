//! Timelines written as record files and timeline JSON and read back: the same figures.

use commtrace_report::analyze::{AnalyzeOptions, Report, analyze};
use commtrace_report::convert::{ConvertError, Target, left_out, write_records};
use commtrace_report::read::{ReadOptions, read, write_timeline_json};
use commtrace_report::timeline::{Comm, Compute, Open, Step, Timeline, Track};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn report(timeline: &Timeline) -> Report {
    analyze(timeline, &AnalyzeOptions::default())
}

fn through_records(timeline: &Timeline) -> Result<Timeline> {
    let folder = tempfile::tempdir()?;
    write_records(timeline, folder.path(), false)?;
    Ok(read(&[folder.path().to_owned()], &ReadOptions::default())?)
}

fn through_json(timeline: &Timeline) -> Result<Timeline> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("out.json");
    write_timeline_json(timeline, &mut fs::File::create(&path)?)?;
    Ok(read(&[path], &ReadOptions::default())?)
}

/// Everything that is computed; what is said of the inputs differs.
fn assert_same(before: &Report, after: &Report) {
    assert_eq!(before.ranks, after.ranks);
    assert_eq!(before.hotspot_events, after.hotspot_events);
    assert_eq!((&before.mitigation, &before.followup), (&after.mitigation, &after.followup));
    assert_eq!(before.cross_rank, after.cross_rank);
}

/// Device, op, start, length, bytes, step.
type PlainComm = (usize, u8, i64, i64, Option<u64>, Option<i64>);

#[derive(Debug, Clone)]
struct PlainRank {
    devices: Vec<Option<u32>>,
    compute: Vec<(usize, i64, i64, Option<i64>)>,
    comm: Vec<PlainComm>,
    steps: Vec<(i64, i64, i64)>,
    clock: Option<bool>,
}

fn rank() -> impl Strategy<Value = PlainRank> {
    let devices = prop::sample::select(vec![vec![None], vec![Some(0)], vec![Some(0), Some(3)]]);
    let instant = || -1000_i64..1_000_000;
    let compute = (0..2_usize, instant(), -50_i64..5000, prop::option::of(0..3_i64));
    let comm = (
        0..2_usize,
        0..4_u8,
        instant(),
        -50_i64..5000,
        prop::option::of(any::<u32>().prop_map(u64::from)),
        prop::option::of(0..3_i64),
    );
    let step = (0..3_i64, instant(), 0_i64..100_000);
    (
        devices,
        prop::collection::vec(compute, 0..20),
        prop::collection::vec(comm, 0..20),
        prop::collection::vec(step, 0..3),
        prop::option::of(any::<bool>()),
    )
        .prop_map(|(devices, compute, comm, steps, clock)| PlainRank {
            devices,
            compute,
            comm,
            steps,
            clock,
        })
}

fn timeline(ranks: &[PlainRank]) -> Timeline {
    let mut timeline = Timeline::default();
    let ops = ["all_reduce", "all_gather", "broadcast", "send"];
    for (number, plain) in ranks.iter().enumerate() {
        for (index, &device) in plain.devices.iter().enumerate() {
            let mut track = Track::new(number as u32 * 3, device);
            track.clock =
                plain.clock.map(|same| timeline.names.intern(if same { "host-a" } else { "host-b" }));
            for &(at, start, length, step) in &plain.compute {
                if at % plain.devices.len() == index {
                    let name = timeline.names.intern("kernel \u{e9}");
                    track.compute.push(Compute { name, start_ns: start, end_ns: start + length, step });
                }
            }
            for (seq, &(at, op, start, length, bytes, step)) in plain.comm.iter().enumerate() {
                if at % plain.devices.len() != index {
                    continue;
                }
                let op = timeline.names.intern(ops[usize::from(op)]);
                let comm = Comm {
                    bytes,
                    comm: Some(timeline.names.intern("world")),
                    seq: Some(seq as u64),
                    comm_size: Some(ranks.len() as u32),
                    comm_rank: Some(number as u32),
                    stream: device.map(|_| timeline.names.intern("7")),
                    dtype: Some(timeline.names.intern("bf16")),
                    peer: Some(1),
                    step,
                    ..Comm::new(op, start, start + length)
                };
                track.comm.push(comm);
            }
            track.steps = plain
                .steps
                .iter()
                .map(|&(step, start, length)| Step { step, start_ns: start, end_ns: start + length })
                .collect();
            track.steps.sort_by_key(|step| step.start_ns);
            timeline.tracks.push(track);
        }
    }
    timeline
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn records_give_the_same_figures(ranks in prop::collection::vec(rank(), 1..4)) {
        let timeline = timeline(&ranks);
        // A track without anything is not in a file.
        prop_assume!(timeline.tracks.iter().all(|track| track.compute.len() + track.comm.len() > 0));
        assert_same(&report(&timeline), &report(&through_records(&timeline).unwrap()));
    }
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn durations_without_a_place_survive_records_only() -> Result {
    let timeline = read(&[data("nccl/inspector.log")], &ReadOptions::default())?;
    let back = through_records(&timeline)?;
    assert_same(&report(&timeline), &report(&back));
    assert_eq!(report(&back).ranks[0].summary.exposed_comm_time, None);
    assert_eq!(left_out(&timeline, Target::Records), Vec::<String>::new());
    let said = left_out(&timeline, Target::TimelineJson);
    assert_eq!(
        said,
        ["4 calls without a place in time are left out: timeline JSON needs a start and an end."]
    );
    Ok(())
}

#[test]
fn a_dump_with_positions_survives_both() -> Result {
    let paths = [data("nccl/inspector_verbose_0.log"), data("nccl/inspector_verbose_1.log")];
    let timeline = read(&paths, &ReadOptions::default())?;
    let before = report(&timeline);
    assert!(before.cross_rank.is_some());
    assert_same(&before, &report(&through_records(&timeline)?));
    assert_same(&before, &report(&through_json(&timeline)?));
    Ok(())
}

#[test]
fn calls_without_a_time_open_calls_and_members() -> Result {
    let mut timeline = Timeline { world_size: Some(2), ..Timeline::default() };
    let op = timeline.names.intern("all_reduce");
    let world = timeline.names.intern("world");
    let mut track = Track::new(0, Some(1));
    track.comm.push(Comm { comm: Some(world), ..Comm::new(op, 10, 20) });
    track.untimed.count = 3;
    track.untimed.bytes = 300;
    track.untimed.reasons = [("captured".to_owned(), 2), ("lost".to_owned(), 1)].into_iter().collect();
    track.open.push(Open {
        name: op,
        start_ns: Some(30),
        bytes: Some(5),
        comm: Some(world),
        seq: Some(2),
        comm_size: Some(2),
        comm_rank: Some(0),
        peer: None,
        dtype: Some(op),
        step: None,
    });
    timeline.tracks.push(track);
    timeline.communicators.insert(world, vec![0, 1]);
    let back = through_records(&timeline)?;
    assert_eq!(back.tracks[0].untimed, timeline.tracks[0].untimed);
    assert_eq!(back.tracks[0].open.len(), 1);
    assert_eq!((back.tracks[0].open[0].start_ns, back.tracks[0].open[0].seq), (Some(30), Some(2)));
    assert_eq!(back.world_size, Some(2));
    let members = back.names.find("world").and_then(|world| back.communicators.get(&world));
    assert_eq!(members, Some(&vec![0, 1]));
    Ok(())
}

#[test]
fn an_irregular_end_stays_one() -> Result {
    let mut timeline = timeline(&[PlainRank {
        devices: vec![None],
        compute: vec![(0, 0, 10, None)],
        comm: vec![],
        steps: vec![],
        clock: None,
    }]);
    assert!(through_records(&timeline)?.warnings.is_empty());
    timeline.inputs.push(commtrace_report::timeline::Input {
        rank: Some(0),
        ended: Some(false),
        dropped: 7,
        ..Default::default()
    });
    let back = through_records(&timeline)?;
    assert_eq!((back.inputs[0].ended, back.inputs[0].dropped), (Some(false), 7));
    Ok(())
}

#[test]
fn a_folder_in_use_is_refused_and_nothing_is_overwritten() -> Result {
    let ranks = [PlainRank {
        devices: vec![None],
        compute: vec![(0, 0, 10, None)],
        comm: vec![],
        steps: vec![],
        clock: None,
    }];
    let timeline = timeline(&ranks);
    let folder = tempfile::tempdir()?;
    let old = folder.path().join("rank-00000.1.1.arrows");
    fs::write(&old, b"someone's")?;
    let refused = write_records(&timeline, folder.path(), false);
    assert!(matches!(refused, Err(ConvertError::Occupied { .. })), "{refused:?}");
    let files = write_records(&timeline, folder.path(), true)?;
    assert_eq!((files.len(), fs::read(&old)?.as_slice()), (1, &b"someone's"[..]));
    Ok(())
}

#[test]
fn no_intervals_are_nothing_to_convert() -> Result {
    let timeline = read(&[data("nccl/log_2_8.txt")], &ReadOptions::default())?;
    let folder = tempfile::tempdir()?;
    let result = write_records(&timeline, &folder.path().join("out"), false);
    assert!(matches!(result, Err(ConvertError::Nothing)), "{result:?}");
    assert!(!folder.path().join("out").exists());
    Ok(())
}
