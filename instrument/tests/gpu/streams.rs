//! Every kind of stream, and spans that cross threads.

use crate::support::{comm, compute, recorded, stream_of, timed, untimed, work};
use commtrace_instrument::{Config, GpuStream, Mode, comm_span, compute_span, rank_scope};
use cudarc::driver::{CudaContext, sys};
use double_support::test_name;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};

#[test]
fn every_stream_has_its_device_and_a_name() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[("DOUBLE_CUDA_DEVICES", "2")], |_guard| {
        let contexts = [0, 1].map(|device| CudaContext::new(device).unwrap());
        for context in &contexts {
            let streams = [
                context.new_stream().unwrap(),
                context.default_stream(),
                context.per_thread_stream(),
                context.new_stream_with_priority(-1).unwrap(),
            ];
            for stream in &streams {
                comm_span!("all_reduce", stream = stream).in_scope(|| work(stream, 2));
            }
            let named = GpuStream::new(&streams[0]).named("main");
            comm_span!("broadcast", stream = &named).in_scope(|| work(&streams[0], 2));
            // From now on also without the name at hand.
            comm_span!("broadcast", stream = &streams[0]).in_scope(|| work(&streams[0], 2));
            // Another thread means another stream by "per-thread".
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    comm_span!("reduce", stream = &streams[2]).in_scope(|| work(&streams[2], 2));
                });
            });
        }
        contexts.iter().for_each(|context| context.synchronize().unwrap());
    }) else {
        return;
    };
    for device in [0, 1] {
        let track = timeline.tracks.iter().find(|track| track.device == Some(device)).unwrap();
        let names: Vec<&str> = track.comm.iter().map(|comm| stream_of(&timeline, &comm)).collect();
        let unique: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), 7);
        for name in ["stream 1", "stream 2", "default", "main"] {
            assert!(unique.contains(name), "{unique:?}");
        }
        assert_eq!(names.iter().filter(|name| **name == "main").count(), 2);
        assert_eq!(unique.iter().filter(|name| name.starts_with("per-thread ")).count(), 2, "{unique:?}");
    }
}

#[test]
fn raw_streams_are_timed_and_the_current_context_stays_as_it_is() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |_guard| {
        let (first, second) = (CudaContext::new(0).unwrap(), CudaContext::new(1).unwrap());
        let stream = first.new_stream().unwrap();
        second.bind_to_thread().unwrap();
        // SAFETY: both live until the end of this function, which ends recording before.
        let raw = unsafe { GpuStream::from_raw(first.cu_ctx().cast(), stream.cu_stream().cast()) };
        comm_span!("all_reduce", stream = &raw).in_scope(|| ());
        // SAFETY: null is the default stream of the context that is current.
        let default = unsafe { GpuStream::from_raw(std::ptr::null_mut(), std::ptr::null_mut()) };
        comm_span!("broadcast", stream = &default).in_scope(|| ());
        let mut current = std::ptr::null_mut();
        // SAFETY: writes one handle.
        unsafe { sys::cuCtxGetCurrent(&mut current).result().unwrap() };
        assert_eq!(current, second.cu_ctx());
        drop(_guard);
    }) else {
        return;
    };
    let devices: Vec<_> = timeline.tracks.iter().map(|track| (track.device, track.comm.len())).collect();
    assert_eq!(devices, [(Some(0), 1), (Some(1), 1)]);
    assert_eq!(stream_of(&timeline, &comm(&timeline)["broadcast"][0]), "default");
}

#[test]
fn a_span_may_be_made_entered_and_closed_on_different_threads() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |_guard| {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let spans: Vec<_> =
            (0..300_u64).map(|seq| comm_span!("all_reduce", stream = &stream, seq = seq)).collect();
        let spans = std::thread::spawn(move || {
            for span in &spans {
                span.in_scope(|| work(&stream, 0));
            }
            spans
        });
        std::thread::spawn(move || drop(spans.join().unwrap())).join().unwrap();
    }) else {
        return;
    };
    let seqs: Vec<_> = comm(&timeline)["all_reduce"].iter().map(|comm| comm.seq.unwrap()).collect();
    assert_eq!(seqs, (0..300).collect::<Vec<_>>());
}

#[test]
fn the_layer_is_found_below_boxes_options_and_filters() {
    let test = test_name!();
    let folder = tempfile::tempdir().unwrap();
    let Some(run) = double_support::in_child(test, &[], || {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        for shape in 0..4 {
            let path = folder.path().join(shape.to_string());
            let (layer, guard) = Config::default().mode(Mode::Directory(path)).layer().unwrap();
            let base = tracing_subscriber::registry();
            let dispatch = match shape {
                0 => tracing::Dispatch::new(base.with(layer.boxed())),
                1 => tracing::Dispatch::new(base.with(Some(layer))),
                2 => tracing::Dispatch::new(base.with(layer.with_filter(LevelFilter::INFO))),
                _ => tracing::Dispatch::new(
                    base.with(Some(layer.with_filter(LevelFilter::INFO)).boxed()).with(LevelFilter::TRACE),
                ),
            };
            tracing::dispatcher::with_default(&dispatch, || {
                compute_span!("forward", stream = &stream).in_scope(|| work(&stream, 1));
            });
            let report = guard.into_report().unwrap();
            println!("shape {shape} device {:?}", report.ranks[0].device);
        }
    }) else {
        return;
    };
    assert_eq!(run.stdout.matches("device Some(0)").count(), 4, "{}", run.stdout);
}

#[test]
fn a_span_belongs_to_the_rank_and_step_of_its_call() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |_guard| {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        for rank in 0..2 {
            let _rank = rank_scope(rank);
            for step in 0..3 {
                let _step = commtrace_instrument::step_span!(step).entered();
                // It runs long after the step has ended on the host.
                compute_span!("forward", stream = &stream).in_scope(|| work(&stream, 10));
            }
        }
    }) else {
        return;
    };
    for rank in 0..2 {
        let track = timeline.tracks.iter().find(|track| track.rank == rank).unwrap();
        let steps: Vec<_> = track.compute.iter().map(|compute| compute.step).collect();
        assert_eq!(steps, [Some(0), Some(1), Some(2)]);
    }
}

#[test]
fn streams_and_contexts_live_no_longer_than_without_tracing() {
    let test = test_name!();
    let Some((run, timeline)) = recorded(test, &[], |guard| {
        for round in 0..3 {
            let context = CudaContext::new(0).unwrap();
            for _ in 0..20 {
                let stream = context.new_stream().unwrap();
                comm_span!("all_reduce", stream = &stream, seq = round as u64).in_scope(|| work(&stream, 1));
                // Dropped with its work still outstanding.
            }
            drop(context);
            // What is outstanding keeps the context for a while.
            let until = Instant::now() + Duration::from_secs(60);
            while primary_is_active() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(!primary_is_active(), "nothing uses the context any more");
        }
        drop(guard);
    }) else {
        return;
    };
    assert_eq!((timed(&timeline), untimed(&timeline).len()), (60, 0), "{:?}", untimed(&timeline));
    assert_eq!(run.counts.of("cuStreamCreate"), run.counts.of("cuStreamDestroy_v2"));
    assert_eq!(run.counts.of("cuEventCreate"), run.counts.of("cuEventDestroy_v2"));
    assert!(compute(&timeline).is_empty());
}

#[test]
fn several_objects_of_cudarc_may_stand_for_one_context() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |guard| {
        let first = CudaContext::new(0).unwrap();
        let stream = first.new_stream().unwrap();
        comm_span!("all_reduce", stream = &stream).in_scope(|| work(&stream, 1));
        let second = CudaContext::new(0).unwrap();
        let others = second.new_stream().unwrap();
        comm_span!("all_reduce", stream = &others).in_scope(|| work(&others, 1));
        // The object that the context was seen with first goes while a span is entered; ours is let go of in the
        // background.
        let freed = Arc::downgrade(&first);
        drop((stream, first));
        let entered = comm_span!("broadcast", stream = &others).entered();
        let until = Instant::now() + Duration::from_secs(60);
        while freed.strong_count() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(freed.strong_count(), 0, "nothing uses the object any more");
        work(&others, 1);
        drop(entered);
        comm_span!("broadcast", stream = &others).in_scope(|| work(&others, 1));
        drop(guard);
    }) else {
        return;
    };
    assert_eq!((timed(&timeline), untimed(&timeline).len()), (4, 0), "{:?}", untimed(&timeline));
    assert_eq!(comm(&timeline)["broadcast"].len(), 2);
}

#[test]
fn the_streams_that_every_context_has_outlive_the_objects_that_cudarc_makes_of_them() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |_guard| {
        let context = CudaContext::new(0).unwrap();
        for _ in 0..100 {
            // Each of these objects is gone before its span is entered.
            comm_span!("all_reduce", stream = &context.default_stream()).in_scope(|| ());
            comm_span!("broadcast", stream = &context.per_thread_stream()).in_scope(|| ());
        }
    }) else {
        return;
    };
    assert_eq!((timed(&timeline), untimed(&timeline).len()), (200, 0), "{:?}", untimed(&timeline));
    let all_reduces = &comm(&timeline)["all_reduce"];
    assert!(all_reduces.iter().all(|comm| stream_of(&timeline, comm) == "default"));
}

#[test]
fn a_span_that_is_switched_off_does_not_touch_its_stream() {
    let test = test_name!();
    let Some((_, timeline)) = recorded(test, &[], |_guard| {
        let context = CudaContext::new(0).unwrap();
        let streams = [context.new_stream().unwrap(), context.new_stream().unwrap()];
        tracing::dispatcher::with_default(&tracing::Dispatch::none(), || {
            comm_span!("all_reduce", stream = &streams[0]).in_scope(|| ());
        });
        comm_span!("all_reduce", stream = &streams[1]).in_scope(|| ());
    }) else {
        return;
    };
    // The other one has no number.
    assert_eq!(stream_of(&timeline, &comm(&timeline)["all_reduce"][0]), "stream 1");
}

fn primary_is_active() -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: writes two numbers.
    unsafe { sys::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active).result().unwrap() };
    active != 0
}
