//! The whole report: its JSON to the letter, and what the text says.

use commtrace_report::analyze::{AnalyzeOptions, Report, RuleReport, analyze};
use commtrace_report::render::{TextOptions, json, text};
use commtrace_report::timeline::{Comm, Compute, Input, Step, Timeline, Track};

const MS: i64 = 1_000_000;

/// The chapter's fixture on rank 0 and a rank 1 whose all_reduce is exposed more, in two steps.
fn fixture() -> Timeline {
    let mut timeline = Timeline::default();
    let clock = timeline.names.intern("boot");
    let names = ["forward", "backward"].map(|name| timeline.names.intern(name));
    let ops = ["all_reduce", "broadcast", "reduce_scatter"].map(|op| timeline.names.intern(op));
    let world = timeline.names.intern("world");
    for rank in 0..2 {
        let mut track = Track { clock: Some(clock), ..Track::new(rank, Some(0)) };
        let compute = |index: usize, start: i64, end: i64, step| Compute {
            name: names[index],
            start_ns: start * MS / 10,
            end_ns: end * MS / 10,
            step: Some(step),
        };
        track.compute.push(compute(0, 0, 20, 1));
        track.compute.push(compute(1, 30, 50, 2));
        // Rank 1's last all_reduce ends later.
        let last = if rank == 0 { 55 } else { 57 };
        let calls =
            [(0, 10, 25, 128, 0, 1), (1, 26, 30, 64, 1, 1), (2, 35, 43, 96, 2, 2), (0, 45, last, 32, 3, 2)];
        for (op, start, end, kib, seq, step) in calls {
            track.comm.push(Comm {
                bytes: Some(kib * 1024),
                comm: Some(world),
                seq: Some(seq),
                comm_size: Some(2),
                step: Some(step),
                ..Comm::new(ops[op], start * MS / 10, end * MS / 10)
            });
        }
        track.steps.push(Step { step: 1, start_ns: 0, end_ns: 3 * MS });
        track.steps.push(Step { step: 2, start_ns: 3 * MS, end_ns: 6 * MS });
        timeline.tracks.push(track);
    }
    timeline.tracks[1].untimed.count = 2;
    timeline.tracks[1].untimed.bytes = 2048;
    timeline.tracks[1].untimed.reasons.insert("captured".to_string(), 2);
    timeline.inputs.push(Input {
        path: "run.timeline.json".to_string(),
        format: "timeline-json".to_string(),
        events: 12,
        skipped: [("unknown_kind".to_string(), 1)].into_iter().collect(),
        ..Input::default()
    });
    timeline
}

fn report() -> Report {
    analyze(&fixture(), &AnalyzeOptions::default())
}

/// Keys and their order are a contract with programs that read the report.
#[test]
fn json_to_the_letter() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/report/expected.json");
    let found = json(&report());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &found).expect("the folder of the tests can be written");
    }
    let expected = std::fs::read_to_string(path).expect("the file is there");
    assert!(
        found == expected,
        "the report's JSON is not {path}. If the change is meant, run this test with UPDATE_EXPECT=1 and look \
         at the difference; the version in the report may have to be raised. Found:\n{found}"
    );
}

#[test]
fn json_reads_back() {
    let report = report();
    let read: Report = serde_json::from_str(&json(&report)).expect("our own JSON");
    assert_eq!(json(&read), json(&report));
    assert_eq!(read.ranks[0], report.ranks[0]);
    assert_eq!(read.mitigation, report.mitigation);
}

#[test]
fn an_empty_timeline_makes_an_empty_report() {
    let report = analyze(&Timeline::default(), &AnalyzeOptions::default());
    let value: serde_json::Value = serde_json::from_str(&json(&report)).expect("our own JSON");
    assert_eq!(value["ranks"], serde_json::json!([]));
    assert_eq!(value["hotspots"]["priority"], serde_json::Value::Null);
    assert_eq!(value["mitigation"]["strategy"], "collect_trace");
    assert_eq!(value["followup"]["decision"], "collect_more_evidence");
    assert_eq!(value["cross_rank"], serde_json::Value::Null);
    let text = text(&report, &TextOptions::default());
    assert!(text.starts_with("commtrace: no intervals were read\n"), "{text}");
}

/// A rank without communication is not a rank without figures.
#[test]
fn compute_alone() {
    let mut timeline = Timeline::default();
    let name = timeline.names.intern("forward");
    let mut track = Track::new(0, None);
    track.compute.push(Compute { name, start_ns: 0, end_ns: 5 * MS, step: None });
    timeline.tracks.push(track);
    let report = analyze(&timeline, &AnalyzeOptions::default());
    assert_eq!(report.ranks[0].wall.unwrap().compute_ms, 5.0);
    assert_eq!(report.ranks[0].summary.overlap_ratio, Some(0.0));
    assert!(text(&report, &TextOptions::default()).contains("collect_trace"));
}

#[test]
fn times_at_the_ends_of_the_range_stay_finite() {
    let mut timeline = Timeline::default();
    let name = timeline.names.intern("all_reduce");
    let mut track = Track::new(0, None);
    for _ in 0..3 {
        track.comm.push(Comm {
            step: Some(0),
            bytes: Some(u64::MAX - 1),
            ..Comm::new(name, i64::MIN, i64::MAX)
        });
        track.comm.push(Comm::new(name, i64::MAX, i64::MIN));
        track.compute.push(Compute { name, start_ns: i64::MIN, end_ns: i64::MAX, step: Some(i64::MAX) });
    }
    timeline.tracks.push(track);
    let report = analyze(&timeline, &AnalyzeOptions::default());
    assert_eq!(report.ranks[0].summary.overlap_ratio, Some(1.0));
    assert_eq!(report.ranks[0].summary.by_op["all_reduce"].bytes, Some(u64::MAX));
    assert!(!json(&report).contains("null,\n      \"wall"));
    assert!(text(&report, &TextOptions::default()).lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn unknown_bytes_are_null_and_a_partial_sum_is_of_the_known() {
    let mut timeline = fixture();
    let mut track = Track::new(7, None);
    for event in timeline.tracks[0].comm.iter() {
        let op = timeline.names.get(event.op);
        let bytes = event.bytes.filter(|bytes| op != "broadcast" && *bytes != 32 * 1024);
        track.comm.push(Comm { bytes, ..event });
    }
    timeline.tracks = vec![track];
    let report = analyze(&timeline, &AnalyzeOptions::default());
    let by_op = &report.ranks[0].summary.by_op;
    assert_eq!(by_op["broadcast"].bytes, None);
    assert_eq!(by_op["all_reduce"].bytes, Some(128 * 1024));
    let value: serde_json::Value = serde_json::from_str(&json(&report)).expect("our own JSON");
    assert_eq!(value["ranks"][0]["summary"]["by_op"]["broadcast"]["bytes"], serde_json::Value::Null);
    assert!(text(&report, &TextOptions::default()).contains("unknown"));
}

#[test]
fn events_that_end_before_they_start_are_counted_as_anomalies() {
    let mut timeline = fixture();
    let op = timeline.names.intern("all_reduce");
    timeline.tracks[0].comm.push(Comm::new(op, 5 * MS, 4 * MS));
    let report = analyze(&timeline, &AnalyzeOptions::default());
    assert_eq!(report.inputs[0].anomalies.get("end_before_start"), Some(&1));
    assert!(report.warnings.iter().any(|warning| warning.starts_with("1 event ends before the start")));
    // A reader that counted it is not contradicted.
    timeline.inputs[0].anomalies.insert("end_before_start".to_string(), 4);
    let report = analyze(&timeline, &AnalyzeOptions::default());
    assert_eq!(report.inputs[0].anomalies.get("end_before_start"), Some(&4));
}

/// The host's track may hold the steps while the work is on a device's.
#[test]
fn a_device_uses_the_steps_of_its_rank() {
    let mut timeline = fixture();
    timeline.tracks.truncate(1);
    let steps = std::mem::take(&mut timeline.tracks[0].steps);
    timeline.tracks.insert(0, Track { steps, clock: timeline.tracks[0].clock, ..Track::new(0, None) });
    let report = analyze(&timeline, &AnalyzeOptions::default());
    assert_eq!(report.ranks.len(), 1);
    assert_eq!(report.ranks[0].device, Some(0));
    assert_eq!(report.ranks[0].steps.iter().map(|step| step.span_ms).collect::<Vec<_>>(), [3.0, 3.0]);
}

#[test]
fn the_text_says_first_what_matters() {
    let report = report();
    let text = text(&report, &TextOptions::default());
    let top: String = text.lines().take(14).collect::<Vec<_>>().join("\n");
    for part in [
        "2 ranks, 2 steps, 5.70 ms from first to last interval",
        "on rank 1",
        "Overlap",
        "all_reduce: summed over 2 calls, 1.20 ms exposed of 2.70 ms, 160 KiB (rank 1)",
        "accept",
        "Try next",
    ] {
        assert!(top.contains(part), "`{part}` is not in\n{top}");
    }
    for part in [
        "Operations",
        "Ranks",
        "Waits across ranks",
        "Steps",
        "captured",
        "run.timeline.json",
        "unknown_kind",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    assert!(!text.contains("blocking"), "exposed is not yet blocking");
}

/// A pattern over names may be wrong: what it matched can be read.
#[test]
fn the_text_lists_what_names_were_taken_for() {
    let mut report = report();
    assert!(!text(&report, &TextOptions::default()).contains("taken for"));
    report.inputs[0].rules.push(RuleReport {
        rule: "kernel name contains `ncclDevKernel_AllReduce`".to_string(),
        kind: "comm".to_string(),
        op: Some("all_reduce".to_string()),
        events: 321,
        time_ms: 12.5,
    });
    let text = text(&report, &TextOptions::default());
    assert!(
        text.contains("ncclDevKernel_AllReduce") && text.contains("321") && text.contains("12.5 ms"),
        "{text}"
    );
}

#[test]
fn text_is_as_narrow_as_asked() {
    let mut report = report();
    report.warnings.push(format!("{} ends early.", "/a/long/path".repeat(30)));
    for width in [60, 80, 100] {
        let text = text(&report, &TextOptions { width, ..TextOptions::default() });
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

#[test]
fn tables_of_many_ranks_say_what_they_leave_out() {
    let mut timeline = fixture();
    let template = timeline.tracks[0].clone();
    timeline.tracks = (0..100).map(|rank| Track { rank, ..template.clone() }).collect();
    let op = timeline.names.intern("all_reduce");
    timeline.tracks[77].comm.push(Comm::new(op, 60 * MS, 90 * MS));
    let text = text(&analyze(&timeline, &AnalyzeOptions::default()), &TextOptions::default());
    assert!(text.contains("(84 more ranks with less exposed time not shown)"), "{text}");
    let ranks: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("Ranks")).collect();
    assert!(ranks.iter().any(|line| line.trim_start().starts_with("77 ")), "{text}");
}
