//! What counts as hidden: communication beside compute, not communication inside it.

use commtrace::collectives::Result;
use commtrace::prelude::*;
use commtrace::report::analyze::{Report, Summary};
use commtrace::{Config, Mode};
use std::thread;
use std::time::{Duration, Instant};
use tracing_subscriber::layer::SubscriberExt;

/// Records `rank` on two ranks.
fn record(rank: impl Fn(LocalComm) -> Result<()> + Sync) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let (layer, guard) = Config::default().mode(Mode::Directory(folder.path().into())).layer().unwrap();
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    // A rank's communication thread records where the rank's thread does.
    let results = tracing::dispatcher::with_default(&dispatch, || {
        LocalComm::run(2, |comm| tracing::dispatcher::with_default(&dispatch, || rank(comm)))
    });
    results.into_iter().collect::<Result<Vec<()>>>().unwrap();
    guard.into_report().unwrap()
}

fn summaries(report: &Report) -> Vec<&Summary> {
    assert_eq!(report.ranks.len(), 2);
    report.ranks.iter().map(|rank| &rank.summary).collect()
}

/// Computes until `done`.
fn compute_until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() && start.elapsed() < Duration::from_secs(60) {
        std::hint::black_box((0..1000).fold(0_u64, |sum, value| sum ^ value));
    }
}

/// Rank 1 comes later, so that rank 0's call lasts.
const LATE: Duration = Duration::from_millis(30);

#[test]
fn a_blocking_call_inside_a_compute_span_is_exposed() {
    let report = record(|comm| {
        let _backward = compute_span!("backward").entered();
        if comm.rank() == 1 {
            thread::sleep(LATE);
        }
        comm.all_reduce_in_place(&mut [1.0_f32; 1 << 16], &ReduceOp::Sum)
    });
    for summary in summaries(&report) {
        assert_eq!(summary.num_comm_events, 1);
        assert_eq!(summary.overlap_time, Some(0.0));
        assert_eq!(summary.exposed_comm_time, Some(summary.total_comm_time));
    }
    assert!(report.ranks[0].summary.exposed_comm_time >= Some(25.0), "{:?}", report.ranks[0].summary);
    // The rest of the span is compute still.
    assert!(report.ranks[1].wall.unwrap().compute_ms >= 25.0, "{:?}", report.ranks[1].wall);
}

#[test]
fn the_same_call_beside_compute_is_hidden() {
    let report = record(|comm| {
        let backward = compute_span!("backward").entered();
        if comm.rank() == 1 {
            thread::sleep(LATE);
        }
        let pending = comm.all_reduce_in_place_async(vec![1.0_f32; 1 << 16], &ReduceOp::Sum);
        compute_until(|| pending.is_finished());
        drop(backward);
        assert_eq!(pending.wait()?, vec![2.0; 1 << 16]);
        Ok(())
    });
    for summary in summaries(&report) {
        assert_eq!(summary.num_comm_events, 1);
        assert_eq!(summary.exposed_comm_time, Some(0.0), "{summary:?}");
        assert_eq!(summary.overlap_time, Some(summary.total_comm_time));
    }
    assert!(report.ranks[0].summary.overlap_time >= Some(25.0), "{:?}", report.ranks[0].summary);
}

#[test]
fn a_non_blocking_call_that_is_waited_for_at_once_is_exposed() {
    let report = record(|comm| {
        compute_span!("backward").in_scope(|| thread::sleep(Duration::from_millis(2)));
        comm.all_reduce_in_place_async(vec![1.0_f32; 1 << 16], &ReduceOp::Sum).wait()?;
        Ok(())
    });
    for summary in summaries(&report) {
        assert_eq!(summary.num_comm_events, 1);
        assert_eq!(summary.overlap_time, Some(0.0));
    }
}

#[test]
fn summary_mode_tells_the_same_as_records() {
    let (layer, guard) = Config::default().mode(Mode::Summary).layer().unwrap();
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    tracing::dispatcher::with_default(&dispatch, || {
        LocalComm::run(2, |comm| {
            tracing::dispatcher::with_default(&dispatch, || {
                for step in 0..6 {
                    let _step = step_span!(step).entered();
                    let backward = compute_span!("backward").entered();
                    if comm.rank() == 1 {
                        thread::sleep(LATE);
                    }
                    drop(backward);
                    comm.all_reduce_in_place(&mut [1.0_f32; 256], &ReduceOp::Sum).unwrap();
                }
            });
        });
    });
    let report = guard.into_report().unwrap();
    for summary in summaries(&report) {
        assert_eq!(summary.num_comm_events, 6);
        assert_eq!(summary.overlap_time, Some(0.0));
        assert_eq!(summary.by_op["all_reduce"].bytes, Some(6 * 1024));
    }
    assert!(report.ranks[0].summary.exposed_comm_time > report.ranks[1].summary.exposed_comm_time);
    let priority = report.hotspots.priority.unwrap();
    assert!(priority.evidence.rank_imbalance_observed);
    assert_eq!(report.mitigation.strategy.as_str(), "rebalance_ranks_or_experts");
}
