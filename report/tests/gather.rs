//! Summaries of processes: how they add up, travel, and what the report makes of them.

use commtrace_report::aggregate::Aggregator;
use commtrace_report::analyze::{AnalyzeOptions, Report, analyze};
use commtrace_report::gather::{ProcessId, ProcessSummary, RunSummary, Sample, Sampler, SummaryError};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::record::{Header, RecordWriter, Row, RowKind, file_name, meta};
use proptest::collection::btree_set;
use proptest::prelude::*;

fn header(rank: u32) -> Header {
    Header {
        rank,
        host: "node".to_owned(),
        boot_id: "boot".to_owned(),
        pid: 100 + rank,
        run_id: "job".to_owned(),
        start_unix_ns: 1_000,
        start_mono_ns: 0,
        world_size: Some(3),
        writer_version: "0.0.0".to_owned(),
    }
}

fn id(rank: u32) -> ProcessId {
    let Header { host, boot_id, pid, start_unix_ns, .. } = header(rank);
    ProcessId { rank: Some(rank), host, boot_id, pid, start_unix_ns }
}

/// What a rank of three records: compute, then an all_reduce that ends with the last rank's arrival.
/// Every tenth millisecond a step of its own; rank 2 computes longer.
fn rows(rank: u32, steps: i64) -> Vec<Row<'static>> {
    const MS: i64 = 1_000_000;
    let mut rows = vec![Row {
        label: Some("0,1,2"),
        comm: Some("world"),
        comm_size: Some(3),
        comm_rank: Some(rank),
        ..Row::new(RowKind::Meta, meta::COMMUNICATOR)
    }];
    for step in 0..steps {
        let begin = step * 10 * MS + i64::from(rank) * 1_000;
        let compute = if rank == 2 { 4 * MS } else { 2 * MS + i64::from(rank) * MS / 10 };
        let row = |kind, name, start, end| Row {
            start_ns: Some(start),
            dur_ns: Some(end - start),
            thread: Some(0),
            step: Some(step),
            ..Row::new(kind, name)
        };
        let arrival = begin + compute;
        let end = step * 10 * MS + 6 * MS;
        rows.push(row(RowKind::Compute, "forward", begin, arrival));
        // Beside the first half of the communication.
        rows.push(Row { thread: Some(1), ..row(RowKind::Compute, "loader", arrival, (arrival + end) / 2) });
        rows.push(Row {
            bytes: Some(4096),
            comm: Some("world"),
            comm_size: Some(3),
            comm_rank: Some(rank),
            seq: u64::try_from(step).ok(),
            dtype: Some("float32"),
            ..row(RowKind::Comm, "all_reduce", arrival, end)
        });
        rows.push(row(RowKind::Step, "step", begin, end));
    }
    rows
}

/// The summary of a process with `rank`, which keeps a sample of `most` rows.
fn summary(rank: u32, steps: i64, most: usize) -> RunSummary {
    let (mut aggregator, mut sampler) = (Aggregator::new(AnalyzeOptions::default()), Sampler::new(most));
    for row in rows(rank, steps) {
        aggregator.push(rank, &row);
        sampler.push(rank, &row);
    }
    let base_ns = aggregator.base_ns();
    let samples = sampler.samples(&header(rank)).unwrap();
    RunSummary::of_process(id(rank), &aggregator.finish(), base_ns, samples)
}

fn gathered(steps: i64, most: usize) -> Report {
    let parts = (0..3).map(|rank| summary(rank, steps, most));
    parts.reduce(RunSummary::merge).unwrap().report(&AnalyzeOptions::default())
}

/// The report on record files of the same rows.
fn merged(steps: i64) -> Report {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        let header = header(rank);
        let file = std::fs::File::create(folder.path().join(file_name(&header))).unwrap();
        let mut writer = RecordWriter::new(file, &header).unwrap();
        rows(rank, steps).iter().for_each(|row| writer.push(row));
        writer.push(&Row::new(RowKind::Meta, meta::END));
        writer.finish().unwrap();
    }
    analyze(&read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap(), &AnalyzeOptions::default())
}

#[test]
fn the_report_on_summaries_is_that_on_record_files() {
    let (gathered, merged) = (gathered(40, 1 << 14), merged(40));
    assert_eq!(gathered.ranks, merged.ranks);
    assert_eq!(gathered.cross_rank, merged.cross_rank);
    assert_eq!(gathered.hotspot_events, merged.hotspot_events);
    assert_eq!(gathered.mitigation, merged.mitigation);
    let op = &gathered.cross_rank.as_ref().unwrap().ops[0];
    assert_eq!((op.matched, op.partial), (40, false));
    // Rank 2 arrives 2 ms after rank 0 and 1.9 ms after rank 1, less what it begins later: (2.002 + 1.901) / 3.
    assert!((op.wait_ms / 40.0 - 1.301).abs() < 1e-9, "{}", op.wait_ms);
    assert!(op.exposed_wait_ms < op.wait_ms);
}

#[test]
fn of_a_long_run_some_steps_are_compared_and_that_is_said() {
    let report = gathered(2000, 512);
    // Exact, whatever the sample.
    assert!(report.ranks.iter().all(|rank| rank.summary.num_comm_events == 2000));
    let op = &report.cross_rank.as_ref().unwrap().ops[0];
    assert!(op.matched >= 30 && op.matched <= 128, "{}", op.matched);
    assert_eq!(report.cross_rank.as_ref().unwrap().unmatched_events, 0);
    assert!((op.wait_ms / op.matched as f64 - 1.301).abs() < 1e-9);
    let said = report.warnings.iter().find(|warning| warning.contains("one step in")).expect("a statement");
    let stride: f64 = said.split("one step in ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    assert!((1000.0..4000.0).contains(&(stride * op.matched as f64)), "{said} {}", op.matched);
}

#[test]
fn samples_of_different_size_are_compared_where_both_have_the_step() {
    let parts = [summary(0, 1000, 1 << 14), summary(1, 1000, 512), summary(2, 1000, 2000)];
    let report = parts.into_iter().reduce(RunSummary::merge).unwrap().report(&AnalyzeOptions::default());
    let cross_rank = report.cross_rank.unwrap();
    assert_eq!(cross_rank.unmatched_events, 0);
    assert!(!cross_rank.ops[0].partial && cross_rank.ops[0].matched >= 30);
}

#[test]
fn figures_of_steps_are_limited_and_totals_are_not() {
    let mut summary = summary(0, 100, 1 << 14);
    summary.limit_steps(10);
    let report = summary.report(&AnalyzeOptions::default());
    assert_eq!((report.ranks[0].steps.len(), report.ranks[0].summary.num_comm_events), (10, 100));
    assert!(
        report.warnings.iter().any(|warning| warning.contains("first 10 steps")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn ranks_from_which_nothing_came_are_named() {
    let mut summary = summary(0, 10, 1 << 14).merge(summary(1, 10, 1 << 14));
    summary.missing.extend([2, 3, 4, 9]);
    let report = summary.report(&AnalyzeOptions::default());
    assert!(report.warnings.iter().any(|warning| warning.contains("2-4, 9")), "{:?}", report.warnings);
}

/// Some processes and some missing ranks. A process tells one thing of itself, so what it tells follows from who
/// it is.
fn arbitrary() -> impl Strategy<Value = RunSummary> {
    let process = |rank: u32| ProcessSummary {
        events: u64::from(rank) << 40,
        warnings: (0..rank % 3).map(|number| format!("Warning {number}.")).collect(),
        samples: vec![Sample { rank, stride: 1 << (rank % 5), record: vec![rank as u8; rank as usize] }],
        ..ProcessSummary::default()
    };
    (btree_set(0..20_u32, 0..6), btree_set(0..50_u32, 0..4)).prop_map(move |(ranks, missing)| RunSummary {
        processes: ranks.into_iter().map(|rank| (id(rank), process(rank))).collect(),
        missing,
    })
}

proptest! {
    #[test]
    fn merging_does_not_depend_on_order_or_grouping(a in arbitrary(), b in arbitrary(), c in arbitrary()) {
        let merge = RunSummary::merge;
        prop_assert_eq!(merge(merge(a.clone(), b.clone()), c.clone()), merge(a.clone(), merge(b.clone(), c)));
        prop_assert_eq!(merge(a.clone(), b.clone()), merge(b.clone(), a.clone()));
        prop_assert_eq!(merge(a.clone(), a.clone()), a.clone());
        prop_assert_eq!(merge(a.clone(), RunSummary::default()), a);
    }

    #[test]
    fn a_summary_arrives_as_it_was_sent(summary in arbitrary()) {
        let bytes = summary.to_bytes().unwrap();
        prop_assert_eq!(RunSummary::from_bytes(&bytes).unwrap(), summary);
    }

    #[test]
    fn damaged_bytes_are_an_error(summary in arbitrary(), cut in 0.0..1.0_f64, at in 0.0..1.0_f64, bit in 0..8_u8) {
        let bytes = summary.to_bytes().unwrap();
        let end = (cut * bytes.len() as f64) as usize;
        prop_assert!(RunSummary::from_bytes(&bytes[..end]).is_err());
        // A flipped bit may make another valid summary, but no panic.
        let mut flipped = bytes.clone();
        flipped[(at * bytes.len() as f64) as usize] ^= 1 << bit;
        let _ = RunSummary::from_bytes(&flipped);
    }
}

#[test]
fn something_else_is_no_summary() {
    for bytes in [&b""[..], b"CT", b"GIF89a..........................", &[0; 100]] {
        assert!(matches!(RunSummary::from_bytes(bytes), Err(SummaryError::Foreign)), "{bytes:?}");
    }
}

/// The ranks' own figures as they were, after the way over the wire.
#[test]
fn figures_survive_the_way() {
    let summary = summary(1, 30, 100);
    let arrived = RunSummary::from_bytes(&summary.to_bytes().unwrap()).unwrap();
    assert_eq!(arrived, summary);
    let process = arrived.processes.values().next().unwrap();
    assert_eq!(process.ranks[0].steps.len(), 30);
    assert!(process.samples[0].stride > 1 && process.samples[0].record.len() > 100);
}
