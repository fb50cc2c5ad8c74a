//! Streams, events and memory of the stand-in driver, through cudarc as an application uses it.

use crate::common::{Gate, of_kind, sleep};
use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
use cudarc::driver::{CudaContext, CudaStream, sys};
use double_support::{Counts, Piece, in_child, test_name};
use std::sync::Arc;

#[test]
fn devices_are_described() {
    let Some(run) = in_child(test_name!(), &[("DOUBLE_CUDA_DEVICES", "3")], || {
        assert_eq!(CudaContext::device_count().unwrap(), 3);
        let context = CudaContext::new(2).unwrap();
        assert_eq!(context.name().unwrap(), "commtrace stand-in device");
        assert_eq!(context.compute_capability().unwrap(), (9, 0));
        assert_ne!(context.uuid().unwrap().bytes, CudaContext::new(1).unwrap().uuid().unwrap().bytes);
        assert!(context.has_async_alloc());
        assert!(CudaContext::new(3).is_err());
    }) else {
        return;
    };
    assert_eq!(run.counts.synchronizing().len(), 0);
}

#[test]
fn memory_goes_there_and_back() {
    in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let sent: Vec<f32> = (0..10_000).map(|x| x as f32).collect();
        let there = stream.clone_htod(&sent).unwrap();
        let copy = stream.clone_dtod(&there).unwrap();
        drop(there);
        assert_eq!(stream.clone_dtoh(&copy).unwrap(), sent);
        let other = CudaContext::new(1).unwrap().new_stream().unwrap();
        let across = other.clone_dtod(&copy).unwrap();
        assert_eq!(other.clone_dtoh(&across).unwrap(), sent);
        let zeros = stream.alloc_zeros::<u8>(5).unwrap();
        assert_eq!(stream.clone_dtoh(&zeros).unwrap(), [0; 5]);
        let (free, total) = context.mem_get_info().unwrap();
        assert!(free < total);
    });
}

#[test]
fn a_stream_keeps_order_and_streams_overlap() {
    let Some(run) = in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let (a, b) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        // While the gate is closed, the other stream works.
        let gate = Gate::on(&a);
        sleep(&a, 20);
        sleep(&a, 20);
        sleep(&b, 20);
        b.synchronize().unwrap();
        gate.open();
        context.synchronize().unwrap();
    }) else {
        return;
    };
    let pieces = of_kind(&run.pieces, "host");
    let other = pieces.iter().find(|piece| pieces.iter().filter(|p| p.stream == piece.stream).count() == 1);
    let other = other.expect("one stream has one piece");
    let first: Vec<_> = pieces.iter().filter(|piece| piece.stream != other.stream).collect();
    assert_eq!(first.len(), 3);
    assert!(first.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns), "{first:?}");
    assert!(other.start_ns < first[2].end_ns && first[0].start_ns < other.end_ns, "{pieces:?}");
    assert!(pieces.iter().all(|piece| piece.duration_ns() >= 20_000_000), "{pieces:?}");
}

#[test]
fn elapsed_time_is_that_of_the_log_but_for_the_drift() {
    let variables = [("DOUBLE_CUDA_DRIFT_PPM", "10000")];
    let Some(run) = in_child(test_name!(), &variables, || {
        for device in 0..2 {
            let context = CudaContext::new(device).unwrap();
            let stream = context.new_stream().unwrap();
            let gate = Gate::on(&stream);
            let start = stream.record_event(Some(CU_EVENT_DEFAULT)).unwrap();
            sleep(&stream, 100);
            let end = stream.record_event(Some(CU_EVENT_DEFAULT)).unwrap();
            gate.open();
            println!("elapsed {}", start.elapsed_ms(&end).unwrap());
        }
    }) else {
        return;
    };
    let elapsed: Vec<f64> =
        run.stdout.lines().filter_map(|line| line.split("elapsed ").nth(1)?.parse().ok()).collect();
    let logged: Vec<f64> = of_kind(&run.pieces, "host")
        .iter()
        .skip(1)
        .step_by(2)
        .map(|p| p.duration_ns() as f64 * 1e-6)
        .collect();
    assert_eq!((elapsed.len(), logged.len()), (2, 2), "{}", run.stdout);
    // Device 0 runs 1 % fast, device 1 slow; f32 holds these milliseconds to 1e-5.
    assert!((elapsed[0] - logged[0] * 1.01).abs() < 1e-3, "{elapsed:?} {logged:?}");
    assert!((elapsed[1] - logged[1] * 0.99).abs() < 1e-3, "{elapsed:?} {logged:?}");
}

#[test]
fn a_wait_binds_to_the_record_at_the_time_of_the_call() {
    let Some(run) = in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let streams: Vec<Arc<CudaStream>> = (0..3).map(|_| context.new_stream().unwrap()).collect();
        let event = context.new_event(None).unwrap();
        // Waiting for what was never recorded is no wait.
        streams[1].wait(&event).unwrap();
        sleep(&streams[0], 50);
        event.record(&streams[0]).unwrap();
        streams[1].wait(&event).unwrap();
        let gate = Gate::on(&streams[2]);
        event.record(&streams[2]).unwrap();
        sleep(&streams[1], 10);
        streams[1].synchronize().unwrap();
        assert!(!event.is_complete(), "the second record is later");
        gate.open();
        assert!(streams[0].context().synchronize().is_ok() && event.is_complete());
    }) else {
        return;
    };
    let mut pieces = of_kind(&run.pieces, "host");
    pieces.sort_by_key(|piece| piece.end_ns);
    let [first, waiter, last] = pieces[..] else { panic!("{pieces:?}") };
    assert!(waiter.start_ns >= first.end_ns && waiter.end_ns < last.end_ns, "{pieces:?}");
}

#[test]
fn the_legacy_stream_and_blocking_streams_wait_for_each_other() {
    let Some(run) = in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let (legacy, own) = (context.default_stream(), context.per_thread_stream());
        let free = context.new_stream().unwrap();
        let gate = Gate::on(&own);
        sleep(&legacy, 20);
        sleep(&own, 20);
        sleep(&free, 1);
        // Does not wait for the others; if it did, it would for ever.
        free.synchronize().unwrap();
        gate.open();
        context.synchronize().unwrap();
    }) else {
        return;
    };
    let on = |stream: u64| -> Vec<&Piece> { run.pieces.iter().filter(|p| p.stream == stream).collect() };
    let (legacy, own) = (on(0), on(2));
    assert_eq!((legacy.len(), own.len()), (1, 2));
    assert!(own[0].end_ns <= legacy[0].start_ns && legacy[0].end_ns <= own[1].start_ns);
    assert_eq!(run.pieces.iter().filter(|piece| piece.stream > 2).count(), 1, "a stream of its own");
}

#[test]
fn event_errors_are_those_of_the_driver() {
    in_child(test_name!(), &[], || {
        use sys::CUresult::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_READY};
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let timed = || context.new_event(Some(CU_EVENT_DEFAULT)).unwrap();
        let elapsed = |a: sys::CUevent, b: sys::CUevent| {
            let mut ms = 0.0;
            // SAFETY: handles that the stand-in checks, and a place for the result.
            unsafe { sys::cuEventElapsedTime_v2(&mut ms, a, b) }
        };
        let (a, b, untimed) = (timed(), timed(), context.new_event(None).unwrap());
        assert_eq!(elapsed(a.cu_event(), b.cu_event()), CUDA_ERROR_INVALID_HANDLE, "never recorded");
        assert!(a.is_complete(), "what was never recorded is complete");
        a.record(&stream).unwrap();
        let gate = Gate::on(&stream);
        sleep(&stream, 20);
        b.record(&stream).unwrap();
        untimed.record(&stream).unwrap();
        assert_eq!(elapsed(a.cu_event(), b.cu_event()), CUDA_ERROR_NOT_READY);
        assert_eq!(elapsed(a.cu_event(), untimed.cu_event()), CUDA_ERROR_INVALID_HANDLE, "no timing");
        gate.open();
        b.synchronize().unwrap();
        assert!(a.elapsed_ms(&b).unwrap() >= 20.0);
        let other = CudaContext::new(1).unwrap();
        let far = other.new_event(Some(CU_EVENT_DEFAULT)).unwrap();
        // SAFETY: as above.
        let code = unsafe { sys::cuEventRecord(far.cu_event(), stream.cu_stream()) };
        assert_eq!(code, CUDA_ERROR_INVALID_HANDLE, "another context's stream");
        let stale = timed();
        let handle = stale.cu_event();
        drop(stale);
        // SAFETY: a stale handle, which the stand-in finds out.
        assert_eq!(unsafe { sys::cuEventQuery(handle) }, CUDA_ERROR_INVALID_HANDLE);
    });
}

#[test]
fn calls_that_wait_are_counted() {
    let Some(run) = in_child(test_name!(), &[], || {
        let context = CudaContext::new(0).unwrap();
        let before = Counts::now().expect("the stand-in is loaded");
        let stream = context.default_stream();
        stream.synchronize().unwrap();
        stream.record_event(None).unwrap().synchronize().unwrap();
        let after = Counts::now().expect("the stand-in is loaded").since(&before);
        assert_eq!(after.synchronizing().values().sum::<u64>(), 2);
        context.synchronize().unwrap();
    }) else {
        return;
    };
    let counts: Vec<_> = run.counts.synchronizing().into_iter().collect();
    let expected = [("cuCtxSynchronize", 1), ("cuEventSynchronize", 1), ("cuStreamSynchronize", 1)];
    assert_eq!(counts, expected);
}
