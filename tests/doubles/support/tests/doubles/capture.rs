//! Stream capture: what becomes a graph, and what breaks a capture.

use crate::common::{of_kind, sleep};
use cudarc::driver::sys::CUstreamCaptureMode::{
    CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL,
};
use cudarc::driver::sys::{self, CUevent_flags::CU_EVENT_DEFAULT, CUgraphInstantiate_flags, CUresult};
use cudarc::driver::{CudaContext, CudaEvent, CudaGraph, CudaStream, DriverError};
use double_support::{in_child, test_name};
use std::sync::Arc;
use std::sync::mpsc::channel;

fn end(stream: &Arc<CudaStream>) -> Result<CudaGraph, CUresult> {
    let ended = stream.end_capture(CUgraphInstantiate_flags(0));
    ended.map(|graph| graph.expect("a graph")).map_err(|DriverError(code)| code)
}

/// A context and a stream; cudarc's own events stay out of the way.
fn stream() -> Arc<CudaStream> {
    let context = CudaContext::new(0).unwrap();
    // SAFETY: each test orders its streams itself.
    unsafe { context.disable_event_tracking() };
    context.new_stream().unwrap()
}

fn recorded(stream: &CudaStream) -> CudaEvent {
    stream.record_event(Some(CU_EVENT_DEFAULT)).unwrap()
}

fn query(event: &CudaEvent) -> CUresult {
    // SAFETY: a handle that the stand-in checks.
    unsafe { sys::cuEventQuery(event.cu_event()) }
}

#[test]
fn captured_work_runs_at_each_launch_and_not_before() {
    let Some(run) = in_child(test_name!(), &[], || {
        let stream = stream();
        let mut data = stream.clone_htod(&[1_u32; 4]).unwrap();
        stream.begin_capture(GLOBAL).unwrap();
        stream.memset_zeros(&mut data).unwrap();
        sleep(&stream, 1);
        let graph = end(&stream).unwrap();
        assert_eq!(stream.clone_dtoh(&data).unwrap(), [1; 4]);
        for _ in 0..3 {
            stream.memcpy_htod(&[2_u32; 4], &mut data).unwrap();
            graph.launch().unwrap();
            assert_eq!(stream.clone_dtoh(&data).unwrap(), [0; 4]);
        }
    }) else {
        return;
    };
    assert_eq!(of_kind(&run.pieces, "host").len(), 3);
}

#[test]
fn an_event_recorded_under_capture_has_no_time_of_its_own() {
    in_child(test_name!(), &[], || {
        let stream = stream();
        let event = stream.context().new_event(Some(CU_EVENT_DEFAULT)).unwrap();
        stream.begin_capture(RELAXED).unwrap();
        event.record(&stream).unwrap();
        assert_eq!(query(&event), CUresult::CUDA_ERROR_CAPTURED_EVENT);
        // The query of a captured event broke the capture.
        assert_eq!(end(&stream).err(), Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
        stream.begin_capture(GLOBAL).unwrap();
        event.record(&stream).unwrap();
        let graph = end(&stream).unwrap();
        graph.launch().unwrap();
        stream.synchronize().unwrap();
        assert_eq!(query(&event), CUresult::CUDA_ERROR_CAPTURED_EVENT, "also after the graph ran");
        event.record(&stream).unwrap();
        event.synchronize().unwrap();
    });
}

#[test]
fn an_external_record_under_capture_is_recorded_at_each_launch() {
    in_child(test_name!(), &[], || {
        let stream = stream();
        let (start, stop) = (recorded(&stream), recorded(&stream));
        stream.begin_capture(GLOBAL).unwrap();
        let external = |event: &CudaEvent| {
            // SAFETY: handles that the stand-in checks; 1 is CU_EVENT_RECORD_EXTERNAL.
            let code = unsafe { sys::cuEventRecordWithFlags(event.cu_event(), stream.cu_stream(), 1) };
            assert_eq!(code, CUresult::CUDA_SUCCESS);
        };
        external(&start);
        sleep(&stream, 30);
        external(&stop);
        let graph = end(&stream).unwrap();
        for _ in 0..2 {
            graph.launch().unwrap();
            stream.synchronize().unwrap();
            assert!(start.elapsed_ms(&stop).unwrap() >= 30.0);
        }
    });
}

/// What `act` on another thread, in its own mode, does to a capture in `mode`: the code that the other
/// thread gets, and whether the capture survives.
fn beside(
    mode: sys::CUstreamCaptureMode,
    own_mode: Option<sys::CUstreamCaptureMode>,
    act: fn(&CudaEvent) -> CUresult,
) -> (CUresult, bool) {
    let stream = stream();
    let event = recorded(&stream);
    stream.synchronize().unwrap();
    let (captures, has_captured) = channel();
    let (acted, has_acted) = channel();
    let other = std::thread::spawn(move || {
        event.context().bind_to_thread().unwrap();
        if let Some(mut mode) = own_mode {
            // SAFETY: a place with a mode, which is replaced by the previous one.
            assert_eq!(unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }, CUresult::CUDA_SUCCESS);
            assert_eq!(mode, GLOBAL, "threads begin in global mode");
        }
        has_captured.recv().unwrap();
        let code = act(&event);
        acted.send(code).unwrap();
    });
    stream.begin_capture(mode).unwrap();
    captures.send(()).unwrap();
    let code = has_acted.recv().unwrap();

    let survived = match end(&stream) {
        Ok(_) => true,
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) => false,
        Err(other) => panic!("{other:?}"),
    };
    other.join().unwrap();
    (code, survived)
}

/// The same for two calls that are potentially unsafe: a query and an allocation.
fn beside_unsafe(
    mode: sys::CUstreamCaptureMode,
    own_mode: Option<sys::CUstreamCaptureMode>,
) -> [(CUresult, bool); 2] {
    let allocate = |_: &CudaEvent| {
        let mut address = 0;
        // SAFETY: a place for the address; what is allocated stays with the context.
        unsafe { sys::cuMemAlloc_v2(&mut address, 16) }
    };
    [beside(mode, own_mode, query), beside(mode, own_mode, allocate)]
}

#[test]
fn an_unsafe_call_of_another_thread_breaks_a_global_capture_unless_that_thread_is_relaxed() {
    in_child(test_name!(), &[], || {
        let broken = (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
        let untouched = (CUresult::CUDA_SUCCESS, true);
        assert_eq!(beside_unsafe(GLOBAL, None), [broken; 2]);
        assert_eq!(beside_unsafe(GLOBAL, Some(THREAD_LOCAL)), [untouched; 2]);
        assert_eq!(beside_unsafe(GLOBAL, Some(RELAXED)), [untouched; 2]);
        assert_eq!(beside_unsafe(THREAD_LOCAL, None), [untouched; 2]);
        assert_eq!(beside_unsafe(RELAXED, None), [untouched; 2]);
    });
}

#[test]
fn a_lenient_driver_lets_unsafe_calls_pass() {
    in_child(test_name!(), &[("DOUBLE_CUDA_CAPTURE", "lenient")], || {
        assert_eq!(beside_unsafe(GLOBAL, None), [(CUresult::CUDA_SUCCESS, true); 2]);
    });
}

#[test]
fn an_unsafe_call_of_the_capturing_thread_breaks_its_capture_unless_it_is_relaxed() {
    in_child(test_name!(), &[], || {
        for (mode, survives) in [(GLOBAL, false), (THREAD_LOCAL, false), (RELAXED, true)] {
            let stream = stream();
            let event = recorded(&stream);
            event.synchronize().unwrap();
            stream.begin_capture(mode).unwrap();
            assert_eq!(query(&event) == CUresult::CUDA_SUCCESS, survives, "{mode:?}");
            assert_eq!(end(&stream).is_ok(), survives, "{mode:?}");
            assert!(stream.synchronize().is_ok(), "the stream is usable again");
        }
    });
}

#[test]
fn waiting_for_a_capturing_stream_is_refused_in_every_mode() {
    in_child(test_name!(), &[], || {
        for mode in [GLOBAL, THREAD_LOCAL, RELAXED] {
            let stream = stream();
            stream.begin_capture(mode).unwrap();
            let refused = stream.synchronize().unwrap_err();
            assert_eq!(refused.0, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            assert!(end(&stream).is_err());
        }
    });
}

#[test]
fn forks_join_by_events_and_must_come_back() {
    let Some(run) = in_child(test_name!(), &[], || {
        let origin = stream();
        let fork = origin.context().new_stream().unwrap();
        let (out, back) =
            (origin.context().new_event(None).unwrap(), origin.context().new_event(None).unwrap());
        for comes_back in [true, false] {
            origin.begin_capture(GLOBAL).unwrap();
            out.record(&origin).unwrap();
            fork.wait(&out).unwrap();
            assert_eq!(
                fork.capture_status().unwrap(),
                sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
            );
            sleep(&fork, 1);
            if comes_back {
                back.record(&fork).unwrap();
                origin.wait(&back).unwrap();
            }
            match end(&origin) {
                Ok(graph) => {
                    assert!(comes_back);
                    graph.launch().unwrap();
                }
                Err(code) => {
                    assert!(!comes_back);
                    assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
                }
            }
            assert_eq!(
                fork.capture_status().unwrap(),
                sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
            );
        }
        origin.synchronize().unwrap();
    }) else {
        return;
    };
    assert_eq!(of_kind(&run.pieces, "host").len(), 1);
}

#[test]
fn a_capture_does_not_wait_for_what_was_recorded_outside() {
    in_child(test_name!(), &[], || {
        let stream = stream();
        let outside = recorded(&stream.context().new_stream().unwrap());
        stream.begin_capture(RELAXED).unwrap();
        let refused = stream.wait(&outside).unwrap_err();
        assert_eq!(refused.0, CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        assert_eq!(end(&stream).err(), Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    });
}
