//! What tracing-chrome records is read: spans of ours by their fields, others by patterns.

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::timeline::Timeline;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use tracing::info_span;
use tracing_chrome::{ChromeLayerBuilder, TraceStyle};
use tracing_subscriber::prelude::*;

fn work() {
    sleep(Duration::from_millis(1));
}

/// Two steps: compute, an all-reduce of ours after it, and an exchange of the application beside nothing.
fn record(path: &Path, style: TraceStyle) {
    let (layer, guard) = ChromeLayerBuilder::new().file(path).include_args(true).trace_style(style).build();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0_u64..2 {
            let _step = info_span!(target: "commtrace", "step", commtrace.kind = "step", step).entered();
            info_span!(target: "commtrace", "compute", commtrace.kind = "compute", label = "forward")
                .in_scope(work);
            let (op, comm, bytes) = ("all_reduce", "world", 4096_u64);
            info_span!(target: "commtrace", "comm", commtrace.kind = "comm", op, bytes, comm, seq = step)
                .in_scope(work);
            info_span!(target: "app", "exchange_halo", bytes = 10).in_scope(|| {
                info_span!(target: "app", "pack").in_scope(work);
            });
        }
    });
    drop(guard);
}

fn load(path: &Path, options: &ReadOptions) -> Timeline {
    read(&[path.to_owned()], options).unwrap()
}

#[test]
fn both_styles_of_tracing_chrome() {
    for style in [TraceStyle::Threaded, TraceStyle::Async] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        record(&path, style);

        let timeline = load(&path, &ReadOptions::default());
        assert_eq!(timeline.inputs[0].format, "chrome-trace");
        let [track] = &timeline.tracks[..] else { panic!("{} tracks", timeline.tracks.len()) };
        let text = |sym| timeline.names.get(sym);
        let steps: Vec<i64> = track.steps.iter().map(|step| step.step).collect();
        assert_eq!(steps, [0, 1]);
        let compute: Vec<&str> = track.compute.iter().map(|compute| text(compute.name)).collect();
        assert_eq!(compute, ["forward", "forward"]);
        for comm in track.comm.iter() {
            assert_eq!((text(comm.op), comm.bytes), ("all_reduce", Some(4096)));
            assert_eq!(comm.comm.map(text), Some("world"));
            assert!(comm.end_ns - comm.start_ns >= 1_000_000);
        }
        let numbers: Vec<Option<u64>> = track.comm.iter().map(|comm| comm.seq).collect();
        assert_eq!(numbers, [Some(0), Some(1)]);
        let report = analyze(&timeline, &AnalyzeOptions::default());
        assert_eq!(report.ranks[0].summary.overlap_time, Some(0.0));

        let options = ReadOptions {
            comm_patterns: vec!["halo=^exchange_".parse().unwrap()],
            compute_pattern: Some("^pack$".into()),
            ..ReadOptions::default()
        };
        let timeline = load(&path, &options);
        let report = analyze(&timeline, &AnalyzeOptions::default());
        let ops: Vec<(&String, u64)> =
            report.ranks[0].summary.by_op.iter().map(|(op, sums)| (op, sums.count)).collect();
        assert_eq!(ops, [(&"all_reduce".to_owned(), 2), (&"halo".to_owned(), 2)]);
        // Packing lies within the exchange.
        assert!(report.ranks[0].summary.overlap_time >= Some(2.0));
    }
}
