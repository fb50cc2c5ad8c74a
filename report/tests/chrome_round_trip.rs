//! What we write as a Chrome trace is read back as what it was.

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render::write_chrome;
use commtrace_report::timeline::{Comm, Compute, Step, Timeline, Track};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Plain {
    rank: u32,
    device: Option<u32>,
    compute: Vec<(u64, u64)>,
    comm: Vec<(usize, u64, u64, Option<u64>, usize)>,
    steps: Vec<(u64, u64)>,
}

fn plain() -> impl Strategy<Value = Plain> {
    let interval = || (0_u64..1_000_000, 0_u64..50_000);
    let comm =
        (0_usize..3, 0_u64..1_000_000, 0_u64..50_000, proptest::option::of(0_u64..1 << 40), 0_usize..3);
    (
        0_u32..4,
        proptest::option::of(0_u32..3),
        proptest::collection::vec(interval(), 1..30),
        proptest::collection::vec(comm, 0..20),
        proptest::collection::vec(interval(), 0..4),
    )
        .prop_map(|(rank, device, compute, comm, steps)| Plain { rank, device, compute, comm, steps })
}

fn timeline(plain: &[Plain], zero: i64) -> Timeline {
    let mut timeline = Timeline::default();
    let at = |offset: u64| zero + offset as i64;
    // One clock: times stay as they are.
    let clock = Some(timeline.names.intern("boot"));
    for plain in plain {
        let mut track = Track { clock, ..Track::new(plain.rank, plain.device) };
        for (index, &(start, length)) in plain.compute.iter().enumerate() {
            let name = timeline.names.intern(&format!("kernel \"{index}\" \\ é"));
            track.compute.push(Compute { name, start_ns: at(start), end_ns: at(start + length), step: None });
        }
        for &(op, start, length, bytes, stream) in &plain.comm {
            let op = timeline.names.intern(["all_reduce", "halo", "send"][op]);
            let stream = Some(timeline.names.intern(["s0", "s1", "s2"][stream]));
            let comm = Some(timeline.names.intern("world"));
            let times = Comm::new(op, at(start), at(start + length));
            track.comm.push(Comm { bytes, stream, comm, seq: Some(start), ..times });
        }
        for (step, &(start, length)) in plain.steps.iter().enumerate() {
            track.steps.push(Step { step: step as i64, start_ns: at(start), end_ns: at(start + length) });
        }
        timeline.tracks.push(track);
    }
    timeline.tracks.sort_by_key(|track| (track.rank, track.device));
    timeline.tracks.dedup_by_key(|track| (track.rank, track.device));
    timeline
}

/// Stream, communicator and number of all communication.
fn places(timeline: &Timeline) -> Vec<(String, String, u64)> {
    let text = |sym| timeline.names.get(sym).to_owned();
    let comm = timeline.tracks.iter().flat_map(|track| track.comm.iter());
    let mut places: Vec<_> =
        comm.map(|comm| (text(comm.stream.unwrap()), text(comm.comm.unwrap()), comm.seq.unwrap())).collect();
    places.sort();
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_figure_survives(
        plain in proptest::collection::vec(plain(), 1..4),
        zero in 0_i64..4_000_000_000_000_000_000,
    ) {
        let written = timeline(&plain, zero);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        write_chrome(&written, &mut std::fs::File::create(&path).unwrap()).unwrap();
        let found = read(&[path], &ReadOptions::default()).unwrap();
        prop_assert_eq!(&found.inputs[0].format, "chrome-trace");
        let (before, after) =
            (analyze(&written, &AnalyzeOptions::default()), analyze(&found, &AnalyzeOptions::default()));
        prop_assert_eq!(before.ranks.len(), after.ranks.len());
        for (before, after) in before.ranks.iter().zip(&after.ranks) {
            prop_assert_eq!((before.rank, before.device), (after.rank, after.device));
            prop_assert_eq!(&before.wall, &after.wall);
            prop_assert_eq!(&before.steps, &after.steps);
            prop_assert_eq!(before.summary.num_comm_events, after.summary.num_comm_events);
            prop_assert_eq!(before.summary.total_comm_time, after.summary.total_comm_time);
            prop_assert_eq!(before.summary.overlap_time, after.summary.overlap_time);
            // A trace is written by stream, so only the order of the ops may differ.
            for (op, figures) in &before.summary.by_op {
                prop_assert_eq!(Some(figures), after.summary.by_op.get(op));
            }
        }
        prop_assert_eq!(places(&written), places(&found));
    }
}
