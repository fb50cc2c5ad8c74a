//! What the calls' spans say.

use std::thread;

use commtrace_collectives::nccl::{self, ReduceOp, unique_id};
use commtrace_collectives::{Communicator, NcclComm};
use commtrace_instrument::rank_scope;
use double_support::in_child;
use half::bf16;
use tracing::dispatcher;

use crate::job::{self, DEVICES};
use crate::seen::{Capture, Seen};

/// Runs two ranks, whose spans are noted.
fn noted(rank: impl Fn(&NcclComm) + Sync) -> Capture {
    let capture = Capture::default();
    let dispatch = capture.dispatch();
    job::ranks(2, |comm| dispatcher::with_default(&dispatch, || rank(&comm)));
    capture
}

fn ops(seen: &[Seen]) -> Vec<&str> {
    seen.iter().map(|seen| seen.op).collect()
}

#[test]
fn bytes_are_counted_as_nccl_tests_counts_them() {
    in_child("spans::bytes_are_counted_as_nccl_tests_counts_them", &[DEVICES], || {
        let capture = noted(|comm| {
            let stream = comm.stream();
            let short = stream.alloc_zeros::<bf16>(10).unwrap();
            let mut long = stream.alloc_zeros::<bf16>(20).unwrap();
            let mut part = stream.alloc_zeros::<bf16>(10).unwrap();
            comm.all_reduce(&short, &mut part, &ReduceOp::Sum).unwrap();
            comm.all_gather(&short, &mut long).unwrap();
            comm.reduce_scatter(&long, &mut part, &ReduceOp::Sum).unwrap();
            comm.broadcast(Some(&short), &mut part, 1).unwrap();
            comm.reduce(&short, Some(&mut part), &ReduceOp::Max, 0).unwrap();
            let send = stream.alloc_zeros::<bf16>(20).unwrap();
            comm.all_to_all(&send, &mut long).unwrap();
            comm.all_to_all_v(&short, &[2, 1], &mut part, if comm.rank() == 0 { &[2, 2] } else { &[1, 1] })
                .unwrap_or_else(|error| panic!("{error}"));
            Communicator::barrier(comm).unwrap();
        });
        let seen = capture.of_rank(1);
        let bytes: Vec<_> = seen.iter().map(|seen| (seen.op, seen.get("bytes").unwrap())).collect();
        let expected = [
            ("all_reduce", "20"),
            ("all_gather", "40"),
            ("reduce_scatter", "40"),
            ("broadcast", "20"),
            ("reduce", "20"),
            ("all_to_all", "40"),
            ("all_to_all_v", "6"),
            ("barrier", "0"),
        ];
        assert_eq!(bytes, expected);
        for (seq, seen) in seen.iter().enumerate() {
            assert_eq!(seen.get("seq"), Some(seq.to_string().as_str()), "{seen:?}");
            assert_eq!(seen.get("dtype"), (seen.op != "barrier").then_some("bfloat16"));
            assert_eq!((seen.entered, seen.left), (1, 1));
            assert_eq!((seen.get("comm_rank"), seen.get("comm_size")), (Some("1"), Some("2")));
        }
        assert_eq!(seen[3].get("peer"), Some("1"), "the root");
        assert_eq!(seen[0].get("peer"), None);
        let of_0 = capture.of_rank(0);
        assert_eq!(ops(&of_0), ops(&seen));
        assert_eq!(of_0[0].get("comm"), seen[0].get("comm"));
        assert!(seen[0].get("comm").unwrap().starts_with("0x"));
    });
}

#[test]
fn messages_have_a_peer_and_no_number() {
    in_child("spans::messages_have_a_peer_and_no_number", &[DEVICES], || {
        let capture = noted(|comm| {
            let mut buffer = comm.stream().alloc_zeros::<u8>(3).unwrap();
            if comm.rank() == 0 {
                comm.send(&buffer, 1).unwrap();
            } else {
                comm.recv(&mut buffer, 0).unwrap();
            }
            comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
        });
        for (rank, op) in ["send", "recv"].into_iter().enumerate() {
            let seen = capture.of_rank(rank);
            assert_eq!(ops(&seen), [op, "all_reduce"]);
            assert_eq!(seen[0].get("peer"), Some((1 - rank).to_string().as_str()));
            assert_eq!((seen[0].get("seq"), seen[1].get("seq")), (None, Some("0")));
        }
    });
}

#[test]
fn all_devices_of_a_process_are_ranks_of_one_communicator() {
    in_child("spans::all_devices_of_a_process_are_ranks_of_one_communicator", &[DEVICES], || {
        let capture = Capture::default();
        let streams: Vec<_> = (0..3).map(job::stream).collect();
        let comms = NcclComm::from_devices(streams.clone()).unwrap();
        let mut buffers: Vec<_> =
            streams.iter().map(|stream| stream.alloc_zeros::<f32>(4).unwrap()).collect();
        dispatcher::with_default(&capture.dispatch(), || {
            nccl::group_start().unwrap();
            for (comm, buffer) in comms.iter().zip(&mut buffers) {
                comm.all_reduce_in_place(buffer, &ReduceOp::Sum).unwrap();
            }
            nccl::group_end().unwrap();
        });
        for (rank, comm) in comms.iter().enumerate() {
            assert_eq!((comm.rank(), comm.world_size(), comm.global_rank()), (rank, 3, rank as u32));
            assert_eq!(comm.name(), comms[0].name());
            let seen = capture.of_rank(rank);
            assert_eq!(seen.len(), 1);
            assert_eq!(seen[0].get("grouped"), Some("true"));
            assert_eq!((seen[0].get("comm"), seen[0].get("seq")), (Some(comm.name()), Some("0")));
            assert_eq!((seen[0].entered, seen[0].left), (1, 1));
        }
        let other = NcclComm::from_devices(streams).unwrap();
        assert_ne!(other[0].name(), comms[0].name());
    });
}

#[test]
fn the_global_rank_is_that_of_the_job() {
    in_child("spans::the_global_rank_is_that_of_the_job", &[DEVICES], || {
        let capture = Capture::default();
        let (dispatch, id) = (capture.dispatch(), unique_id().unwrap());
        thread::scope(|scope| {
            for number in 0..2_u32 {
                let dispatch = &dispatch;
                scope.spawn(move || {
                    let _rank = rank_scope(6 + number);
                    let comm =
                        NcclComm::from_rank(job::stream(number as usize), number as usize, 2, id).unwrap();
                    let mut buffer = comm.stream().alloc_zeros::<f32>(1).unwrap();
                    dispatcher::with_default(dispatch, || comm.broadcast_in_place(&mut buffer, 0)).unwrap();
                });
            }
        });
        let seen = capture.of_rank(7);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].get("comm_rank"), seen[0].get("peer")), (Some("1"), Some("0")));
    });
}
