//! The readers on traces of real jobs. Figures come from an independent slow reference over the files:
//! communication is every kernel whose name contains nccl or rccl, compute every other kernel, copies and
//! memsets are neither.

use commtrace_report::analyze::{AnalyzeOptions, RankReport, Report, UnmatchedReason, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render;
use commtrace_report::timeline::Timeline;
use std::path::PathBuf;

/// The folder of real traces beside the project; said and `None` where it is missing.
fn corpus(file: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus").join(file);
    if !path.exists() {
        println!("skipped: {} is missing", path.display());
        return None;
    }
    Some(path)
}

fn timeline(path: PathBuf) -> Timeline {
    read(&[path], &ReadOptions::default()).unwrap()
}

fn report(timeline: &Timeline) -> Report {
    analyze(timeline, &AnalyzeOptions::default())
}

/// Milliseconds as whole nanoseconds, which every figure of these files is.
fn ns(ms: f64) -> i64 {
    let ns = (ms * 1e6).round();
    assert!((ms - ns / 1e6).abs() < 1e-9, "{ms} ms is no whole number of nanoseconds");
    ns as i64
}

/// Σ comm, Σ overlap, ∪ comm, ∪ compute, ∪ overlap in nanoseconds.
fn figures(rank: &RankReport) -> [i64; 5] {
    let (summary, wall) = (&rank.summary, &rank.wall.unwrap());
    [summary.total_comm_time, summary.overlap_time.unwrap(), wall.comm_ms, wall.compute_ms, wall.overlap_ms]
        .map(ns)
}

#[test]
fn two_ranks_ddp() {
    let Some(path) = corpus("kineto/ddp_2ranks_rank0.json.gz") else { return };
    let timeline = timeline(path);
    let report = report(&timeline);
    let [rank] = &report.ranks[..] else { panic!("{} tracks", report.ranks.len()) };
    assert_eq!((rank.rank, rank.device), (0, Some(0)));
    assert_eq!(rank.summary.num_comm_events, 21);
    assert_eq!(timeline.tracks[0].compute.len(), 2679);
    assert_eq!(figures(rank), [46_876_493, 7_317_025, 46_876_493, 115_655_847, 7_317_025]);

    let ops: Vec<_> = rank
        .summary
        .by_op
        .iter()
        .map(|(op, figures)| {
            (op.as_str(), figures.count, ns(figures.time), ns(figures.exposed_time.unwrap()))
        })
        .collect();
    assert_eq!(ops.len(), 2);
    assert!(ops.contains(&("all_reduce", 15, 46_762_159, 39_445_134)));
    assert!(ops.contains(&("broadcast", 6, 114_334, 114_334)));
    let steps: Vec<i64> = rank.steps.iter().map(|step| step.step).collect();
    assert_eq!(steps, [4, 5, 6]);
    assert_eq!(timeline.world_size, Some(2));
    for comm in timeline.tracks[0].comm.iter() {
        let text = |sym| timeline.names.get(sym);
        assert_eq!(comm.comm.map(text), Some("0"));
        assert_eq!((comm.comm_size, comm.comm_rank), (Some(2), Some(0)));
        assert_eq!((comm.algorithm.map(text), comm.protocol.map(text)), (Some("ring"), Some("ll")));
        // DDP broadcasts the counters of batch norm too.
        assert!(matches!(
            (comm.dtype.map(text), text(comm.op)),
            (Some("f32"), _) | (Some("i64"), "broadcast")
        ));
        assert!(comm.bytes.is_some_and(|bytes| bytes > 0));
    }
    let input = &report.inputs[0];
    assert_eq!(input.format, "kineto");
    assert_eq!(input.skipped.get("memcpy"), Some(&960));
    assert_eq!(input.skipped.get("memset"), Some(&114));
    let matched: u64 = input.rules.iter().filter(|rule| rule.kind == "comm").map(|rule| rule.events).sum();
    assert_eq!(matched, 21);
    // Times are absolute: 1711964646 s plus what the file counts from there.
    assert!(
        timeline.tracks[0]
            .compute
            .starts_ns()
            .iter()
            .all(|start| start / 1_000_000_000 == 1_716_423_322 || start / 1_000_000_000 == 1_716_423_323)
    );
}

#[test]
fn one_hundred_and_twenty_eight_ranks() {
    for (rank, compute, expected) in [
        (0, 1144, [396_199_000, 59_216_000, 396_199_000, 210_320_000, 59_216_000]),
        (1, 1094, [379_053_000, 75_530_000, 379_053_000, 271_973_000, 75_530_000]),
    ] {
        let Some(path) = corpus(&format!("kineto/p2p_128ranks_rank{rank}.json.gz")) else { return };
        let timeline = timeline(path);
        let report = report(&timeline);
        let [figures_of_rank] = &report.ranks[..] else { panic!("{} tracks", report.ranks.len()) };
        assert_eq!((figures_of_rank.rank, figures_of_rank.device), (rank, Some(rank)));
        assert_eq!(figures_of_rank.summary.num_comm_events, 10);
        assert_eq!(timeline.tracks[0].compute.len(), compute);
        assert_eq!(figures(figures_of_rank), expected);
        let ops: Vec<_> = figures_of_rank.summary.by_op.keys().collect();
        assert_eq!(ops, ["send_recv"]);
        assert_eq!(timeline.world_size, Some(128));
    }
}

#[test]
fn a_folder_is_all_its_ranks() {
    let Some(path) = corpus("kineto") else { return };
    let timeline = timeline(path);
    let tracks: Vec<_> = timeline.tracks.iter().map(|track| (track.rank, track.device)).collect();
    // Two different files are of rank 0; their intervals stand on one track.
    assert_eq!(tracks, [(0, Some(0)), (1, Some(1))]);
    assert_eq!(timeline.tracks[0].compute.len(), 2679 + 1144);
    let paths: Vec<_> = timeline.inputs.iter().map(|input| input.rank).collect();
    assert_eq!(paths, [Some(0), Some(0), Some(1)]);
}

/// Two of 128 ranks, without process groups or numbers. Their calls come in about the same order and are yet
/// not the same ones (their sizes and types differ): the order must not be relied upon, and no wait claimed.
#[test]
fn two_of_128_ranks_without_groups_are_not_matched_by_guess() {
    let files = [0, 1].map(|rank| corpus(&format!("kineto/p2p_128ranks_rank{rank}.json.gz")));
    let [Some(first), Some(second)] = files else { return };
    let timeline = read(&[first, second], &ReadOptions::default()).unwrap();
    assert_eq!(timeline.world_size, Some(128));
    let report = report(&timeline);
    assert_eq!(report.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1]);
    let calls: u64 = report.ranks.iter().map(|rank| rank.summary.num_comm_events).sum();
    assert_eq!(calls, 20);

    let across = report.cross_rank.as_ref().expect("two ranks communicate");
    assert!(across.ops.is_empty(), "no wait can be told: {:?}", across.ops);
    assert!(across.worst.is_empty());
    // Every call is accounted for, under the reason why nothing is said of it.
    assert_eq!(across.unmatched_events, calls);
    let messages = across.point_to_point.as_ref().expect("all are sends and receives in one launch");
    assert_eq!((messages.matched, messages.unmatched_events), (0, calls));
    assert_eq!(across.unmatched.iter().map(|one| one.ranks.as_slice()).collect::<Vec<_>>(), [[0, 1]]);
    for unmatched in &across.unmatched {
        assert_eq!(unmatched.reason, UnmatchedReason::NotNumbered, "{unmatched:?}");
        assert_eq!((unmatched.comm.as_ref(), unmatched.seq), (None, None));
    }
    for event in &report.hotspot_events {
        assert!(!event.rank_imbalance_observed && event.rank_imbalance_ratio.is_none());
    }
    // What is missing is said: 126 ranks, and why there are no waits.
    let said = report.warnings.join("\n");
    assert!(said.contains("126 of 128 ranks missing"), "{said}");
    assert!(said.contains("Waits across ranks are not given"), "{said}");
    let text = render::text(&report, &render::TextOptions::default());
    assert!(text.contains("could not be matched across ranks"), "{text}");
}
