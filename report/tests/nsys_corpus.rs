//! The reader of Nsight Systems exports on a trace of a real job with two GPUs. Figures come from an
//! independent slow reference over the file: communication is every kernel whose name contains nccl, compute
//! every other kernel, copies and memsets are neither.

use commtrace_report::analyze::{AnalyzeOptions, RankReport, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::timeline::Timeline;
use std::path::PathBuf;

/// The trace beside the project; said and `None` where it is missing.
fn corpus() -> Option<Timeline> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/nsys/p2p_2gpus.sqlite");
    if !path.exists() {
        println!("skipped: {} is missing", path.display());
        return None;
    }
    Some(read(&[path], &ReadOptions::default()).unwrap())
}

/// Milliseconds as whole nanoseconds, which every figure of this file is.
fn ns(ms: f64) -> i64 {
    let ns = (ms * 1e6).round();
    assert!((ms - ns / 1e6).abs() < 1e-9, "{ms} ms is no whole number of nanoseconds");
    ns as i64
}

/// Σ comm, Σ overlap, ∪ comm, ∪ compute, ∪ overlap in nanoseconds.
fn figures(rank: &RankReport) -> [i64; 5] {
    let (summary, wall) = (&rank.summary, rank.wall.as_ref().unwrap());
    let overlap = summary.overlap_time.unwrap();
    [summary.total_comm_time, overlap, wall.comm_ms, wall.compute_ms, wall.overlap_ms].map(ns)
}

#[test]
fn two_processes_on_two_gpus() {
    let Some(timeline) = corpus() else { return };
    let report = analyze(&timeline, &AnalyzeOptions::default());
    let [first, second] = &report.ranks[..] else { panic!("{} tracks", report.ranks.len()) };
    assert_eq!((first.rank, first.device), (0, Some(0)));
    assert_eq!((second.rank, second.device), (1, Some(1)));
    assert_eq!(timeline.tracks[0].compute.len(), 1960);
    assert_eq!(timeline.tracks[1].compute.len(), 1984);
    assert_eq!(figures(first), [17_172_652, 0, 17_172_652, 253_690_832, 0]);
    assert_eq!(figures(second), [8_229_100, 0, 8_229_100, 256_095_624, 0]);
    for rank in &report.ranks {
        assert_eq!(rank.summary.num_comm_events, 33);
        // Sends and receives by their kernels' names; PyTorch's ranges around the launches say
        // `nccl:all_to_all`. The first kernel was launched before the trace begins.
        let ops: Vec<_> =
            rank.summary.by_op.iter().map(|(op, figures)| (op.as_str(), figures.count)).collect();
        assert_eq!(ops, [("send_recv", 1), ("all_to_all", 32)]);
    }

    let input = &timeline.inputs[0];
    assert_eq!(input.format, "nsys-sqlite");
    assert_eq!(input.skipped.get("memcpy"), Some(&1020));
    assert_eq!(input.skipped.get("memset"), Some(&269));
    let matched: u64 = input.rules.iter().filter(|rule| rule.op.is_some()).map(|rule| rule.events).sum();
    assert_eq!(matched, 66);
    assert_eq!(
        timeline.warnings.iter().filter(|warning| warning.contains("rank 0 is process 144")).count(),
        1,
        "{:?}",
        timeline.warnings
    );
    // Times are absolute: the session began at 1779782330.176752435 s, the trace a minute later.
    let starts = timeline.tracks.iter().flat_map(|track| track.compute.starts_ns());
    assert!(starts.copied().all(|start| start / 1_000_000_000 == 1_779_782_390));
}
