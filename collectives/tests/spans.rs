//! What the calls' spans say, and when they are entered.

mod common;

use std::thread;

use common::capture::Capture;
use commtrace_collectives::{Communicator, Group, LocalComm, ReduceOp};
use commtrace_instrument::step_span;
use tracing::span::Id;
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

const SUM: ReduceOp = ReduceOp::Sum;

/// Sizes as nccl-tests counts them: 4 ranks, 8 elements per part.
#[test]
fn every_operation_says_what_it_moves() {
    let capture = Capture::default();
    capture.run(LocalComm::builder(4).name("w"), |comm| {
        let me = comm.rank();
        let (short, long) = ([1.0_f32; 8], [1.0_f32; 32]);
        comm.all_reduce(&short, &mut [0.0; 8], &SUM).unwrap();
        comm.all_reduce_in_place(&mut [half::bf16::ONE; 8], &SUM).unwrap();
        comm.reduce(&short, (me == 2).then_some(&mut [0.0; 8]), &SUM, 2).unwrap();
        comm.broadcast((me == 3).then_some(&short), &mut [0.0; 8], 3).unwrap();
        comm.all_gather(&short, &mut [0.0; 32]).unwrap();
        comm.reduce_scatter(&long, &mut [0.0; 8], &SUM).unwrap();
        comm.all_to_all(&long, &mut [0.0; 32]).unwrap();
        comm.all_to_all_v(&long, &[me + 1; 4], &mut [0.0; 10], &[1, 2, 3, 4]).unwrap();
        if me == 1 {
            comm.send(&[0_i64; 5], 2).unwrap();
        } else if me == 2 {
            comm.recv(&mut [0_i64; 5], 1).unwrap();
        }
        comm.barrier().unwrap();
    });
    let summary = |rank: u32| -> Vec<_> {
        let spans = capture.of_rank(rank);
        let fields = ["bytes", "dtype", "seq", "peer"];
        spans.iter().map(|seen| (seen.name, fields.map(|field| seen.get(field).map(str::to_owned)))).collect()
    };
    let row = |name: &'static str, fields: [&str; 4]| {
        (name, fields.map(|field| (!field.is_empty()).then(|| field.to_owned())))
    };
    let mut expected = vec![
        row("all_reduce", ["32", "float32", "0", ""]),
        row("all_reduce", ["16", "bfloat16", "1", ""]),
        row("reduce", ["32", "float32", "2", "2"]),
        row("broadcast", ["32", "float32", "3", "3"]),
        row("all_gather", ["128", "float32", "4", ""]),
        row("reduce_scatter", ["128", "float32", "5", ""]),
        row("all_to_all", ["128", "float32", "6", ""]),
        // Rank 1 sends two elements to each.
        row("all_to_all_v", ["32", "float32", "7", ""]),
        row("send", ["40", "int64", "", "2"]),
        row("barrier", ["0", "", "8", ""]),
    ];
    assert_eq!(summary(1), expected);
    expected[7] = row("all_to_all_v", ["48", "float32", "7", ""]);
    expected[8] = row("recv", ["40", "int64", "", "1"]);
    assert_eq!(summary(2), expected);
    for seen in capture.all() {
        assert_eq!(seen.get("commtrace.kind"), Some("comm"));
        assert_eq!((seen.get("comm"), seen.get("comm_size")), (Some("w"), Some("4")));
        assert_eq!(seen.get("rank"), seen.get("comm_rank"));
        assert_eq!((seen.get("stream"), seen.get("grouped")), (None, None));
        assert_eq!((seen.entered_on.len(), seen.exits, seen.closed), (1, 1, true), "{seen:?}");
    }
}

#[test]
fn a_nonblocking_call_belongs_to_its_caller_and_runs_on_its_stream() {
    let capture = Capture::default();
    capture.run(LocalComm::builder(2).name("w"), |comm| {
        let step = step_span!(7).entered();
        let pending = comm.all_gather_async(vec![1.0_f64; 3], vec![0.0; 6]);
        drop(step);
        pending.wait().unwrap();
        // Whoever has the result finds the span closed.
        let mine = capture.of_rank(comm.rank() as u32);
        assert!(mine[0].closed);
    });
    for rank in 0..2 {
        let spans = capture.of_rank(rank);
        let [seen] = &spans[..] else { panic!("{spans:?}") };
        let stream = format!("comm-{rank}:w");
        assert_eq!((seen.name, seen.scope, seen.parent), ("all_gather", rank, Some("step")));
        assert_eq!((seen.get("bytes"), seen.get("seq")), (Some("48"), Some("0")));
        assert_eq!(seen.get("stream"), Some(&*stream));
        assert_eq!((&*seen.entered_on, seen.exits), (&[stream][..], 1));
    }
}

/// Its start is the call's, not that of the communication thread's next time slice.
#[test]
fn a_nonblocking_call_has_begun_when_it_returns() {
    for _ in 0..50 {
        let capture = Capture::default();
        capture.run(LocalComm::builder(2).name("w"), |comm| {
            let pending = comm.all_reduce_in_place_async(vec![1], &SUM);
            let mine = capture.of_rank(comm.rank() as u32);
            assert_eq!(mine[0].entered_on.len(), 1);
            pending.wait().unwrap();
        });
    }
}

/// As a NCCL kernel's time contains the wait for the other ranks.
#[test]
fn a_blocking_call_is_entered_while_it_waits_for_a_late_rank() {
    let capture = Capture::default();
    capture.run(LocalComm::builder(2).name("w"), |comm| {
        if comm.rank() == 1 {
            capture.wait_for(|seen| seen.get("rank") == Some("0") && seen.entered_on.len() == 1);
        }
        comm.barrier().unwrap();
    });
    assert_eq!(capture.all().len(), 2);
}

/// Time behind this rank's own earlier calls is theirs.
#[test]
fn a_blocking_call_behind_a_pending_one_is_entered_after_it() {
    let capture = Capture::default();
    capture.run(LocalComm::builder(2).name("w"), |comm| {
        if comm.rank() == 1 {
            // Rank 0 has made both calls, and its first one waits for this rank.
            capture.wait_for(|seen| seen.name == "barrier");
            let barrier = capture.all().into_iter().find(|seen| seen.name == "barrier").unwrap();
            assert!(barrier.entered_on.is_empty());
        }
        let pending = comm.all_reduce_in_place_async(vec![1], &SUM);
        comm.barrier().unwrap();
        pending.wait().unwrap();
    });
    assert!(capture.all().iter().all(|seen| seen.exits == 1));
}

#[test]
fn calls_of_a_group_are_marked_and_entered_once() {
    let capture = Capture::default();
    capture.run(LocalComm::builder(3).name("w"), |comm| {
        let (mut sum, mut left) = ([1_u8; 4], [0_i32; 2]);
        comm.group(|g| {
            g.send(&[7, 8], (comm.rank() + 1) % 3)?;
            g.all_reduce_in_place(&mut sum, &SUM)?;
            g.recv(&mut left, (comm.rank() + 2) % 3)
        })
        .unwrap();
        comm.barrier().unwrap();
    });
    for rank in 0..3 {
        let spans = capture.of_rank(rank);
        let calls: Vec<_> =
            spans.iter().map(|s| (s.name, s.get("grouped"), s.get("seq"), s.get("bytes"))).collect();
        assert_eq!(
            calls,
            [
                ("send", Some("true"), None, Some("8")),
                ("all_reduce", Some("true"), Some("0"), Some("4")),
                ("recv", Some("true"), None, Some("8")),
                ("barrier", None, Some("1"), Some("0")),
            ]
        );
        assert!(spans.iter().all(|seen| (seen.entered_on.len(), seen.exits, seen.closed) == (1, 1, true)));
    }
}

#[test]
fn a_part_says_both_of_its_ranks() {
    let capture = Capture::default();
    capture.run(LocalComm::builder(4).name("w"), |world| {
        let pair = world.split(world.rank() as u32 / 2, 0).unwrap();
        pair.barrier().unwrap();
        world.barrier().unwrap();
    });
    let spans = capture.of_rank(3);
    let fields: Vec<_> = spans
        .iter()
        .map(|seen| ["comm", "comm_rank", "comm_size", "seq"].map(|field| seen.get(field).unwrap()))
        .collect();
    // The split has no span and takes no number.
    assert_eq!(fields, [["w/1", "1", "2", "0"], ["w", "3", "4", "0"]]);
}

/// Threads of the application's own, without a `rank_scope`.
#[test]
fn the_rank_is_the_communicators_whatever_the_thread() {
    let capture = Capture::default();
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(capture.clone()));
    thread::scope(|scope| {
        for comm in LocalComm::builder(3).name("w").build() {
            let dispatch = &dispatch;
            scope.spawn(move || tracing::dispatcher::with_default(dispatch, || comm.barrier().unwrap()));
        }
    });
    let mut ranks: Vec<_> =
        capture.all().iter().map(|seen| (seen.scope, seen.get("rank").map(str::to_owned))).collect();
    ranks.sort();
    assert_eq!(ranks, [0, 1, 2].map(|rank| (rank, Some(rank.to_string()))));
}

/// All ranks' records of a failed call can still be matched.
#[test]
fn a_failed_call_has_its_span_and_its_number() {
    let capture = Capture::default();
    capture.run(LocalComm::builder(2).name("w"), |comm| {
        comm.all_reduce_in_place(&mut vec![1; 1 + comm.rank()], &SUM).unwrap_err();
        comm.barrier().unwrap();
    });
    for rank in 0..2 {
        let calls: Vec<_> = capture
            .of_rank(rank)
            .iter()
            .map(|s| (s.name, s.get("seq").map(str::to_owned), s.exits))
            .collect();
        assert_eq!(calls, [("all_reduce", Some("0".to_owned()), 1), ("barrier", Some("1".to_owned()), 1)]);
    }
}

/// A subscriber that panics on the communication thread of rank 0.
#[test]
fn a_panic_on_the_communication_thread_is_an_error_on_every_rank() {
    struct Planted;

    impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Planted {
        fn on_enter(&self, _: &Id, _: Context<'_, S>) {
            assert_ne!(thread::current().name(), Some("comm-0:w"), "planted");
        }
    }

    let dispatch = Dispatch::new(tracing_subscriber::registry().with(Planted));
    let errors = LocalComm::builder(2).name("w").run(|comm| {
        tracing::dispatcher::with_default(&dispatch, || {
            comm.all_reduce_in_place_async(vec![1.0_f32; 9], &SUM).wait().unwrap_err()
        })
    });
    assert_eq!(
        errors[0].to_string(),
        "communicator w: the communication thread panicked during a non-blocking call"
    );
    assert!(errors[1].to_string().contains("rank 0 is gone: its thread panicked"), "{}", errors[1]);
}
