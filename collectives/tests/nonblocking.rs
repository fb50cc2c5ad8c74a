//! Calls that go on while the rank does something else.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use commtrace_collectives::{Communicator, Error, LocalComm, ReduceOp};

const SUM: ReduceOp = ReduceOp::Sum;

#[test]
fn a_call_is_pending_until_all_ranks_have_made_it() {
    let late = Barrier::new(2);
    LocalComm::run(2, |comm| {
        if comm.rank() == 1 {
            late.wait();
        }
        let pending = comm.all_reduce_in_place_async(vec![1_i64; 5], &SUM);
        if comm.rank() == 0 {
            assert!(!pending.is_finished());
            late.wait();
        }
        assert_eq!(pending.wait().unwrap(), [2; 5]);
    });
}

/// Only the other rank's handle is waited for.
#[test]
fn dropped_and_leaked_handles_do_not_lose_the_call() {
    let len = if cfg!(miri) { 100 } else { 40_000 };
    for leak in [false, true] {
        let sums = LocalComm::run(2, |comm| {
            let pending = comm.all_reduce_in_place_async(vec![1.5_f32; len], &SUM);
            if comm.rank() == 0 {
                if leak {
                    std::mem::forget(pending);
                } else {
                    drop(pending);
                }
                return None;
            }
            Some(pending.wait().unwrap())
        });
        assert_eq!(sums[1].as_deref(), Some(&*vec![3.0; len]));
    }
}

/// The communicator is dropped while the other rank has not even made its call.
#[test]
fn dropping_a_communicator_completes_its_pending_calls_first() {
    let dropped = Barrier::new(2);
    let results = LocalComm::run(2, |comm| {
        if comm.rank() == 0 {
            drop(comm.all_reduce_in_place_async(vec![1; 3], &SUM));
            drop(comm.send_async(vec![7], 1));
            drop(comm);
            dropped.wait();
            return None;
        }
        dropped.wait();
        let mut sum = [1; 3];
        comm.all_reduce_in_place(&mut sum, &SUM).unwrap();
        let mut received = [0];
        comm.recv(&mut received, 0).unwrap();
        // Only now is rank 0 gone.
        assert!(matches!(comm.barrier(), Err(Error::RankLost { rank: 0, panicked: false, .. })));
        Some((sum, received))
    });
    assert_eq!(results, [None, Some(([2; 3], [7]))]);
}

#[test]
fn communicators_of_one_thread_can_be_dropped_with_calls_pending() {
    let mut world = LocalComm::world(2);
    let one = world.remove(1);
    let zero = world.remove(0);
    let pending = zero.all_reduce_in_place_async(vec![1.0_f32], &SUM);
    drop(zero);
    drop(one);
    assert!(matches!(pending.wait(), Err(Error::RankLost { rank: 1, .. })));
}

#[test]
fn a_panicking_rank_fails_its_pending_calls() {
    let mut world = LocalComm::world(2);
    let one = world.remove(1);
    let zero = world.remove(0);
    let (pending, outcome) = std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let pending = zero.all_reduce_in_place_async(vec![1.0_f32], &SUM);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _moved = zero;
                panic!("planted");
            }));
            (pending, outcome)
        });
        thread.join().unwrap()
    });
    assert!(outcome.is_err());
    let error = pending.wait().unwrap_err();
    let lost = match &error {
        // The thread had not begun with the call when the rank left.
        Error::Broken { cause, .. } => cause,
        error => error,
    };
    assert!(matches!(lost, Error::RankLost { rank: 0, panicked: true, .. }), "{error}");
    assert!(one.barrier().is_err());
}

/// Every rank waits for its handles in another order than it made the calls.
#[test]
fn handles_can_be_waited_for_in_any_order() {
    LocalComm::run(3, |comm| {
        let mut pending: Vec<_> =
            (0..20).map(|i| comm.all_reduce_in_place_async(vec![i; 10], &SUM)).enumerate().collect();
        if comm.rank() == 1 {
            pending.reverse();
        }
        pending.rotate_left(comm.rank());
        for (i, pending) in pending {
            assert_eq!(pending.wait().unwrap(), [3 * i as i32; 10]);
        }
    });
}

/// The same sequence of calls, each blocking on some ranks and non-blocking on others.
#[test]
fn blocking_and_nonblocking_calls_keep_their_order() {
    let rounds = if cfg!(miri) { 10 } else { 300 };
    LocalComm::run(3, |comm| {
        let mut pending = Vec::new();
        for i in 0..rounds {
            let value = vec![i as f64; 1 + i % 7];
            let expected = vec![3.0 * i as f64; 1 + i % 7];
            if (i * 5 + comm.rank() * 3) % 4 < 2 {
                let mut value = value;
                comm.all_reduce_in_place(&mut value, &SUM).unwrap();
                assert_eq!(value, expected);
            } else {
                pending.push((comm.all_reduce_in_place_async(value, &SUM), expected));
            }
        }
        for (pending, expected) in pending {
            assert_eq!(pending.wait().unwrap(), expected);
        }
    });
}

/// A blocking call behind a non-blocking one that cannot be done yet waits for it.
#[test]
fn a_blocking_call_does_not_overtake() {
    LocalComm::run(2, |comm| {
        if comm.rank() == 0 {
            let first = comm.broadcast_in_place_async(vec![1; 4], 0);
            let mut second = [2; 4];
            comm.broadcast_in_place(&mut second, 0).unwrap();
            assert!(first.is_finished());
        } else {
            std::thread::sleep(Duration::from_millis(10));
            let (mut first, mut second) = ([0; 4], [0; 4]);
            comm.broadcast_in_place(&mut first, 0).unwrap();
            comm.broadcast_in_place(&mut second, 0).unwrap();
            assert_eq!((first, second), ([1; 4], [2; 4]));
        }
    });
}

/// Which call comes first is the threads' affair; that all ranks are served is not.
#[test]
fn several_threads_of_a_rank_share_its_communicator() {
    let calls = if cfg!(miri) { 5 } else { 200 };
    LocalComm::run(3, |comm| {
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for i in 0..calls {
                        let mut one = [1_u8];
                        if i % 2 == 0 {
                            comm.all_reduce_in_place(&mut one, &SUM).unwrap();
                        } else {
                            one[0] = comm.all_reduce_in_place_async(one.to_vec(), &SUM).wait().unwrap()[0];
                        }
                        total.fetch_add(usize::from(one[0]), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 3 * 3 * calls);
    });
}

#[test]
fn messages_arrive_in_the_order_in_which_they_were_sent() {
    LocalComm::run(2, |comm| {
        if comm.rank() == 0 {
            let sends: Vec<_> = (0..50).map(|i| comm.send_async(vec![i; 3], 1)).collect();
            for (i, send) in sends.into_iter().enumerate() {
                assert_eq!(send.wait().unwrap(), [i as i32; 3]);
            }
        } else {
            for i in 0..50 {
                if i % 3 == 0 {
                    assert_eq!(comm.recv_async(vec![0; 3], 0).wait().unwrap(), [i; 3]);
                } else {
                    let mut buffer = [0; 3];
                    comm.recv(&mut buffer, 0).unwrap();
                    assert_eq!(buffer, [i; 3]);
                }
            }
        }
    });
}
