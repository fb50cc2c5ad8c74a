//! Calls that are launched together.

use std::sync::mpsc;
use std::thread;

use commtrace_collectives::nccl::{self, ReduceOp};
use commtrace_collectives::{Communicator, Error, Group, Result};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use double_support::in_child;
use tracing::dispatcher;

use crate::job::{self, DEVICES};
use crate::seen::Capture;

#[test]
fn a_ring_of_messages_in_a_group_does_not_block() {
    in_child("groups::a_ring_of_messages_in_a_group_does_not_block", &[DEVICES], || {
        let received = job::ranks(3, |comm| {
            let (right, left) = ((comm.rank() + 1) as i32 % 3, (comm.rank() + 2) as i32 % 3);
            let stream = comm.stream();
            let mine = stream.clone_htod(&[comm.rank() as i32; 1000]).unwrap();
            let mut theirs = stream.alloc_zeros::<i32>(1000).unwrap();
            comm.group(|g| {
                g.send(mine.as_view(), right)?;
                g.recv(theirs.as_view_mut(), left)?;
                Ok(())
            })
            .unwrap();
            stream.clone_dtoh(&theirs).unwrap()[999]
        });
        assert_eq!(received, [2, 0, 1]);
    });
}

#[test]
fn the_calls_of_a_group_are_marked_and_timed_once() {
    in_child("groups::the_calls_of_a_group_are_marked_and_timed_once", &[DEVICES], || {
        let capture = Capture::default();
        let dispatch = capture.dispatch();
        job::ranks(2, |comm| {
            dispatcher::with_default(&dispatch, || {
                let mut sum = comm.alloc_from(&[1.0_f32, comm.rank() as f32]).unwrap();
                let mut root = comm.alloc_from(&[comm.rank() as u8; 3]).unwrap();
                let generic = Communicator::group(&comm, |g| {
                    Group::all_reduce_in_place(g, &mut sum, &ReduceOp::Sum)?;
                    Group::broadcast_in_place(g, &mut root, 1)
                });
                generic.unwrap();
                Communicator::all_reduce_in_place(&comm, &mut sum, &ReduceOp::Max).unwrap();
                assert_eq!(comm.to_vec(&sum).unwrap(), [2.0, 1.0]);
                assert_eq!(comm.to_vec(&root).unwrap(), [1; 3]);
            });
        });
        let seen = capture.of_rank(0);
        let said: Vec<_> =
            seen.iter().map(|seen| (seen.op, seen.get("seq").unwrap(), seen.get("grouped"))).collect();
        let expected =
            [("all_reduce", "0", Some("true")), ("broadcast", "1", Some("true")), ("all_reduce", "2", None)];
        assert_eq!(said, expected);
        assert!(seen.iter().all(|seen| (seen.entered, seen.left) == (1, 1)), "{seen:?}");
    });
}

#[test]
fn groups_nest_and_the_outermost_end_launches() {
    in_child("groups::groups_nest_and_the_outermost_end_launches", &[DEVICES], || {
        let capture = Capture::default();
        let dispatch = capture.dispatch();
        job::ranks(2, |comm| {
            dispatcher::with_default(&dispatch, || {
                let stream = comm.stream();
                let mut first = stream.clone_htod(&[1_i32]).unwrap();
                let mut second = stream.clone_htod(&[2_i32]).unwrap();
                nccl::group_start().unwrap();
                comm.group(|g| g.all_reduce_in_place(first.as_view_mut(), &ReduceOp::Sum)).unwrap();
                assert_eq!(capture.of_rank(comm.rank())[0].entered, 0, "the group goes on");
                comm.all_reduce_in_place(&mut second, &ReduceOp::Sum).unwrap();
                nccl::group_end().unwrap();
                assert!(capture.of_rank(comm.rank()).iter().all(|seen| seen.left == 1));
                assert_eq!(stream.clone_dtoh(&first).unwrap(), [2]);
                assert_eq!(stream.clone_dtoh(&second).unwrap(), [4]);
            });
        });
    });
}

#[test]
fn calls_before_an_error_are_launched() {
    in_child("groups::calls_before_an_error_are_launched", &[DEVICES], || {
        job::ranks(2, |comm| {
            let stream = comm.stream();
            let mut sum = stream.clone_htod(&[1_i32]).unwrap();
            let short = stream.alloc_zeros::<i32>(1).unwrap();
            let mut none = stream.alloc_zeros::<i32>(1).unwrap();
            let result: Result<()> = comm.group(|g| {
                g.all_reduce_in_place(sum.as_view_mut(), &ReduceOp::Sum)?;
                g.all_gather(short.as_view(), none.as_view_mut())?;
                Ok(())
            });
            let error = result.unwrap_err().to_string();
            assert!(error.contains("recv has 1 elements, the call needs 2"), "{error}");
            assert_eq!(stream.clone_dtoh(&sum).unwrap(), [2]);
            // The communicator is as good as before, and so is the thread.
            comm.all_reduce_in_place(&mut sum, &ReduceOp::Sum).unwrap();
            assert_eq!(stream.clone_dtoh(&sum).unwrap(), [4]);
        });
    });
}

#[test]
fn a_communicator_in_an_open_group_belongs_to_its_thread() {
    in_child("groups::a_communicator_in_an_open_group_belongs_to_its_thread", &[DEVICES], || {
        job::ranks(1, |comm| {
            let (sender, receiver) = mpsc::channel();
            let (ended, go_on) = mpsc::channel::<()>();
            let mut buffer = comm.stream().alloc_zeros::<f32>(1).unwrap();
            thread::scope(|scope| {
                scope.spawn(move || {
                    nccl::group_start().unwrap();
                    comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
                    sender.send((comm, buffer)).unwrap();
                    go_on.recv().unwrap();
                    nccl::group_end().unwrap();
                });
                let (comm, mut buffer) = receiver.recv().unwrap();
                let error = comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).map(drop).unwrap_err();
                assert!(matches!(&error, Error::InvalidArgument { .. }), "{error}");
                assert!(error.to_string().contains("another thread"), "{error}");
                ended.send(()).unwrap();
            });
        });
    });
}

#[test]
fn a_captured_call_runs_with_its_graph() {
    in_child("groups::a_captured_call_runs_with_its_graph", &[DEVICES], || {
        let capture = Capture::default();
        let dispatch = capture.dispatch();
        job::ranks(2, |comm| {
            let stream = comm.stream();
            let mut sum = stream.clone_htod(&[1.0_f32, 3.0]).unwrap();
            stream.synchronize().unwrap();
            // cudarc would make the captured stream wait for events from before the capture.
            // SAFETY: one stream uses the buffer.
            unsafe { stream.context().disable_event_tracking() };
            stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
            let call =
                dispatcher::with_default(&dispatch, || comm.all_reduce_in_place(&mut sum, &ReduceOp::Sum));
            let graph =
                stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
            call.unwrap();
            let graph = graph.unwrap().unwrap();
            assert_eq!(stream.clone_dtoh(&sum).unwrap(), [1.0, 3.0], "only captured so far");
            graph.launch().unwrap();
            graph.launch().unwrap();
            assert_eq!(stream.clone_dtoh(&sum).unwrap(), [4.0, 12.0]);
        });
        assert_eq!(capture.of_rank(0).len(), 1);
    });
}

#[test]
fn a_non_blocking_call_in_a_group_is_refused() {
    in_child("groups::a_non_blocking_call_in_a_group_is_refused", &[DEVICES], || {
        job::ranks(1, |comm| {
            let buffer = comm.alloc_from(&[1.0_f32]).unwrap();
            nccl::group_start().unwrap();
            let pending = comm.all_reduce_in_place_async(buffer, &ReduceOp::Sum);
            nccl::group_end().unwrap();
            assert!(pending.is_finished());
            assert!(pending.wait().unwrap_err().to_string().contains("cannot be part of a group"));
            // One end too many is NCCL's error, and nothing worse.
            assert!(matches!(nccl::group_end(), Err(Error::Native { library: "NCCL", .. })));
        });
    });
}
