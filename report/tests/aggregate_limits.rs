//! The running summary at its limits: late intervals, spans that never end, many steps, few ranks.

use commtrace_report::aggregate::Aggregator;
use commtrace_report::analyze::{AnalyzeOptions, Report};
use commtrace_report::record::{Row, RowKind, meta};

fn interval(kind: RowKind, name: &str, start: i64, end: i64) -> Row<'_> {
    Row { start_ns: Some(start), dur_ns: Some(end - start), thread: Some(0), ..Row::new(kind, name) }
}

fn comm(start: i64, end: i64) -> Row<'static> {
    Row { bytes: Some(8), thread: Some(1), ..interval(RowKind::Comm, "all_reduce", start, end) }
}

fn compute(start: i64, end: i64) -> Row<'static> {
    interval(RowKind::Compute, "forward", start, end)
}

fn aggregator() -> Aggregator {
    Aggregator::new(AnalyzeOptions::default())
}

fn anomaly(report: &Report, kind: &str) -> Option<u64> {
    report.inputs[0].anomalies.get(kind).copied()
}

fn warned(report: &Report, words: &[&str]) -> bool {
    report.warnings.iter().any(|warning| words.iter().all(|word| warning.contains(word)))
}

#[test]
fn nothing_pushed() {
    let report = aggregator().finish();
    assert!(report.ranks.is_empty() && report.warnings.is_empty() && report.cross_rank.is_none());
    assert_eq!(report.inputs[0].events, 0);
}

#[test]
fn an_interval_that_comes_too_late_is_counted_in_full_and_told() {
    let mut aggregator = aggregator();
    aggregator.push(0, &compute(0, 100));
    aggregator.advance(50);
    // Its first 30 were hidden, but that part of the time is gone.
    aggregator.push(0, &comm(20, 80));
    // Wholly before the watermark.
    aggregator.push(0, &comm(10, 15));
    let report = aggregator.finish();
    let ns = |ms: f64| (ms * 1e6).round() as i64;
    let summary = &report.ranks[0].summary;
    assert_eq!(summary.num_comm_events, 2);
    assert_eq!((ns(summary.total_comm_time), ns(summary.overlap_time.unwrap())), (65, 30));
    assert_eq!(
        (ns(report.ranks[0].wall.unwrap().comm_ms), ns(report.ranks[0].wall.unwrap().span_ms)),
        (30, 100)
    );
    assert_eq!(anomaly(&report, "late"), Some(2));
    assert!(warned(&report, &["2 intervals began longer ago"]), "{:?}", report.warnings);
}

#[test]
fn a_watermark_never_goes_back() {
    let mut aggregator = aggregator();
    aggregator.push(0, &compute(0, 100));
    aggregator.advance(60);
    aggregator.advance(40);
    aggregator.push(0, &comm(70, 90));
    let report = aggregator.finish();
    assert_eq!(report.ranks[0].summary.overlap_ratio, Some(1.0));
    assert_eq!(anomaly(&report, "late"), None);
}

#[test]
fn a_span_that_stays_open_does_not_hold_everything() {
    // The watermark stays at 0, as an enclosing span that never ends makes it.
    const EVENTS: i64 = 300_000;
    let mut aggregator = aggregator();
    for event in 0..EVENTS {
        aggregator.push(0, &compute(event * 10, event * 10 + 6));
        aggregator.push(0, &comm(event * 10 + 4, event * 10 + 8));
        aggregator.advance(0);
    }
    aggregator.push(0, &interval(RowKind::Compute, "main", 0, EVENTS * 10));
    let report = aggregator.finish();
    let summary = &report.ranks[0].summary;
    assert_eq!(summary.num_comm_events, EVENTS as u64);
    assert_eq!((summary.total_comm_time * 1e6).round() as i64, EVENTS * 4);
    // Half is hidden by the short spans; the long one hides what it is not too late for.
    assert!(summary.overlap_ratio >= Some(0.5), "{:?}", summary.overlap_ratio);
    assert_eq!(anomaly(&report, "late"), Some(1));
}

#[test]
fn steps_beyond_those_kept_are_in_the_totals_only() {
    let mut aggregator = aggregator();
    for step in 0..10_100_i64 {
        let row = |row: Row<'static>| Row { step: Some(step), ..row };
        aggregator.push(0, &row(comm(step * 10, step * 10 + 5)));
        aggregator.push(0, &row(interval(RowKind::Step, "step", step * 10, step * 10 + 10)));
        aggregator.advance(step * 10 + 10);
    }
    let report = aggregator.finish();
    assert_eq!(report.ranks[0].steps.len(), 10_000);
    assert_eq!(report.ranks[0].summary.num_comm_events, 10_100);
    assert!(warned(&report, &["first 10000 steps", "100 later ones"]), "{:?}", report.warnings);
}

#[test]
fn an_interval_without_a_step_belongs_to_the_step_it_starts_in() {
    let mut aggregator = aggregator();
    aggregator.push(0, &comm(5, 12));
    aggregator.push(0, &comm(25, 30));
    aggregator.push(0, &Row { step: Some(7), ..interval(RowKind::Step, "step", 0, 10) });
    aggregator.advance(20);
    let report = aggregator.finish();
    let [step] = &report.ranks[0].steps[..] else { panic!("{:?}", report.ranks[0].steps) };
    assert_eq!((step.step, (step.comm_ms * 1e6).round() as i64), (7, 7));
}

#[test]
fn collectives_whose_other_members_never_come_are_not_kept() {
    let mut aggregator = aggregator();
    for rank in 0..2 {
        for seq in 0..10_000_u64 {
            let start = seq as i64 * 10;
            // Rank 0 is alone in communicator `a`, both ranks are in `b`, whose size nobody knows.
            let name = if seq % 2 == 0 && rank == 0 { "a" } else { "b" };
            let size = (name == "a").then_some(4);
            let row = Row { comm: Some(name), seq: Some(seq), comm_size: size, ..comm(start, start + 5) };
            if seq % 2 == 1 || rank == 0 {
                aggregator.push(rank, &row);
            }
        }
    }
    let report = aggregator.finish();
    let across = report.cross_rank.expect("both ranks in `b`");
    assert_eq!((across.ops[0].matched, across.ops[0].partial), (5_000, false));
    assert_eq!(across.unmatched_events, 5_000);
    assert!(across.unmatched.len() <= 20);
}

#[test]
fn untimed_lost_and_odd_rows_are_counted() {
    let mut aggregator = aggregator();
    let untimed = Row { untimed: Some("captured"), bytes: Some(9), ..Row::new(RowKind::Comm, "all_reduce") };
    aggregator.push(3, &untimed);
    aggregator.push(3, &Row { value: Some(4), ..Row::new(RowKind::Meta, meta::DROPPED) });
    aggregator.push(3, &Row::new(RowKind::Meta, meta::END));
    aggregator.push(3, &Row::new(RowKind::Open, "all_reduce"));
    aggregator.push(3, &Row::new(RowKind::Compute, "no time"));
    aggregator.push(3, &Row::new(RowKind::Step, "no time"));
    aggregator.push(3, &interval(RowKind::Step, "no number", 0, 1));
    aggregator.push(3, &Row { start_ns: Some(i64::MAX), dur_ns: Some(1), ..comm(0, 0) });
    aggregator.push(3, &comm(10, 5));
    aggregator.dropped(2);
    let report = aggregator.finish();
    let [rank] = &report.ranks[..] else { panic!("{:?}", report.ranks) };
    assert_eq!((rank.rank, rank.untimed.count, rank.untimed.bytes), (3, 1, 9));
    assert_eq!(rank.untimed.reasons["captured"], 1);
    assert_eq!((rank.summary.num_comm_events, rank.summary.total_comm_time), (1, 0.0));
    assert_eq!(anomaly(&report, "end_before_start"), Some(1));
    for reason in ["compute_without_time", "step_without_time", "step_without_number", "time_out_of_range"] {
        assert_eq!(report.inputs[0].skipped.get(reason), Some(&1), "{reason}");
    }
    assert!(warned(&report, &["6 records were lost"]), "{:?}", report.warnings);
}

#[test]
fn a_second_device_stands_beside_the_first() {
    let on = |row: Row<'static>, device| Row { device: Some(device), stream: Some("s"), ..row };
    let mut aggregator = aggregator();
    aggregator.push(0, &compute(0, 10));
    aggregator.push(0, &on(compute(10, 20), 1));
    aggregator.push(0, &on(compute(20, 30), 0));
    aggregator.push(0, &compute(30, 40));
    let report = aggregator.finish();
    let computed: Vec<_> = report
        .ranks
        .iter()
        .map(|rank| (rank.device, (rank.wall.unwrap().compute_ms * 1e6).round() as i64))
        .collect();
    assert_eq!(computed, [(None, 10), (Some(0), 10), (Some(1), 20)]);
    assert!(warned(&report, &["Rank 0 has several devices"]), "{:?}", report.warnings);
}

#[test]
fn the_whole_range_of_time() {
    let mut aggregator = aggregator();
    aggregator.push(0, &Row { start_ns: Some(i64::MIN), dur_ns: Some(i64::MAX), ..comm(0, 0) });
    aggregator.push(0, &Row { start_ns: Some(0), dur_ns: Some(i64::MAX), ..compute(0, 0) });
    aggregator.advance(i64::MAX);
    let report = aggregator.finish();
    assert_eq!(report.ranks[0].summary.overlap_time, Some(0.0));
    assert!(report.ranks[0].wall.unwrap().span_ms > 1.8e13);
}
