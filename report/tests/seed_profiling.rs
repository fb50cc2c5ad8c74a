//! The assertions and edge cases of "Communication Profiling with NCCL" (chapter 47).

use commtrace_report::analyze::{
    CommProfiler, CostModelError, IntervalError, Summary, estimate_collective_time, export_hotspot_events,
    find_priority_hotspot,
};

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() < 5e-7
}

/// `_build_profiler_fixture`.
fn fixture() -> Result<CommProfiler, IntervalError> {
    let mut profiler = CommProfiler::new();
    profiler.add_compute("forward", 0.0, 2.0)?;
    profiler.add_comm("all_reduce", 1.0, 2.5, 128 * 1024)?;
    profiler.add_comm("broadcast", 2.6, 3.0, 64 * 1024)?;
    profiler.add_compute("backward", 3.0, 5.0)?;
    profiler.add_comm("reduce_scatter", 3.5, 4.3, 96 * 1024)?;
    profiler.add_comm("all_reduce", 4.5, 5.5, 32 * 1024)?;
    Ok(profiler)
}

#[test]
fn collective_cost_model() -> Result<(), CostModelError> {
    assert!(close(estimate_collective_time(100, 0.1, 1000.0, 3)?, 0.6));
    assert_eq!(estimate_collective_time(100, 0.1, 1000.0, 0)?, 0.0);
    assert_eq!(estimate_collective_time(100, 0.1, 0.0, 1), Err(CostModelError::Bandwidth(0.0)));
    Ok(())
}

#[test]
fn cost_model_rejects_what_is_not_a_cost() {
    for bandwidth in [-1.0, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(estimate_collective_time(1, 0.0, bandwidth, 1), Err(CostModelError::Bandwidth(bandwidth)));
    }
    for latency in [-1e-9, f64::INFINITY] {
        assert_eq!(estimate_collective_time(1, latency, 1.0, 1), Err(CostModelError::Latency(latency)));
    }
    assert!(matches!(estimate_collective_time(1, f64::NAN, 1.0, 1), Err(CostModelError::Latency(_))));
    assert!(matches!(estimate_collective_time(1, 0.0, f64::NAN, 1), Err(CostModelError::Bandwidth(_))));
    assert!(matches!(
        estimate_collective_time(u64::MAX, 0.0, f64::MIN_POSITIVE, 1),
        Err(CostModelError::Overflow(_))
    ));
    assert_eq!(estimate_collective_time(0, 0.5, 1.0, 4), Ok(2.0));
}

#[test]
fn event_timeline() -> Result<(), IntervalError> {
    let timeline = fixture()?.timeline();
    assert_eq!(timeline.len(), 4);
    assert_eq!(timeline[0].op, "all_reduce");
    assert!(timeline[0].overlap);
    assert!(!timeline[1].overlap);
    let ops: Vec<&str> = timeline.iter().map(|record| record.op.as_str()).collect();
    assert_eq!(ops, ["all_reduce", "broadcast", "reduce_scatter", "all_reduce"]);
    assert_eq!(timeline[0].duration, 1.5);
    assert_eq!(timeline[0].bytes, 128 * 1024);
    Ok(())
}

#[test]
fn summary_contract() -> Result<(), IntervalError> {
    let summary = fixture()?.summarize();
    assert_eq!(summary.num_comm_events, 4);
    assert!(close(summary.total_comm_time, 3.7));
    assert!(close(summary.overlap_time.unwrap(), 2.3));
    assert!(close(summary.exposed_comm_time.unwrap(), 1.4));
    assert_eq!(summary.by_op["all_reduce"].count, 2);
    assert_eq!(summary.by_op["all_reduce"].bytes, Some(160 * 1024));
    let hotspot = find_priority_hotspot(&summary).expect("there are events");
    assert_eq!(hotspot.op, "all_reduce");
    assert!(close(hotspot.exposed_time, 1.0));
    assert_eq!(hotspot.bytes, Some(160 * 1024));

    let exported = export_hotspot_events(&summary);
    let all_reduce = exported.iter().find(|event| event.collective == "all_reduce").expect("exported");
    assert_eq!(all_reduce.sync_count, 2);
    assert_eq!(all_reduce.payload_bytes, Some(160 * 1024));
    assert!(close(all_reduce.total_comm_ms, 2.5));
    assert!(close(all_reduce.exposed_comm_ms.unwrap(), 1.0));
    assert!(close(all_reduce.overlap_ratio.unwrap(), 0.6));
    assert_eq!(all_reduce.rank_imbalance_ratio, None);
    assert!(!all_reduce.rank_imbalance_observed);
    Ok(())
}

#[test]
fn overlap_duration_does_not_double_count_compute() -> Result<(), IntervalError> {
    let mut profiler = CommProfiler::new();
    profiler.add_compute("forward", 0.0, 3.0)?;
    profiler.add_compute("backward", 2.0, 4.0)?;
    assert_eq!(profiler.overlap_duration(1.0, 5.0), 3.0);
    assert_eq!(profiler.overlap_duration(4.0, 5.0), 0.0);
    Ok(())
}

#[test]
fn ops_keep_first_seen_order_and_the_exported_keys_are_the_chapters() -> Result<(), IntervalError> {
    let summary = fixture()?.summarize();
    let ops: Vec<&String> = summary.by_op.keys().collect();
    assert_eq!(ops, ["all_reduce", "broadcast", "reduce_scatter"]);
    let event = serde_json::to_value(&export_hotspot_events(&summary)[0]).expect("plain data");
    let keys: Vec<&String> = event.as_object().expect("an object").keys().collect();
    // serde_json sorts keys of a Value; the order in text is tested with the report.
    let expected = [
        "collective",
        "exposed_comm_ms",
        "overlap_ratio",
        "payload_bytes",
        "rank_imbalance_observed",
        "rank_imbalance_ratio",
        "sync_count",
        "total_comm_ms",
    ];
    let mut sorted: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    Ok(())
}

/// The chapter's flag is "not (end <= c.start or start >= c.end)", which also holds for an empty event
/// inside compute and for empty compute inside an event.
#[test]
fn overlap_flag_of_empty_touching_and_reversed_events() -> Result<(), IntervalError> {
    let mut profiler = CommProfiler::new();
    profiler.add_compute("forward", 1.0, 3.0)?;
    for (name, start, end) in [
        ("inside", 2.0, 2.0),
        ("at_start", 1.0, 1.0),
        ("at_end", 3.0, 3.0),
        ("before", 0.0, 1.0),
        ("after", 3.0, 4.0),
        ("reversed", 2.5, 1.5),
    ] {
        profiler.add_comm(name, start, end, 0)?;
    }
    profiler.add_compute("empty", 10.0, 10.0)?;
    profiler.add_comm("around_empty", 9.0, 11.0, 0)?;
    profiler.add_compute("late", 20.0, 21.0)?;

    let flags: Vec<(String, bool, f64)> =
        profiler.timeline().into_iter().map(|record| (record.op, record.overlap, record.duration)).collect();
    let flag = |op: &str| flags.iter().find(|(name, ..)| name == op).map(|&(_, flag, _)| flag);
    for (op, expected) in [
        ("inside", true),
        ("at_start", false),
        ("at_end", false),
        ("before", false),
        ("after", false),
        ("reversed", true),
        ("around_empty", true),
    ] {
        assert_eq!(flag(op), Some(expected), "{op}");
    }
    assert!(flags.iter().any(|(op, _, duration)| op == "reversed" && *duration == 0.0));
    assert_eq!(profiler.summarize().overlap_time, Some(0.0));
    Ok(())
}

/// The flag is decided when the event is added, the times when the summary is made.
#[test]
fn the_flag_knows_only_compute_added_before() -> Result<(), IntervalError> {
    let mut profiler = CommProfiler::new();
    profiler.add_comm("all_reduce", 0.0, 1.0, 0)?;
    profiler.add_compute("forward", 0.0, 1.0)?;
    assert!(!profiler.timeline()[0].overlap);
    assert_eq!(profiler.summarize().overlap_time, Some(1.0));
    Ok(())
}

#[test]
fn ties_go_to_the_op_seen_first_not_to_the_earliest() -> Result<(), IntervalError> {
    let mut profiler = CommProfiler::new();
    profiler.add_comm("broadcast", 5.0, 6.0, 1)?;
    profiler.add_comm("all_reduce", 0.0, 1.0, 2)?;
    assert_eq!(
        find_priority_hotspot(&profiler.summarize()).map(|hotspot| hotspot.op).as_deref(),
        Some("broadcast")
    );
    Ok(())
}

#[test]
fn without_events_there_is_no_hotspot() {
    let summary = CommProfiler::new().summarize();
    assert_eq!(summary, Summary::default());
    assert_eq!(find_priority_hotspot(&summary), None);
    assert!(export_hotspot_events(&summary).is_empty());
}

#[test]
fn times_that_are_no_times_are_rejected_by_name() {
    let mut profiler = CommProfiler::new();
    for (start, end) in [(f64::NAN, 1.0), (0.0, f64::INFINITY), (-1e300, 0.0)] {
        let error = profiler.add_comm("all_reduce", start, end, 0).expect_err("not a time");
        assert!(error.to_string().starts_with("all_reduce: start "), "{error}");
        assert!(profiler.add_compute("forward", start, end).is_err());
    }
    assert!(profiler.timeline().is_empty());
}
