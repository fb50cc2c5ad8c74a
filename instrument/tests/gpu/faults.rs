//! What goes wrong on the GPU: each reason is in the report, the application gets its own results and
//! errors and no others, and the process ends in time.

use crate::support::{comm, recorded, timed, try_enqueue, untimed, work};
use commtrace_instrument::{GpuStream, Guard, comm_span, compute_span, init};
use commtrace_report::timeline::Timeline;
use cudarc::driver::{CudaContext, sys};
use double_support::{Run, finish, in_child, test_name};
use std::ffi::c_void;
use std::process::Command;
use std::time::{Duration, Instant};

/// Some training steps, whose result and errors it prints.
fn train() {
    train_with_pause(|| ());
}

/// The same with a pause after ten steps.
fn train_with_pause(pause: impl Fn()) {
    unsafe extern "C" fn add(sum: *mut c_void) {
        // SAFETY: the sum below, which lives until the stream was waited for.
        unsafe { *sum.cast::<f64>() += 0.1 };
    }
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let sum = Box::into_raw(Box::new(0.0_f64));
    for step in 0..40 {
        if step == 10 {
            pause();
        }
        let _forward = compute_span!("forward", stream = &stream).entered();
        let result = comm_span!("all_reduce", stream = &stream, bytes = 8_u64)
            .in_scope(|| try_enqueue(&stream, add, sum.cast()));
        if let Err(error) = result {
            println!("outcome: step {step}: {error:?}");
            break;
        }
        // Errors come when the work is done: without this, at which step would be chance.
        println!("outcome: after step {step}: {:?}", stream.synchronize());
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("outcome: {:?}", context.synchronize());
    println!("outcome: {:?}", context.check_err());
    // SAFETY: nothing runs any more.
    println!("outcome: {:x}", unsafe { *sum }.to_bits());
}

fn results(run: &Run) -> Vec<&str> {
    run.stdout.lines().filter_map(|line| line.split_once("outcome: ").map(|(_, result)| result)).collect()
}

/// Trains with a fault, traced and not, and compares what the application saw.
fn train_with_fault(test: &str, variables: &[(&str, &str)]) -> Option<(Run, Timeline)> {
    train_with_fault_and_pause(test, variables, |_| ())
}

/// The same with a pause after ten steps of the traced run.
fn train_with_fault_and_pause(
    test: &str,
    variables: &[(&str, &str)],
    pause: impl Fn(&Guard),
) -> Option<(Run, Timeline)> {
    let (traced, timeline) = recorded(test, variables, |guard| train_with_pause(|| pause(&guard)))?;
    let body = || {
        let _off = init().unwrap();
        train();
    };
    let plain = in_child(test, variables, body)?;
    assert_eq!(results(&traced), results(&plain));
    assert!(results(&plain).len() > 2, "{}", plain.stdout);
    assert_eq!(traced.counts.synchronizing(), plain.counts.synchronizing());
    assert!(traced.took < plain.took + Duration::from_secs(30), "{:?}", traced.took);
    Some((traced, timeline))
}

#[test]
fn a_sticky_error_is_the_applications_and_the_reason() {
    let test = test_name!();
    let variables = [("DOUBLE_CUDA_STICKY", "illegal_address:launches:15")];
    // Until the first spans have their time, which a busy machine may take longer for than the steps take.
    let pause = |guard: &Guard| {
        let until = Instant::now() + Duration::from_secs(20);
        while guard.stats().recorded == 0 && Instant::now() < until {
            guard.flush();
        }
    };
    let Some((_, timeline)) = train_with_fault_and_pause(test, &variables, pause) else { return };
    let untimed = untimed(&timeline);
    assert_eq!(untimed.keys().copied().collect::<Vec<_>>(), ["illegal address"]);
    let bytes: u64 = timeline.tracks.iter().map(|track| track.untimed.bytes).sum();
    assert_eq!(bytes, untimed["illegal address"] * 8);
    assert!(timed(&timeline) > 0, "what had finished before has its time");
}

#[test]
fn a_lost_device_is_the_reason() {
    let test = test_name!();
    let variables = [("DOUBLE_CUDA_STICKY", "device_lost:launches:1")];
    let Some((_, timeline)) = train_with_fault(test, &variables) else { return };
    assert_eq!(untimed(&timeline).keys().copied().collect::<Vec<_>>(), ["device lost"]);
}

#[test]
fn events_that_never_happen_cost_their_spans_and_no_others() {
    let test = test_name!();
    let variables = [("DOUBLE_CUDA_STUCK_EVENTS", "60..62")];
    let Some((run, timeline)) = train_with_fault(test, &variables) else { return };
    let untimed: u64 = untimed(&timeline).values().sum();
    assert!(untimed <= 2, "{untimed}");
    assert_eq!(timed(&timeline) as u64 + untimed, 40);
    assert!(run.stderr.contains("had not finished"), "{}", run.stderr);
}

#[test]
fn a_gpu_that_hangs_does_not_hang_the_end() {
    let test = test_name!();
    let Some((run, timeline)) = train_with_fault(test, &[("DOUBLE_CUDA_STUCK_EVENTS", "1..")]) else {
        return;
    };
    assert_eq!((timed(&timeline), untimed(&timeline)), (0, [("no device clock", 40)].into()));
    assert!(run.stderr.contains("had not finished"), "{}", run.stderr);
}

#[test]
fn an_exhausted_pool_is_the_reason_and_is_used_again() {
    let test = test_name!();
    let Some((run, timeline)) = recorded(test, &[("COMMTRACE_EVENTS", "4")], |guard| {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        for _ in 0..2 {
            work(&stream, 200);
            for _ in 0..10 {
                comm_span!("all_reduce", stream = &stream, bytes = 3_u64).in_scope(|| ());
            }
            context.synchronize().unwrap();
            assert!(guard.flush());
        }
        let stats = guard.stats();
        assert_eq!((stats.recorded, stats.untimed, stats.dropped), (4, 16, 0));
    }) else {
        return;
    };
    assert_eq!((timed(&timeline), untimed(&timeline)), (4, [("pool exhausted", 16)].into()));
    // The pool's, and those of the clock.
    assert!(run.counts.of("cuEventCreate") <= 4 + 70, "{:?}", run.counts);
}

#[test]
fn a_context_that_is_destroyed_before_the_guard_is_the_reason() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |guard| {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        // SAFETY: what happens when this is broken is what is tested, on a driver that finds it out.
        let raw = unsafe { GpuStream::from_raw(context.cu_ctx().cast(), stream.cu_stream().cast()) };
        comm_span!("before", stream = &raw).in_scope(|| ());
        context.synchronize().unwrap();
        assert!(guard.flush());
        work(&stream, 100);
        comm_span!("all_reduce", stream = &raw).in_scope(|| ());
        // SAFETY: resets the device, as `cudaDeviceReset` does.
        unsafe { sys::cuDevicePrimaryCtxReset_v2(0).result().unwrap() };
        comm_span!("all_reduce", stream = &raw).in_scope(|| ());
        std::mem::forget((context, stream));
    }) else {
        return;
    };
    assert_eq!(comm(&timeline)["before"].len(), 1);
    assert_eq!(untimed(&timeline), [("context destroyed", 2)].into());
}

#[test]
fn a_stream_of_another_context_is_the_reason() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |_guard| {
        let contexts = [0, 1].map(|device| CudaContext::new(device).unwrap());
        let stream = contexts[1].new_stream().unwrap();
        // SAFETY: as above.
        let raw = unsafe { GpuStream::from_raw(contexts[0].cu_ctx().cast(), stream.cu_stream().cast()) };
        comm_span!("all_reduce", stream = &raw).in_scope(|| ());
        comm_span!("broadcast", stream = &stream).in_scope(|| ());
    }) else {
        return;
    };
    assert_eq!(untimed(&timeline), [("destroyed or of another context", 1)].into());
    assert_eq!(comm(&timeline)["broadcast"].len(), 1);
}

#[test]
fn a_stream_that_is_gone_when_its_span_is_entered_is_the_reason() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |_guard| {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let span = comm_span!("all_reduce", stream = &stream);
        drop(stream);
        span.in_scope(|| ());
    }) else {
        return;
    };
    assert_eq!(untimed(&timeline), [("stream destroyed", 1)].into());
}

#[test]
fn an_older_driver_without_newer_symbols_is_enough() {
    let test = test_name!();
    let missing = "cuEventElapsedTime_v2,cuThreadExchangeStreamCaptureMode,cuStreamIsCapturing";
    let Some((_, timeline)) = recorded(test, &[("DOUBLE_CUDA_MISSING", missing)], |_guard| {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        comm_span!("all_reduce", stream = &stream).in_scope(|| work(&stream, 5));
    }) else {
        return;
    };
    let all_reduce = comm(&timeline)["all_reduce"][0];
    assert!(all_reduce.end_ns - all_reduce.start_ns >= 5_000_000);
}

/// What is said once, whatever the number of spans.
fn off_once(stderr: &str) -> bool {
    stderr.matches("GPU timing is off").count() == 1
}

#[test]
fn a_driver_without_what_timing_needs_leaves_the_host_clock() {
    let test = test_name!();
    let Some((run, timeline)) = recorded(test, &[("DOUBLE_CUDA_MISSING", "cuEventQuery")], |_guard| {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        for _ in 0..3 {
            comm_span!("all_reduce", stream = &stream).in_scope(|| work(&stream, 1));
        }
    }) else {
        return;
    };
    assert_eq!(timeline.tracks[0].device, None);
    assert_eq!(timed(&timeline), 3);
    assert!(off_once(&run.stderr) && run.stderr.contains("cuEventQuery"), "{}", run.stderr);
}

#[test]
fn without_a_driver_spans_are_timed_by_the_host_and_that_is_said_once() {
    const CHILD: &str = "COMMTRACE_TEST_NO_DRIVER";
    if std::env::var_os(CHILD).is_some() {
        let guard = init().unwrap();
        let none: Option<GpuStream> = None;
        for _ in 0..3 {
            compute_span!("forward", stream = &none).in_scope(|| ());
            comm_span!("all_reduce", stream = &none).in_scope(|| ());
        }
        let report = guard.into_report().unwrap();
        assert_eq!((report.ranks[0].device, report.ranks[0].summary.num_comm_events), (None, 3));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test_name!(), "--nocapture"])
        .env(CHILD, "1")
        .env("COMMTRACE_DIR", folder.path());
    let finished = finish(&mut command, Duration::from_secs(60)).unwrap();
    assert!(finished.status.is_some_and(|status| status.success()), "{}", finished.stderr);
    // Where there is a driver, there is nothing to say.
    // SAFETY: nothing but the driver has this name.
    let driver = unsafe { libloading::Library::new("libcuda.so.1") }.is_ok();
    assert!(driver || off_once(&finished.stderr), "{}", finished.stderr);
}
