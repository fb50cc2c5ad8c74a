//! What goes wrong on one rank is an error on every rank.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use commtrace_collectives::{CallKind, Communicator, Error, Group, LocalComm, Op, ReduceOp, Result};

const SUM: ReduceOp = ReduceOp::Sum;

/// Every rank runs `call`, which must fail with the same error everywhere; then the communicator must work.
fn fails_everywhere(ranks: usize, call: impl Fn(&LocalComm) -> Result<()> + Sync) -> Error {
    let errors = LocalComm::builder(ranks).name("c").run(|comm| {
        let error = call(&comm).expect_err("the call must fail");
        let mut one = [1];
        comm.all_reduce_in_place(&mut one, &SUM).expect("still usable");
        assert_eq!(one, [ranks as i32]);
        error
    });
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    errors.into_iter().next().unwrap()
}

fn mismatch(error: &Error) -> (&'static str, Vec<(&str, &[u32])>) {
    let Error::Mismatch { what, values, .. } = error else { panic!("no mismatch: {error}") };
    (what, values.iter().map(|(value, ranks)| (value.as_str(), ranks.as_slice())).collect())
}

fn problems(error: &Error) -> Vec<(u32, &str)> {
    let Error::InvalidArgument { problems, .. } = error else { panic!("no invalid argument: {error}") };
    problems.iter().map(|(rank, problem)| (*rank, problem.as_str())).collect()
}

#[test]
fn different_operations() {
    let error = fails_everywhere(3, |comm| match comm.rank() {
        1 => comm.barrier(),
        _ => comm.all_reduce_in_place(&mut [0.0_f32; 4], &SUM),
    });
    assert_eq!(
        error.to_string(),
        "all_reduce (communicator c, seq 0): the ranks disagree on the operation: all_reduce on ranks 0 and \
         2; barrier on rank 1"
    );
}

#[test]
fn different_lengths() {
    let error = fails_everywhere(4, |comm| {
        comm.all_reduce_in_place(&mut vec![0.0_f32; if comm.rank() == 2 { 5 } else { 4 }], &SUM)
    });
    assert_eq!(mismatch(&error), ("length", vec![("4 elements", &[0, 1, 3][..]), ("5 elements", &[2][..])]));
    let error = fails_everywhere(2, |comm| {
        let len = comm.rank() + 1;
        comm.all_gather(&vec![0_u8; len], &mut vec![0; 2 * len])
    });
    assert_eq!(mismatch(&error).0, "length");
    let error = fails_everywhere(2, |comm| {
        let len = comm.rank() + 1;
        comm.reduce_scatter(&vec![0_u8; 2 * len], &mut vec![0; len], &SUM)
    });
    assert_eq!(mismatch(&error).0, "length");
    let error = fails_everywhere(2, |comm| {
        let len = 2 * (comm.rank() + 1);
        comm.all_to_all(&vec![0_u8; len], &mut vec![0; len])
    });
    assert_eq!(mismatch(&error).0, "length");
    let error = fails_everywhere(2, |comm| comm.broadcast_in_place(&mut vec![0_u8; comm.rank() + 1], 0));
    assert_eq!(mismatch(&error).0, "length");
    let error = fails_everywhere(2, |comm| comm.reduce_in_place(&mut vec![0_u8; comm.rank() + 1], &SUM, 0));
    assert_eq!(mismatch(&error).0, "length");
}

#[test]
fn different_types_reductions_and_roots() {
    let error = fails_everywhere(2, |comm| match comm.rank() {
        0 => comm.all_reduce_in_place(&mut [0.0_f32; 4], &SUM),
        _ => comm.all_reduce_in_place(&mut [0_i32; 4], &SUM),
    });
    assert_eq!(mismatch(&error), ("dtype", vec![("float32", &[0][..]), ("int32", &[1][..])]));
    let error = fails_everywhere(2, |comm| {
        comm.all_reduce_in_place(&mut [0_i32; 4], if comm.rank() == 0 { &SUM } else { &ReduceOp::Max })
    });
    assert_eq!(mismatch(&error), ("reduction", vec![("sum", &[0][..]), ("max", &[1][..])]));
    let error = fails_everywhere(3, |comm| comm.broadcast_in_place(&mut [0_i32; 4], comm.rank() % 2));
    assert_eq!(mismatch(&error), ("root", vec![("0", &[0, 2][..]), ("1", &[1][..])]));
}

#[test]
fn wrong_roots() {
    let error = fails_everywhere(3, |comm| {
        comm.broadcast_in_place(&mut [0_i32; 4], if comm.rank() == 1 { 3 } else { 0 })
    });
    assert_eq!(problems(&error), [(1, "root 3 is not a rank of a communicator of 3")]);
    let error = fails_everywhere(2, |comm| comm.reduce(&[0_i32; 4], None, &SUM, 7));
    assert_eq!(problems(&error).len(), 2);
    let error = fails_everywhere(2, |comm| comm.reduce(&[0_i32; 4], None, &SUM, 1));
    assert_eq!(problems(&error), [(1, "the root gave no recv buffer")]);
    let error = fails_everywhere(2, |comm| comm.broadcast(None, &mut [0_i32; 4], 0));
    assert_eq!(problems(&error), [(0, "the root gave no send buffer")]);
}

/// A rank whose own lengths do not fit each other. The others' calls are right.
#[test]
fn wrong_lengths_of_ones_own() {
    let wrong = |comm: &LocalComm| usize::from(comm.rank() == 1);
    type Attempt<'a> = &'a (dyn Fn(&LocalComm) -> Result<()> + Sync);
    let calls: [Attempt<'_>; 7] = [
        &|comm| comm.all_reduce(&[0_i32; 6], &mut vec![0; 6 + wrong(comm)], &SUM),
        &|comm| comm.all_gather(&[0_i32; 6], &mut vec![0; 12 + wrong(comm)]),
        &|comm| comm.reduce_scatter(&vec![0_i32; 12 + wrong(comm)], &mut [0; 6], &SUM),
        &|comm| comm.all_to_all(&[0_i32; 6], &mut vec![0; 6 + wrong(comm)]),
        &|comm| comm.all_to_all(&vec![0_i32; 6 + wrong(comm)], &mut vec![0; 6 + wrong(comm)]),
        &|comm| comm.reduce(&[0_i32; 6], Some(&mut vec![0; 6 + wrong(comm)]), &SUM, 1),
        &|comm| comm.broadcast(Some(&[0_i32; 6]), &mut vec![0; 6 + wrong(comm)], 1),
    ];
    for (index, call) in calls.iter().enumerate() {
        let error = fails_everywhere(2, call);
        assert_eq!(problems(&error).iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1], "call {index}");
    }
}

#[test]
fn wrong_counts() {
    // One entry too few, a sum beyond the buffer, a sum beyond what fits a usize.
    for counts in [&[1_usize][..], &[1, 2], &[usize::MAX, 2]] {
        let error = fails_everywhere(2, |comm| {
            let mine = if comm.rank() == 0 { counts } else { &[1, 1] };
            comm.all_to_all_v(&[0_u8; 2], mine, &mut [0; 2], &[1, 1])
        });
        assert_eq!(problems(&error).len(), 1, "{error}");
    }
    let error = fails_everywhere(3, |comm| {
        let recv_counts = if comm.rank() == 2 { [1, 0, 1] } else { [1, 1, 1] };
        comm.all_to_all_v(&[0_u8; 3], &[1, 1, 1], &mut [0; 3], &recv_counts)
    });
    let values = vec![("1 elements for the other", &[1][..]), ("0 expected", &[2][..])];
    assert_eq!(mismatch(&error), ("count", values));
}

#[test]
fn buffers_are_untouched_by_a_failed_call() {
    LocalComm::run(2, |comm| {
        let mut recv = vec![7; 3 + comm.rank()];
        comm.all_reduce(&vec![1; 3 + comm.rank()], &mut recv, &SUM).unwrap_err();
        assert!(recv.iter().all(|value| *value == 7));
        let pending = comm.all_reduce_in_place_async(vec![1; 3 + comm.rank()], &SUM);
        assert!(matches!(pending.wait(), Err(Error::Mismatch { .. })));
    });
}

#[test]
fn point_to_point_disagreements_fail_both_sides_only() {
    let results = LocalComm::run(3, |comm| {
        let length = match comm.rank() {
            0 => comm.send(&[1_i32; 3], 1),
            1 => comm.recv(&mut [0_i32; 4], 0),
            _ => Ok(()),
        };
        let dtype = match comm.rank() {
            0 => comm.send(&[1_i32; 3], 1),
            1 => comm.recv(&mut [0_f32; 3], 0),
            _ => Ok(()),
        };
        let mut received = [0];
        match comm.rank() {
            0 => comm.send(&[5], 1).unwrap(),
            1 => comm.recv(&mut received, 0).unwrap(),
            _ => {}
        }
        comm.barrier().unwrap();
        (length, dtype, received)
    });
    let (length, dtype, _) = &results[0];
    let length = length.as_ref().unwrap_err();
    assert_eq!(mismatch(length), ("length", vec![("3 elements", &[0][..]), ("4 elements", &[1][..])]));
    assert!(length.to_string().contains("send from rank 0 to rank 1"), "{length}");
    assert_eq!(mismatch(dtype.as_ref().unwrap_err()).0, "dtype");
    assert_eq!((&results[1].0, &results[1].1, results[1].2), (&results[0].0, &results[0].1, [5]));
    assert_eq!(results[2], (Ok(()), Ok(()), [0]));
}

#[test]
fn peers_that_cannot_be() {
    LocalComm::run(2, |comm| {
        assert_eq!(problems(&comm.send(&[0], 2).unwrap_err())[0].0, comm.rank() as u32);
        assert!(comm.recv(&mut [0], 9).is_err());
        assert!(comm.send_async(vec![0], 2).wait().is_err());
        let to_itself = comm.send(&[0], comm.rank()).unwrap_err();
        assert!(to_itself.to_string().contains("only within a group"), "{to_itself}");
        assert!(comm.group(|g| g.send(&[0], 5)).is_err());
        // None of these counts as a message.
        match comm.rank() {
            0 => comm.send(&[3], 1).unwrap(),
            _ => {
                let mut received = [0];
                comm.recv(&mut received, 0).unwrap();
                assert_eq!(received, [3]);
            }
        }
    });
}

#[test]
fn a_rank_that_dropped_its_communicator() {
    for late in [false, true] {
        let (tell, told) = mpsc::channel();
        let (tell, told) = (Mutex::new(tell), Mutex::new(told));
        let errors = LocalComm::builder(3).name("c").run(|comm| {
            comm.barrier().unwrap();
            if comm.rank() == 1 {
                if late {
                    // The others most likely wait by now.
                    std::thread::sleep(Duration::from_millis(30));
                }
                drop(comm);
                tell.lock().unwrap().send(()).unwrap();
                return None;
            }
            if !late && comm.rank() == 0 {
                told.lock().unwrap().recv().unwrap();
            }
            let first = comm.all_reduce_in_place(&mut [0.0_f32; 100], &SUM).unwrap_err();
            let later = comm.barrier().unwrap_err();
            Some((first, later))
        });
        for (first, later) in errors.into_iter().flatten() {
            let lost = match &first {
                Error::RankLost { .. } => &first,
                // Came after the other had found out.
                Error::Broken { cause, .. } => cause,
                other => panic!("{other}"),
            };
            let Error::RankLost { call, rank: 1, panicked: false } = lost else { panic!("{lost}") };
            assert_eq!(call.call, CallKind::Collective { op: Op::AllReduce, seq: 1 });
            let Error::Broken { cause, .. } = &later else { panic!("{later}") };
            assert_eq!(&**cause, lost);
        }
    }
}

/// A rank that leaves after its last call takes nothing from the others, however late they wake up.
#[test]
fn a_rank_that_leaves_in_the_end_is_no_error() {
    for _ in 0..if cfg!(miri) { 2 } else { 200 } {
        for result in LocalComm::run(4, |comm| comm.all_reduce_in_place(&mut [1.0_f32; 9], &SUM)) {
            result.unwrap();
        }
    }
}

#[test]
fn a_panic_reaches_the_waiting_ranks_and_the_caller_of_run() {
    let seen = Mutex::new(Vec::new());
    let panic = catch_unwind(AssertUnwindSafe(|| {
        LocalComm::run(3, |comm| {
            if comm.rank() == 2 {
                panic!("planted");
            }
            let error = comm.all_reduce_in_place(&mut [0.0_f32; 500], &SUM).unwrap_err();
            seen.lock().unwrap().push(error.clone());
            panic!("follows from {error}");
        })
    }))
    .unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"planted"));
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), 2);
    assert!(
        seen.iter().any(|error| matches!(error, Error::RankLost { rank: 2, panicked: true, .. })),
        "{seen:?}"
    );
}

#[test]
fn a_timeout_names_the_missing_ranks_the_operation_and_the_number() {
    let timeout = Duration::from_millis(500);
    let (tell, told) = mpsc::channel();
    let (tell, told) = (Mutex::new(tell), Mutex::new(told));
    let errors = LocalComm::builder(3).name("c").timeout(timeout).run(|comm| {
        comm.barrier().unwrap();
        comm.barrier().unwrap();
        if comm.rank() == 0 {
            told.lock().unwrap().recv().unwrap();
        }
        let error = comm.reduce_scatter(&[0_u8; 3], &mut [0], &SUM).unwrap_err();
        if comm.rank() == 1 {
            tell.lock().unwrap().send(()).unwrap();
        }
        error
    });
    let expected =
        "reduce_scatter (communicator c, seq 2): waited 500ms for rank 0, which did not make the call";
    assert_eq!(errors[1], errors[2]);
    assert_eq!(errors[1].to_string(), expected);
    let Error::Timeout { missing, .. } = &errors[1] else { panic!("{}", errors[1]) };
    assert_eq!(missing, &[0]);
    // The late rank learns what it did.
    let Error::Broken { cause, .. } = &errors[0] else { panic!("{}", errors[0]) };
    assert_eq!(**cause, errors[1]);
}

#[test]
fn a_message_without_an_other_side_times_out() {
    let errors = LocalComm::builder(2).name("c").timeout(Duration::from_millis(30)).run(|comm| {
        // Both send first: the deadlock that groups are for.
        comm.send(&[1], 1 - comm.rank()).unwrap_err()
    });
    assert!(errors.iter().any(|error| matches!(error, Error::Timeout { .. })), "{errors:?}");
    let error = errors.iter().find(|error| matches!(error, Error::Timeout { .. })).unwrap().to_string();
    assert!(error.contains("(communicator c, message 0): waited 30ms for rank"), "{error}");
}

#[test]
fn a_receive_from_a_rank_that_left_fails_at_once() {
    let errors = LocalComm::run(2, |comm| match comm.rank() {
        0 => None,
        _ => comm.recv(&mut [0], 0).err(),
    });
    assert!(matches!(errors[1], Some(Error::RankLost { rank: 0, .. })), "{errors:?}");
}

/// The error ends this communicator, not those that were split from it before.
#[test]
fn a_broken_communicator_leaves_its_parts_alone() {
    LocalComm::run(4, |world| {
        let pair = world.split(world.rank() as u32 / 2, 0).unwrap();
        if world.rank() == 3 {
            drop(world);
        } else {
            world.barrier().unwrap_err();
        }
        let mut one = [1];
        pair.all_reduce_in_place(&mut one, &SUM).unwrap();
        assert_eq!(one, [2]);
    });
}

#[test]
fn host_copies_of_another_length() {
    let comm = LocalComm::world(1).remove(0);
    let mut buffer = comm.alloc_zeros::<f32>(3).unwrap();
    assert_eq!(comm.write(&[1.0], &mut buffer), Err(Error::CopyLength { from: 1, to: 3 }));
    assert_eq!(comm.read(&buffer, &mut [0.0; 2]), Err(Error::CopyLength { from: 3, to: 2 }));
}

#[test]
fn a_world_of_no_ranks_is_empty() {
    assert!(LocalComm::world(0).is_empty());
    assert!(LocalComm::run(0, |_| ()).is_empty());
}
