//! A million spans.

use crate::support::recorded_within;
use commtrace_instrument::{comm_span, compute_span};
use cudarc::driver::CudaContext;
use double_support::test_name;
use std::time::Duration;

const THREADS: u64 = 4;
const SPANS: u64 = 1_000_000;

/// How long they may take, unoptimized and on a machine that is busy with others.
const LIMIT: Duration = Duration::from_secs(900);

/// Resident memory of this process, in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn a_million_spans_over_four_streams_stay_in_bounds_and_are_all_accounted_for() {
    let test = test_name!();
    let events = 4096;
    let variables = [("COMMTRACE_EVENTS", &*events.to_string()), ("COMMTRACE_FLUSH_MS", "200")];
    let Some((run, timeline)) = recorded_within(LIMIT, test, &variables, |guard| {
        let context = CudaContext::new(0).unwrap();
        let emit = |spans: u64| {
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    let stream = context.new_stream().unwrap();
                    scope.spawn(move || {
                        for span in 0..spans / THREADS {
                            if span % 2 == 0 {
                                comm_span!("all_reduce", stream = &stream, bytes = 1_u64).in_scope(|| ());
                            } else {
                                compute_span!("forward", stream = &stream).in_scope(|| ());
                            }
                        }
                    });
                }
            });
        };
        let settle = || {
            context.synchronize().unwrap();
            guard.flush();
        };
        emit(SPANS / 4);
        settle();
        let before = resident_mib();
        emit(SPANS - SPANS / 4);
        settle();
        let grown = resident_mib().saturating_sub(before);
        assert!(grown < 64, "grown by {grown} MiB");
        let stats = guard.stats();
        println!("{stats:?}, {grown} MiB more");
        assert_eq!(stats.recorded + stats.untimed + stats.dropped, SPANS, "{stats:?}");
        assert!(stats.recorded > 0);
    }) else {
        return;
    };
    println!("{}", run.stdout);
    assert!(run.counts.of("cuEventCreate") <= events + 70, "{:?}", run.counts);
    assert!(!timeline.tracks.is_empty());
}
