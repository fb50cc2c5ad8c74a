//! Traces of a current PyTorch on CPUs with gloo, beside figures of an independent slow reader: both
//! scripts are in `data/pytorch`.

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pytorch")
}

fn ns(ms: f64) -> i64 {
    (ms * 1e6).round() as i64
}

#[test]
fn every_trace_gives_the_figures_of_the_slow_reader() {
    let text = std::fs::read_to_string(folder().join("figures.json")).unwrap();
    let all: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(all.len(), 10);
    for (file, expected) in &all {
        let timeline = read(&[folder().join(file)], &ReadOptions::default()).unwrap();
        assert_eq!(timeline.world_size.map(u64::from), expected["world_size"].as_u64(), "{file}");
        assert!(timeline.inputs[0].anomalies.is_empty(), "{file}");
        let report = analyze(&timeline, &AnalyzeOptions::default());
        let [rank] = &report.ranks[..] else { panic!("{file}: {} tracks", report.ranks.len()) };
        assert_eq!(Some(u64::from(rank.rank)), expected["rank"].as_u64(), "{file}");
        assert_eq!(rank.device, None, "{file}");
        let steps: Vec<Value> = rank.steps.iter().map(|step| step.step.into()).collect();
        assert_eq!(&steps, expected["steps"].as_array().unwrap(), "{file}");
        let compute = timeline.tracks[0].compute.len();
        assert_eq!(Some(compute as u64), expected["compute_events"].as_u64(), "{file}");
        for (figure, key) in [
            (rank.wall.unwrap().comm_ms, "comm_ns"),
            (rank.wall.unwrap().compute_ms, "compute_ns"),
            (rank.wall.unwrap().overlap_ms, "overlap_ns"),
        ] {
            assert_eq!(Some(ns(figure)), expected[key].as_i64(), "{file} {key}");
        }
        let by_op = expected["by_op"].as_object().unwrap();
        assert_eq!(rank.summary.by_op.len(), by_op.len(), "{file}");
        for (op, sums) in by_op {
            let found = rank.summary.by_op.get(op).unwrap_or_else(|| panic!("{file} has no {op}"));
            assert_eq!(Some(found.count), sums["count"].as_u64(), "{file} {op}");
            assert_eq!(Some(ns(found.time)), sums["time_ns"].as_i64(), "{file} {op}");
            assert_eq!(Some(ns(found.exposed_time.unwrap())), sums["exposed_ns"].as_i64(), "{file} {op}");
            assert_eq!(found.bytes, sums["bytes"].as_u64(), "{file} {op}");
        }
    }
}

#[test]
fn several_files_are_the_ranks_of_one_job_in_any_order() {
    let file = |rank: u32| folder().join(format!("ddp4_rank{rank}.json.gz"));
    let timeline = read(&[3, 1, 0, 2].map(file), &ReadOptions::default()).unwrap();
    let ranks: Vec<u32> = timeline.tracks.iter().map(|track| track.rank).collect();
    assert_eq!(ranks, [0, 1, 2, 3]);
    assert_eq!(timeline.world_size, Some(4));
    // One process group, known by its members on all ranks.
    let groups: Vec<_> = timeline.communicators.iter().collect();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].1, &[0, 1, 2, 3]);
    for track in &timeline.tracks {
        for comm in track.comm.iter() {
            assert_eq!(
                (comm.comm, comm.comm_rank, comm.comm_size),
                (Some(*groups[0].0), Some(track.rank), Some(4))
            );
        }
        assert_eq!(track.steps.len(), 2);
    }
}

#[test]
fn one_rank_of_several_files() {
    let options = ReadOptions { ranks: Some([1].into_iter().collect()), ..ReadOptions::default() };
    let file = |rank: u32| folder().join(format!("ddp2_rank{rank}.json.gz"));
    let timeline = read(&[file(0), file(1)], &options).unwrap();
    assert_eq!(timeline.tracks.len(), 1);
    assert_eq!(timeline.tracks[0].rank, 1);
    let none = ReadOptions { ranks: Some([7].into_iter().collect()), ..ReadOptions::default() };
    let error = read(&[file(0), file(1)], &none).unwrap_err().to_string();
    assert!(error.contains('7') && error.contains("0, 1"), "{error}");
}
