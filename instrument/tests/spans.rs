//! What is recorded of spans, however an application uses them.

mod common;

use common::{PAUSE_NS, Recording, comm, compute, only_track, pause, record};
use commtrace_instrument::{Config, comm_span, compute_span, rank_scope, step_span};
use std::mem;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};

#[test]
fn every_field_of_a_comm_span_is_recorded() {
    let timeline = record(Config::default(), || {
        let stream = String::from("comm-0");
        let _span = comm_span!(
            "all_to_all",
            stream = &stream,
            bytes = 1_u64 << 40,
            comm = "world/1",
            comm_size = 4_u32,
            comm_rank = 2_u64,
            seq = 17_u64,
            peer = 3_i32,
            dtype = "float32"
        )
        .entered();
        pause();
    });
    let track = only_track(&timeline);
    let (op, interval) = comm(&timeline, track)[0];
    assert_eq!(op, "all_to_all");
    assert_eq!(interval.bytes, Some(1 << 40));
    assert_eq!(interval.comm.map(|comm| timeline.names.get(comm)), Some("world/1"));
    assert_eq!(interval.stream.map(|stream| timeline.names.get(stream)), Some("comm-0"));
    assert_eq!(interval.dtype.map(|dtype| timeline.names.get(dtype)), Some("float32"));
    assert_eq!((interval.comm_size, interval.comm_rank), (Some(4), Some(2)));
    assert_eq!((interval.seq, interval.peer, interval.step), (Some(17), Some(3), None));
    assert!(interval.end_ns - interval.start_ns >= PAUSE_NS);
}

#[test]
fn a_span_entered_several_times_has_an_interval_per_entry() {
    let timeline = record(Config::default(), || {
        let span = compute_span!("forward");
        for _ in 0..3 {
            span.in_scope(pause);
            pause();
        }
    });
    let intervals = compute(&timeline, only_track(&timeline));
    assert_eq!(intervals.len(), 3);
    for pair in intervals.windows(2) {
        assert!(pair[1].1.start_ns - pair[0].1.end_ns >= PAUSE_NS);
    }
    assert!(intervals.iter().all(|(name, _)| *name == "forward"));
}

#[test]
fn a_span_entered_again_inside_itself_is_one_interval() {
    let timeline = record(Config::default(), || {
        let span = compute_span!("forward");
        span.in_scope(|| {
            pause();
            span.in_scope(pause);
            pause();
        });
    });
    let intervals = compute(&timeline, only_track(&timeline));
    assert_eq!(intervals.len(), 1);
    assert!(intervals[0].1.end_ns - intervals[0].1.start_ns >= 3 * PAUSE_NS);
}

#[test]
fn guards_dropped_in_another_order_end_their_own_spans() {
    let timeline = record(Config::default(), || {
        let outer = compute_span!("outer").entered();
        pause();
        let inner = compute_span!("inner").entered();
        pause();
        drop(outer);
        pause();
        drop(inner);
    });
    let intervals = compute(&timeline, only_track(&timeline));
    let of = |wanted| intervals.iter().find(|(name, _)| *name == wanted).unwrap().1;
    assert!(of("inner").end_ns - of("outer").end_ns >= PAUSE_NS);
    assert!(of("outer").end_ns - of("inner").start_ns >= PAUSE_NS);
}

#[test]
fn a_span_may_be_entered_and_closed_on_another_thread() {
    let (recording, dispatch) = Recording::start(Config::default());
    let (sender, receiver) = mpsc::channel::<tracing::Span>();
    let other = {
        let dispatch = dispatch.clone();
        thread::spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || {
                for span in receiver {
                    span.in_scope(pause);
                }
            });
        })
    };
    tracing::dispatcher::with_default(&dispatch, || {
        for seq in 0..200_u64 {
            // Some are also entered where they were made.
            let span = comm_span!("all_reduce", seq = seq);
            if seq % 50 == 0 {
                span.in_scope(|| ());
            }
            sender.send(span).unwrap();
        }
        drop(sender);
        other.join().unwrap();
    });
    let timeline = recording.finish();
    let mut seqs: Vec<u64> =
        comm(&timeline, only_track(&timeline)).iter().map(|(_, interval)| interval.seq.unwrap()).collect();
    seqs.sort_unstable();
    let mut expected: Vec<u64> = (0..200).chain([0, 50, 100, 150]).collect();
    expected.sort_unstable();
    assert_eq!(seqs, expected);
}

#[test]
fn many_spans_alive_at_once_are_all_followed() {
    let timeline = record(Config::default(), || {
        let spans: Vec<_> = (0..5_000_u64).map(|seq| comm_span!("send", seq = seq)).collect();
        for span in &spans {
            span.in_scope(|| ());
        }
    });
    let seqs: Vec<u64> =
        comm(&timeline, only_track(&timeline)).iter().map(|(_, interval)| interval.seq.unwrap()).collect();
    assert_eq!(seqs, (0..5_000).collect::<Vec<_>>());
}

#[test]
fn leaked_spans_and_entries_do_no_harm() {
    let timeline = record(Config::default(), || {
        for _ in 0..500 {
            mem::forget(compute_span!("leaked"));
        }
        mem::forget(comm_span!("leaked_inside", seq = 1_u64).entered());
        for _ in 0..10 {
            compute_span!("forward").in_scope(|| ());
        }
    });
    let track = only_track(&timeline);
    assert_eq!(compute(&timeline, track).len(), 10);
    assert_eq!(track.comm.len(), 0);
    // What is still entered at the end is what a hang is found by.
    let open: Vec<_> = track.open.iter().map(|open| (timeline.names.get(open.name), open.seq)).collect();
    assert_eq!(open, [("leaked_inside", Some(1))]);
}

#[test]
fn a_span_that_is_never_entered_is_not_recorded() {
    let timeline = record(Config::default(), || {
        let _never = compute_span!("never");
        compute_span!("once").in_scope(|| ());
    });
    let names: Vec<_> = compute(&timeline, only_track(&timeline)).iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["once"]);
}

#[test]
fn spans_that_outlive_the_guard_are_ignored() {
    let (recording, dispatch) = Recording::start(Config::default());
    let timeline = tracing::dispatcher::with_default(&dispatch, || {
        compute_span!("before").in_scope(|| ());
        let created = compute_span!("created before, entered after");
        let entered = compute_span!("entered before, exited after").entered();
        let timeline = recording.finish();
        created.in_scope(|| ());
        drop(entered);
        compute_span!("after").in_scope(|| ());
        timeline
    });
    let names: Vec<_> = compute(&timeline, only_track(&timeline)).iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["before"]);
}

#[test]
fn only_spans_with_a_kind_are_recorded_whatever_their_target() {
    let timeline = record(Config::default(), || {
        tracing::info_span!("no kind", bytes = 1).in_scope(|| ());
        tracing::info_span!(target: "commtrace", "our target without a kind").in_scope(|| ());
        tracing::info_span!("unknown kind", commtrace.kind = "dance").in_scope(|| ());
        tracing::warn_span!("mine", commtrace.kind = "comm", op = "all_reduce", bytes = 8).in_scope(|| ());
        tracing::info!(commtrace.kind = "comm", "an event is not a span");
    });
    let track = only_track(&timeline);
    assert!(track.compute.is_empty());
    let found: Vec<_> = comm(&timeline, track).iter().map(|(op, interval)| (*op, interval.bytes)).collect();
    assert_eq!(found, [("all_reduce", Some(8))]);
}

#[test]
fn fields_recorded_later_count() {
    let timeline = record(Config::default(), || {
        let span = comm_span!("all_reduce", bytes = tracing::field::Empty, seq = 4_u64);
        span.in_scope(|| ());
        span.record("bytes", 1024_u64);
        span.in_scope(|| ());
    });
    let track = only_track(&timeline);
    let found: Vec<_> =
        comm(&timeline, track).iter().map(|(_, interval)| (interval.bytes, interval.seq)).collect();
    assert_eq!(found, [(None, Some(4)), (Some(1024), Some(4))]);
}

#[test]
fn values_outside_a_fields_range_are_unknown() {
    let timeline = record(Config::default(), || {
        comm_span!("send", bytes = -1, seq = u64::MAX, peer = 1_u64 << 40).in_scope(|| ());
        comm_span!("send", bytes = "4096", seq = ?7, peer = %2).in_scope(|| ());
    });
    let track = only_track(&timeline);
    let found: Vec<_> = comm(&timeline, track)
        .iter()
        .map(|(_, interval)| (interval.bytes, interval.seq, interval.peer))
        .collect();
    assert_eq!(found, [(None, None, None), (Some(4096), Some(7), Some(2))]);
}

#[test]
fn an_interval_belongs_to_the_step_in_which_the_call_was_made() {
    let (recording, dispatch) = Recording::start(Config::default());
    let (sender, receiver) = mpsc::channel::<tracing::Span>();
    let other = {
        let dispatch = dispatch.clone();
        thread::spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || {
                for span in receiver {
                    span.in_scope(|| ());
                }
                // Made on a thread without a step span, outside any step.
                comm_span!("outside", seq = 9_u64).in_scope(|| ());
            });
        })
    };
    tracing::dispatcher::with_default(&dispatch, || {
        let mut pending = Vec::new();
        for step in 5..8 {
            let _step = step_span!(step).entered();
            pending.push(comm_span!("all_reduce", seq = step as u64));
            {
                let _micro = step_span!(step * 100).entered();
                compute_span!("inner").in_scope(|| ());
            }
            compute_span!("forward").in_scope(|| ());
        }
        for span in pending {
            sender.send(span).unwrap();
        }
        drop(sender);
        other.join().unwrap();
    });
    let timeline = recording.finish();
    let track = only_track(&timeline);
    let comms: Vec<_> = comm(&timeline, track).iter().map(|(op, interval)| (*op, interval.step)).collect();
    assert_eq!(
        comms,
        [("all_reduce", Some(5)), ("all_reduce", Some(6)), ("all_reduce", Some(7)), ("outside", None)]
    );
    let computes: Vec<_> =
        compute(&timeline, track).iter().map(|(name, interval)| (*name, interval.step)).collect();
    assert_eq!(computes[..2], [("inner", Some(500)), ("forward", Some(5))]);
    assert_eq!(track.steps.len(), 6);
}

#[test]
fn steps_that_do_not_nest_leave_no_step_behind() {
    let timeline = record(Config::default(), || {
        let (first, second) = (step_span!(1), step_span!(2));
        let (first, second) = (first.entered(), second.entered());
        comm_span!("both").in_scope(|| ());
        drop(first);
        comm_span!("second").in_scope(|| ());
        drop(second);
        comm_span!("none").in_scope(|| ());
    });
    let track = only_track(&timeline);
    let found: Vec<_> = comm(&timeline, track).iter().map(|(op, interval)| (*op, interval.step)).collect();
    assert_eq!(found, [("both", Some(2)), ("second", Some(2)), ("none", None)]);
}

#[test]
fn many_short_threads_leave_nothing_behind() {
    let (recording, dispatch) = Recording::start(Config::default());
    for _ in 0..300 {
        let dispatch = dispatch.clone();
        thread::spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || compute_span!("short").in_scope(|| ()));
        })
        .join()
        .unwrap();
    }
    let timeline = recording.finish();
    assert_eq!(compute(&timeline, only_track(&timeline)).len(), 300);
}

#[test]
fn a_long_name_is_cut() {
    let timeline = record(Config::default(), || {
        let long = "é".repeat(10_000);
        comm_span!("send", op = long.as_str()).in_scope(|| ());
    });
    let track = only_track(&timeline);
    assert_eq!(comm(&timeline, track)[0].0, "é".repeat(128));
}

#[test]
fn durations_out_of_range_are_the_largest_in_range() {
    let config = Config::default().merge_timeout(Duration::MAX).flush_interval(Duration::MAX);
    let timeline = record(config, || compute_span!("forward").in_scope(|| ()));
    assert_eq!(compute(&timeline, only_track(&timeline)).len(), 1);
}

#[test]
fn only_the_wanted_steps_and_ranks_are_recorded() {
    let config = Config::default().steps(2..4).ranks([1, 3]);
    let timeline = record(config, || {
        for rank in 0..4 {
            let _scope = rank_scope(rank);
            comm_span!("broadcast").in_scope(|| ());
            for step in 0..6 {
                let _step = step_span!(step).entered();
                comm_span!("all_reduce").in_scope(|| ());
            }
        }
    });
    let ranks: Vec<_> = timeline.tracks.iter().map(|track| track.rank).collect();
    assert_eq!(ranks, [1, 3]);
    for track in &timeline.tracks {
        let found: Vec<_> =
            comm(&timeline, track).iter().map(|(op, interval)| (*op, interval.step)).collect();
        assert_eq!(found, [("all_reduce", Some(2)), ("all_reduce", Some(3))]);
        assert_eq!(track.steps.iter().map(|step| step.step).collect::<Vec<_>>(), [2, 3]);
    }
}

#[test]
fn a_rank_field_comes_before_the_threads_rank() {
    let timeline = record(Config::default(), || {
        let _scope = rank_scope(2);
        comm_span!("all_reduce").in_scope(|| ());
        comm_span!("all_reduce", rank = 5_u64).in_scope(|| ());
    });
    assert_eq!(timeline.tracks.iter().map(|track| track.rank).collect::<Vec<_>>(), [2, 5]);
}

#[test]
fn records_beside_a_text_layer_and_below_wrapped_layers() {
    let sink = || std::io::sink();
    let spans = || {
        compute_span!("forward", label = 3).in_scope(|| {
            tracing::info!("something else");
            tracing::info_span!("of the application").in_scope(|| ());
        });
    };
    let check = |recording: Recording| {
        let timeline = recording.finish();
        assert_eq!(compute(&timeline, only_track(&timeline)).len(), 1);
    };

    let (recording, layer) = Recording::with_layer(Config::default());
    let fmt = tracing_subscriber::fmt::layer().with_writer(sink);
    let subscriber = tracing_subscriber::registry().with(fmt).with(layer);
    tracing::subscriber::with_default(subscriber, spans);
    check(recording);

    let (recording, layer) = Recording::with_layer(Config::default());
    let fmt = tracing_subscriber::fmt::layer().with_writer(sink).with_filter(LevelFilter::WARN);
    let subscriber = tracing_subscriber::registry().with(layer.boxed()).with(fmt);
    tracing::subscriber::with_default(subscriber, spans);
    check(recording);

    let (recording, layer) = Recording::with_layer(Config::default());
    let subscriber = tracing_subscriber::registry().with(Some(layer.with_filter(LevelFilter::INFO)));
    tracing::subscriber::with_default(subscriber, spans);
    check(recording);

    let (recording, layer) = Recording::with_layer(Config::default());
    let fmt = tracing_subscriber::fmt::layer().with_writer(sink);
    let filter = tracing_subscriber::EnvFilter::new("info");
    let subscriber = tracing_subscriber::registry().with(filter).with(layer).with(fmt);
    tracing::subscriber::with_default(subscriber, spans);
    check(recording);
}

#[test]
fn two_recorders_in_one_process_do_not_mix() {
    let (first, first_dispatch) = Recording::start(Config::default());
    let (second, second_dispatch) = Recording::start(Config::default());
    for round in 0..10 {
        tracing::dispatcher::with_default(&first_dispatch, || {
            compute_span!("first").in_scope(|| {
                if round == 5 {
                    tracing::dispatcher::with_default(&second_dispatch, || {
                        compute_span!("second").in_scope(|| ());
                    });
                }
            });
        });
    }
    let (first, second) = (first.finish(), second.finish());
    assert_eq!(compute(&first, only_track(&first)).len(), 10);
    assert_eq!(compute(&second, only_track(&second)).len(), 1);
}

#[test]
fn a_million_spans_of_eight_threads_are_recorded_or_counted_as_dropped() {
    const SPANS: u64 = 125_000;
    // A small queue, so that both outcomes happen.
    let (recording, dispatch) = Recording::start(Config::default().queue(2_000));
    thread::scope(|scope| {
        for rank in 0..8 {
            let dispatch = dispatch.clone();
            scope.spawn(move || {
                let _scope = rank_scope(rank);
                tracing::dispatcher::with_default(&dispatch, || {
                    for seq in 0..SPANS {
                        comm_span!("all_reduce", seq = seq).in_scope(|| ());
                    }
                });
            });
        }
    });
    assert!(recording.guard.flush());
    let stats = recording.guard.stats();
    assert_eq!(stats.recorded + stats.dropped, 8 * SPANS, "{stats:?}");
    assert_eq!(stats.untracked_spans, 0);
    let timeline = recording.finish();
    let read: usize = timeline.tracks.iter().map(|track| track.comm.len()).sum();
    assert_eq!(read as u64, stats.recorded);
    let dropped: u64 = timeline.inputs.iter().map(|input| input.dropped).sum();
    assert_eq!(dropped, stats.dropped);
}
