//! `commtrace report` on timelines written by other programs.

mod common;

use common::{commtrace, shown, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::process::Output;
use tempfile::tempdir;

/// The timeline of the chapter "Communication Profiling with NCCL", and a step.
const CHAPTER: &str = r#"{
  "compute": [
    {"name": "forward", "start": 0.0, "end": 2.0},
    {"name": "backward", "start": 3.0, "end": 5.0}
  ],
  "comm": [
    {"op": "reduce_scatter", "start": 3.5, "end": 4.3, "bytes": 98304},
    {"op": "all_reduce", "start": 1.0, "end": 2.5, "bytes": 131072},
    {"op": "broadcast", "start": 2.6, "end": 3.0, "bytes": 65536},
    {"op": "all_reduce", "start": 4.5, "end": 5.5, "bytes": 32768}
  ],
  "steps": [{"step": 7, "start": 0.0, "end": 6.0}]
}"#;

/// Runs `commtrace report FILE ...` on a file with `content`.
fn report(content: impl AsRef<[u8]>, more: &[&str]) -> Output {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.timeline.json");
    fs::write(&path, content).unwrap();
    let path = path.to_str().unwrap();
    commtrace([&["report", path], more].concat())
}

/// The keys of indented JSON with their depth, in the order in which they are printed.
fn keys(text: &str) -> Vec<(usize, &str)> {
    text.lines()
        .filter_map(|line| {
            let key = line.trim_start().strip_prefix('"')?.split_once("\":")?.0;
            Some(((line.len() - line.trim_start().len()) / 2, key))
        })
        .collect()
}

#[test]
fn json_has_exactly_the_documented_keys_in_order() {
    let output = report(CHAPTER, &["--format", "json"]);
    assert!(output.status.success(), "{}", shown(&output));
    let text = stdout(&output);
    let found = keys(&text);
    let at =
        |depth: usize| found.iter().filter(|(d, _)| *d == depth).map(|(_, key)| *key).collect::<Vec<_>>();
    assert_eq!(
        at(1),
        [
            "schema_version",
            "inputs",
            "ranks",
            "hotspot_events",
            "hotspots",
            "mitigation",
            "followup",
            "cross_rank"
        ]
    );

    let step = ["step", "start_ms", "span_ms", "compute_ms", "comm_ms", "overlap_ms", "exposed_ms"];
    let op = ["count", "time", "bytes", "exposed_time"];
    let event = [
        "collective",
        "sync_count",
        "total_comm_ms",
        "exposed_comm_ms",
        "payload_bytes",
        "overlap_ratio",
        "rank_imbalance_ratio",
        "rank_imbalance_observed",
        "rank",
    ];
    let bucket = ["count", "sync_count"].into_iter().chain(event[2..8].iter().copied()).collect::<Vec<_>>();
    // First seen, not alphabetical and not by start.
    let ops = ["reduce_scatter", "all_reduce", "broadcast"];

    let mut expected: Vec<(usize, &str)> = vec![(1, "schema_version"), (1, "inputs")];
    expected.extend(["path", "format", "events", "skipped", "anomalies"].map(|key| (3, key)));
    expected.extend([(1, "ranks"), (3, "rank"), (3, "device"), (3, "summary")]);
    expected.extend(
        ["num_comm_events", "total_comm_time", "overlap_time", "overlap_ratio", "exposed_comm_time", "by_op"]
            .map(|key| (4, key)),
    );
    for name in ops {
        expected.push((5, name));
        expected.extend(op.map(|key| (6, key)));
    }
    expected.push((3, "wall"));
    expected.extend(
        ["comm_ms", "exposed_ms", "compute_ms", "overlap_ms", "idle_ms", "span_ms"].map(|key| (4, key)),
    );
    expected.extend([(3, "untimed"), (4, "count"), (4, "bytes"), (3, "steps")]);
    expected.extend(step.map(|key| (5, key)));
    expected.push((1, "hotspot_events"));
    for _ in ops {
        expected.extend(event.map(|key| (3, key)));
    }
    expected.extend([(1, "hotspots"), (2, "by_collective")]);
    for name in ops {
        expected.push((3, name));
        expected.extend(bucket.iter().map(|key| (4, *key)));
    }
    expected.extend([(2, "priority"), (3, "collective")]);
    expected.extend(bucket.iter().map(|key| (3, *key)));
    expected.push((2, "num_events"));
    expected.extend([(1, "mitigation"), (2, "strategy"), (2, "target"), (2, "next_measurements")]);
    expected.extend([(1, "followup"), (2, "decision"), (2, "reason"), (2, "next_measurements")]);
    expected.push((1, "cross_rank"));
    assert_eq!(found, expected);
}

#[test]
fn figures_are_the_chapters() {
    let output = report(CHAPTER, &["--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The chapter's own assertions.
    let summary = &report["ranks"][0]["summary"];
    assert_eq!(summary["num_comm_events"], 4);
    assert_eq!(summary["total_comm_time"], 3.7);
    assert_eq!(summary["overlap_time"], 2.3);
    assert_eq!(summary["exposed_comm_time"], 1.4);
    assert_eq!(summary["by_op"]["all_reduce"]["count"], 2);
    assert_eq!(summary["by_op"]["all_reduce"]["bytes"], 160 * 1024);
    let priority = &report["hotspots"]["priority"];
    assert_eq!(priority["collective"], "all_reduce");
    assert_eq!((&priority["total_comm_ms"], &priority["exposed_comm_ms"]), (&2.5.into(), &1.0.into()));
    assert_eq!(report["hotspot_events"][1]["rank_imbalance_ratio"], Value::Null);
    assert_eq!(priority["rank_imbalance_ratio"], 0.0);
    assert_eq!(priority["rank_imbalance_observed"], false);
    assert_eq!(report["followup"]["decision"], "accept");
    assert_eq!(report["ranks"][0]["steps"][0]["step"], 7);
}

#[test]
fn nothing_to_report_is_null_and_not_zero() {
    let output =
        report(r#"{"compute": [{"name": "a", "start": 0, "end": 1}], "comm": []}"#, &["--format", "json"]);
    assert!(output.status.success(), "{}", shown(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["hotspots"]["priority"], Value::Null);
    assert_eq!(report["mitigation"]["strategy"], "collect_trace");
    assert_eq!(report["mitigation"]["target"], Value::Null);
    assert_eq!(report["followup"]["decision"], "collect_more_evidence");
}

#[test]
fn what_cannot_be_read_is_named() {
    for (content, said) in [
        (
            r#"{"compute": [], "comm": [{"op": "all_reduce", "start": NaN, "end": 1, "bytes": 1}]}"#,
            "x.timeline.json",
        ),
        (r#"{"compute": [], "comm": [{"op": "all_reduce", "start": 1e400, "end": 1, "bytes": 1}]}"#, "start"),
        (r#"{"compute": [], "comm": [{"op": "all_reduce", "start": 0, "end": 1, "bytes": -1}]}"#, "bytes"),
        (r#"{"compute": [], "comm": [{"op": "all_reduce", "start": "0", "end": 1, "bytes": 1}]}"#, "start"),
        (r#"{"compute": [], "comm": [{"op": "all_reduce", "start": 0"#, "x.timeline.json"),
        ("{\"a\": 1}", "x.timeline.json"),
        ("a,b,c\n1,2,3\n", "x.timeline.json"),
        ("", "empty"),
    ] {
        for format in ["text", "json", "chrome"] {
            let output = report(content, &["--format", format]);
            assert_eq!(output.status.code(), Some(1), "{content}: {}", shown(&output));
            assert_eq!(stdout(&output), "");
            let text = stderr(&output);
            assert!(text.starts_with("error: ") && text.contains(said), "{content}: {text}");
            assert!(!text.contains("panicked"), "{text}");
        }
    }
}

#[test]
fn paths_that_hold_nothing_are_status_1() {
    let folder = tempdir().unwrap();
    let missing = folder.path().join("missing");
    for (path, said) in [(folder.path(), "COMMTRACE_DIR"), (&missing, "missing")] {
        let output = commtrace(["report", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        assert!(stderr(&output).contains(said), "{}", shown(&output));
        assert_eq!(stdout(&output), "");
    }
}

/// Two ranks whose clocks are a second apart: aligned, or taken as one clock if the user says that they are.
#[test]
fn clocks_of_a_trace_are_aligned_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two.timeline.json");
    let call = |ahead: u32, seq: u32, start: u32| {
        let at = ahead + 100 * seq;
        let (start, end) = (at + start, at + 10);
        serde_json::json!({
            "op": "all_reduce", "start": start, "end": end, "bytes": 8, "comm": "world", "seq": seq
        })
    };
    let rank = |rank: u32, ahead: u32, start: u32| {
        let comm: Vec<_> = (0..20).map(|seq| call(ahead, seq, start)).collect();
        serde_json::json!({"rank": rank, "compute": [], "comm": comm})
    };
    let timeline = serde_json::json!({"ranks": [rank(0, 0, 2), rank(1, 1000, 6)]});
    std::fs::write(&path, timeline.to_string()).unwrap();
    let across = |more: &[&str]| -> Value {
        let path = path.to_str().unwrap();
        let output = commtrace([&["report", path, "--format", "json"], more].concat());
        assert!(output.status.success(), "{}", shown(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["cross_rank"].clone()
    };
    let aligned = across(&[]);
    assert_eq!(aligned["alignment"][1]["offset_ms"], 1000.0);
    // Rank 0 waits 4 ms in each.
    assert!((aligned["ops"][0]["wait_ms"].as_f64().unwrap() - 40.0).abs() < 1e-3, "{aligned}");
    let taken = across(&["--no-align"]);
    assert_eq!(taken["alignment"][1]["offset_ms"], 0.0);
    // Rank 0 is back long before rank 1 arrives: its 8 ms are all wait.
    assert_eq!(taken["ops"][0]["wait_ms"], 80.0);
}
