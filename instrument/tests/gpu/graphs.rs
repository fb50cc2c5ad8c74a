//! Graph capture goes on as if nobody watched.

use crate::support::{comm, enqueue, recorded, timed, untimed, work};
use commtrace_instrument::{comm_span, compute_span, init};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream};
use double_support::{in_child, test_name};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

fn end_capture(stream: &Arc<CudaStream>) -> CudaGraph {
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    stream.end_capture(flags).expect("the capture survives").expect("it has nodes")
}

/// Counts its runs at the address that it is given.
unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the tests pass a static counter.
    unsafe { &*counter.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

fn counted(stream: &CudaStream, counter: &'static AtomicU64) {
    enqueue(stream, count, std::ptr::from_ref(counter).cast_mut().cast());
}

#[test]
fn spans_inside_a_capture_have_no_time_and_leave_the_graph_as_it_is() {
    let test = test_name!();
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let Some((_, timeline)) = recorded(test, &[], |guard| {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        comm_span!("before", stream = &stream, bytes = 10_u64).in_scope(|| counted(&stream, &RUNS));
        let across = comm_span!("into", stream = &stream, bytes = 1_u64).entered();
        stream.begin_capture(GLOBAL).unwrap();
        drop(across);
        comm_span!("inside", stream = &stream, bytes = 100_u64).in_scope(|| counted(&stream, &RUNS));
        compute_span!("inside", stream = &stream).in_scope(|| counted(&stream, &RUNS));
        let across = comm_span!("out", stream = &stream, bytes = 1_000_u64).entered();
        let graph = end_capture(&stream);
        drop(across);
        comm_span!("replay", stream = &stream, bytes = 10_000_u64).in_scope(|| graph.launch().unwrap());
        context.synchronize().unwrap();
        assert_eq!(RUNS.load(Ordering::SeqCst), 3);
        guard.flush();
        let stats = guard.stats();
        assert_eq!((stats.recorded, stats.untimed, stats.dropped), (2, 4, 0));
    }) else {
        return;
    };
    assert_eq!(comm(&timeline).keys().copied().collect::<Vec<_>>(), ["before", "replay"]);
    assert_eq!(untimed(&timeline), [("captured", 3)].into());
    let bytes: u64 = timeline.tracks.iter().map(|track| track.untimed.bytes).sum();
    assert_eq!(bytes, 1_101);
    let warnings = timeline.warnings.join("\n");
    assert!(warnings.contains("captured: 1"), "{warnings}");
}

/// One thread captures in global mode, in which any query of an event from a thread that is not
/// exempt breaks the capture, while another's spans are being resolved.
#[test]
fn a_capture_in_global_mode_survives_while_spans_of_another_thread_resolve() {
    let test = test_name!();
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let body = || {
        let guard = init().unwrap();
        let context = CudaContext::new(0).unwrap();
        let (busy, captured) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    comm_span!("all_reduce", stream = &busy).in_scope(|| work(&busy, 1));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            for _ in 0..5 {
                let before = guard.stats().recorded;
                captured.begin_capture(GLOBAL).unwrap();
                counted(&captured, &RUNS);
                if guard.is_on() {
                    // Until spans were resolved during this very capture.
                    let until = std::time::Instant::now() + Duration::from_secs(60);
                    while guard.stats().recorded < before + 20 && std::time::Instant::now() < until {
                        guard.flush();
                    }
                    assert!(guard.stats().recorded >= before + 20);
                }
                let graph = end_capture(&captured);
                graph.launch().unwrap();
            }
            stop.store(true, Ordering::SeqCst);
        });
        context.synchronize().unwrap();
        assert_eq!(RUNS.load(Ordering::SeqCst), 5);
    };
    let folder = tempfile::tempdir().unwrap();
    in_child(test, &[("COMMTRACE_DIR", folder.path().to_str().unwrap())], body);
}

#[test]
fn a_span_on_the_default_stream_does_not_break_the_capture_of_a_blocking_one() {
    let test = test_name!();
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let Some((_, timeline)) = recorded(test, &[], |_guard| {
        let context = CudaContext::new(0).unwrap();
        let (default, blocking) = (context.default_stream(), context.per_thread_stream());
        comm_span!("before", stream = &default).in_scope(|| counted(&default, &RUNS));
        blocking.begin_capture(GLOBAL).unwrap();
        // The application enqueues nothing there: that would break its capture.
        comm_span!("meanwhile", stream = &default).in_scope(|| ());
        counted(&blocking, &RUNS);
        let graph = end_capture(&blocking);
        graph.launch().unwrap();
        context.synchronize().unwrap();
        assert_eq!(RUNS.load(Ordering::SeqCst), 2);
    }) else {
        return;
    };
    assert_eq!((timed(&timeline), untimed(&timeline)), (1, [("captured", 1)].into()));
}
