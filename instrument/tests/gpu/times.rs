//! When the work ran, beside the stand-in's own log of it.

use crate::support::{comm, compute, recorded, work};
use commtrace_instrument::{Config, GpuGroup, GpuStream, comm_span, compute_span, init, step_span};
use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::timeline::Timeline;
use cudarc::driver::{CudaContext, CudaStream};
use double_support::{Piece, Run, in_child, test_name};
use std::sync::Arc;

/// Of what a figure may differ from the log: 0.1 ms, or 1 %.
fn agrees(reported_ns: i64, logged_ns: i64) -> bool {
    (reported_ns - logged_ns).abs() <= 100_000.max(logged_ns.abs() / 100)
}

/// A step of training: 40 ms of compute, and communication that begins 15 ms into it and takes 40 ms.
fn step(compute: &Arc<CudaStream>, comm: &Arc<CudaStream>) {
    {
        let _forward = compute_span!("forward", stream = compute).entered();
        work(compute, 25);
        work(compute, 15);
    }
    work(comm, 15);
    {
        let _all_reduce = comm_span!("all_reduce", stream = comm, bytes = 1_u64 << 20).entered();
        work(comm, 40);
    }
    compute.context().synchronize().unwrap();
}

fn train() {
    let context = CudaContext::new(0).unwrap();
    let (compute, comm) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    for number in 0..5 {
        let _step = step_span!(number).entered();
        step(&compute, &comm);
    }
}

/// The host functions of each step, of the compute stream (two a step) and the other.
fn logged(run: &Run) -> Vec<([&Piece; 2], [&Piece; 2])> {
    let host: Vec<&Piece> = run.pieces.iter().filter(|piece| piece.kind == "host").collect();
    let streams: Vec<u64> = {
        let mut streams: Vec<u64> = host.iter().map(|piece| piece.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    };
    let of = |stream| -> Vec<&Piece> { host.iter().copied().filter(|p| p.stream == stream).collect() };
    let [one, other] = streams[..] else { panic!("{streams:?}") };
    // The compute stream was made first and has the lower handle; its pieces take 25 and 15 ms.
    let (compute, comm) = (of(one), of(other));
    let (compute, comm) =
        if compute[0].duration_ns() > comm[0].duration_ns() { (compute, comm) } else { (comm, compute) };
    compute.chunks(2).zip(comm.chunks(2)).map(|(a, b)| ([a[0], a[1]], [b[0], b[1]])).collect()
}

/// Runs that may differ from the log because the machine was busy: between a piece of work and the event behind it
/// the stand-in's thread may have to wait for a processor, as a GPU does not.
const ATTEMPTS: usize = 10;

#[test]
fn overlap_and_exposed_time_agree_with_what_ran() {
    let test = test_name!();
    let mut differences = Vec::new();
    while differences.len() < ATTEMPTS {
        let Some((run, timeline)) = recorded(test, &[("DOUBLE_CUDA_DRIFT_PPM", "50")], |_guard| train())
        else {
            return;
        };
        match difference(&run, &timeline) {
            None => return,
            Some(difference) => differences.push(difference),
        }
    }
    panic!("no run agreed with its log: {differences:#?}");
}

/// What does not agree with the log.
fn difference(run: &Run, timeline: &Timeline) -> Option<String> {
    let steps = logged(run);
    assert_eq!(steps.len(), 5);
    let (mut overlap, mut exposed) = (0, 0);
    for ([first, last], [_, all_reduce]) in &steps {
        let both = last.end_ns.min(all_reduce.end_ns) - first.start_ns.max(all_reduce.start_ns);
        overlap += both.max(0);
        exposed += all_reduce.duration_ns() - both.max(0);
    }
    let report = analyze(timeline, &AnalyzeOptions::default());
    let rank = report.ranks.iter().find(|rank| rank.device == Some(0)).expect("the device's track");
    assert_eq!(rank.steps.len(), 5);
    let ns = |milliseconds: f64| (milliseconds * 1e6) as i64;
    let summary = &rank.summary;
    let reported = (ns(summary.overlap_time.unwrap()), ns(summary.exposed_comm_time.unwrap()));
    if !agrees(reported.0, overlap) || !agrees(reported.1, exposed) {
        return Some(format!("overlap and exposed time {reported:?}, logged {:?}", (overlap, exposed)));
    }
    let (forward, all_reduce) = (&compute(timeline)["forward"], &comm(timeline)["all_reduce"]);
    for (([first, last], [_, comm]), (forward, all_reduce)) in
        steps.iter().zip(forward.iter().zip(all_reduce))
    {
        assert_eq!(forward.step, all_reduce.step);
        let pairs = [
            (forward.start_ns, first.start_ns),
            (forward.end_ns, last.end_ns),
            (all_reduce.start_ns, comm.start_ns),
            (all_reduce.end_ns, comm.end_ns),
        ];
        if let Some((reported, logged)) =
            pairs.iter().find(|(reported, logged)| (reported - logged).abs() > 100_000)
        {
            return Some(format!("{} µs beside the log", (reported - logged) / 1_000));
        }
    }
    None
}

#[test]
fn tracing_adds_no_synchronization() {
    let test = test_name!();
    let body = || {
        let _guard = init().unwrap();
        train();
    };
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let Some(traced) = in_child(test, &[("COMMTRACE_DIR", directory)], body) else { return };
    let plain = in_child(test, &[], body).expect("the parent");
    assert!(traced.counts.of("cuEventRecord") >= 20, "{:?}", traced.counts);
    assert_eq!(plain.counts.of("cuEventRecord"), 0, "{:?}", plain.counts);
    assert_eq!(traced.counts.synchronizing(), plain.counts.synchronizing());
}

#[test]
fn communication_nested_in_compute_of_its_stream_is_cut_out() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |_guard| {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let _backward = compute_span!("backward", stream = &stream).entered();
        work(&stream, 10);
        comm_span!("all_reduce", stream = &stream).in_scope(|| work(&stream, 20));
        work(&stream, 10);
    }) else {
        return;
    };
    let (backward, all_reduce) = (&compute(&timeline)["backward"], comm(&timeline)["all_reduce"][0]);
    assert_eq!(backward.len(), 2);
    assert_eq!((backward[0].end_ns, backward[1].start_ns), (all_reduce.start_ns, all_reduce.end_ns));
    let report = analyze(&timeline, &AnalyzeOptions::default());
    assert_eq!(report.ranks[0].summary.overlap_time, Some(0.0));
}

#[test]
fn calls_of_a_group_share_its_interval_by_their_bytes() {
    let test = test_name!();
    let Some((run, timeline)) = recorded(test, &[], |guard| {
        let context = CudaContext::new(0).unwrap();
        let stream = GpuStream::new(&context.new_stream().unwrap()).named("comm");
        let raw = context.new_stream().unwrap();
        let mut group = GpuGroup::new();
        let calls = [("all_reduce", 3_000_u64), ("broadcast", 1_000)].map(|(op, bytes)| {
            let span = comm_span!("call", stream = &stream, op = op, bytes = bytes);
            group.add(&span);
            // Others may want to see it; it has no time of its own.
            span.in_scope(|| ());
            span
        });
        group.add(&comm_span!("send", stream = &raw, bytes = 5_u64));
        // A span of the host takes no part.
        let host = comm_span!("recv", bytes = 1_u64);
        group.add(&host);
        host.in_scope(|| ());
        group.begin();
        work(&raw, 30);
        group.end();
        drop(calls);
        context.synchronize().unwrap();
        // A group that could not be launched.
        let mut failed = GpuGroup::new();
        failed.add(&comm_span!("reduce", stream = &stream));
        failed.begin();
        drop(failed);
        let stats = {
            guard.flush();
            guard.stats()
        };
        assert_eq!((stats.recorded, stats.untimed, stats.dropped), (4, 0, 0));
    }) else {
        return;
    };
    let comm = comm(&timeline);
    let (all_reduce, broadcast, send) = (comm["all_reduce"][0], comm["broadcast"][0], comm["send"][0]);
    assert_eq!(all_reduce.end_ns, broadcast.start_ns);
    let whole = broadcast.end_ns - all_reduce.start_ns;
    assert!((all_reduce.end_ns - all_reduce.start_ns - whole * 3 / 4).abs() <= 1);
    let piece = run.pieces.iter().find(|piece| piece.kind == "host").expect("the work");
    // Lengths are exact; where they lie is as good as the clocks could be tied on a busy machine.
    assert!(send.start_ns < piece.end_ns && send.end_ns > piece.start_ns);
    assert!(send.end_ns - send.start_ns >= piece.end_ns - piece.start_ns - 100_000);
    assert!(!comm.contains_key("reduce"));
    assert!(comm["recv"][0].stream.is_none());
}

#[test]
fn a_summary_in_bounded_memory_has_the_same_figures() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[("COMMTRACE_FLUSH_MS", "20")], |guard| {
        let (layer, summary) = Config::default()
            .mode(commtrace_instrument::Mode::Summary)
            .flush_interval(std::time::Duration::from_millis(20))
            .layer()
            .unwrap();
        use tracing_subscriber::layer::SubscriberExt;
        let context = CudaContext::new(0).unwrap();
        let (compute, comm) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        step(&compute, &comm);
        // The same work once more for a recorder that keeps running totals only.
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for _ in 0..5 {
                step(&compute, &comm);
            }
        });
        let report = summary.into_report().expect("this process reports");
        let totals = &report.ranks[0].summary;
        assert_eq!(report.ranks[0].device, Some(0));
        assert_eq!(totals.num_comm_events, 5);
        // 25 of 40 ms are hidden, but for delays of a busy machine.
        let (overlap, total) = (totals.overlap_time.unwrap(), totals.total_comm_time);
        assert!(total >= 200.0 && overlap > 0.0 && overlap < total, "{overlap} of {total}");
        assert!(
            !report.warnings.iter().any(|warning| warning.contains("looks back")),
            "{:?}",
            report.warnings
        );
        drop(guard);
    }) else {
        return;
    };
    assert_eq!(comm(&timeline)["all_reduce"].len(), 1);
}
