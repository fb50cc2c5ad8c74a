//! What the stand-in NCCL does when ranks are slow, gone, or disagree.

use crate::common::{of_kind, streams};
use crate::nccl::{address, on_ranks, on_raw_ranks};
use cudarc::driver::CudaContext;
use cudarc::nccl::sys::{self, ncclResult_t};
use cudarc::nccl::{Comm, Id, ReduceOp};
use double_support::{in_child, test_name};
use std::ffi::CStr;

/// What the communicator says of its state.
fn async_error(comm: sys::ncclComm_t) -> ncclResult_t {
    let mut error = ncclResult_t::ncclSuccess;
    // SAFETY: a place for the result.
    assert_eq!(unsafe { sys::ncclCommGetAsyncError(comm, &mut error) }, ncclResult_t::ncclSuccess);
    error
}

#[test]
fn a_slow_rank_is_late_for_each_collective() {
    let Some(run) = in_child(test_name!(), &[("DOUBLE_NCCL_SLOW_RANK", "1:40000000")], || {
        on_ranks(2, |comm, stream| {
            let mut buffer = stream.clone_htod(&[1_u8]).unwrap();
            for _ in 0..2 {
                comm.all_reduce_in_place(&mut buffer, &ReduceOp::Max).unwrap();
            }
        });
    }) else {
        return;
    };
    let pieces = of_kind(&run.pieces, "nccl");
    assert_eq!(pieces.len(), 4);
    assert!(pieces.iter().filter(|piece| piece.device == 1).all(|piece| piece.duration_ns() >= 40_000_000));
}

#[test]
fn a_collective_takes_the_time_that_was_asked_for() {
    let Some(run) = in_child(test_name!(), &[("DOUBLE_NCCL_TRANSFER_NS", "30000000")], || {
        on_ranks(2, |comm, stream| {
            let mut buffer = stream.clone_htod(&[1_u8]).unwrap();
            comm.broadcast_in_place(&mut buffer, 1).unwrap();
        });
    }) else {
        return;
    };
    let pieces = of_kind(&run.pieces, "nccl");
    let last_start = pieces.iter().map(|piece| piece.start_ns).max().unwrap();
    assert!(pieces.iter().all(|piece| piece.end_ns - last_start >= 30_000_000), "{pieces:?}");
}

#[test]
fn ranks_that_disagree_get_an_error_and_the_device_goes_on() {
    in_child(test_name!(), &[], || {
        on_raw_ranks(2, |comm, rank, stream| {
            let buffer = stream.alloc_zeros::<f32>(8).unwrap();
            let at = address(&buffer, stream);
            let (float, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
            let all_reduce = |count| {
                // SAFETY: the buffer has eight elements.
                unsafe { sys::ncclAllReduce(at, at, count, float, sum, comm, stream.cu_stream().cast()) }
            };
            assert_eq!(all_reduce(4 + rank), ncclResult_t::ncclSuccess, "the call itself is fine");
            stream.synchronize().unwrap();
            assert_eq!(async_error(comm), ncclResult_t::ncclInvalidUsage);
            assert_eq!(all_reduce(4), ncclResult_t::ncclInvalidUsage, "the communicator is broken");
            // SAFETY: the text lives as long as the library.
            let text = unsafe { CStr::from_ptr(sys::ncclGetLastError(comm)) }.to_string_lossy();
            assert!(text.contains("ranks disagree"), "{text}");
        });
    });
}

#[test]
fn an_abort_ends_a_collective_that_waits_for_a_rank() {
    in_child(test_name!(), &[], || {
        on_raw_ranks(2, |comm, rank, stream| {
            if rank == 1 {
                // Does not take part; destroying it later finds nothing to wait for.
                return;
            }
            let buffer = stream.alloc_zeros::<f32>(8).unwrap();
            let at = address(&buffer, stream);
            let (float, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
            // SAFETY: the buffer has eight elements; the second communicator is not used after.
            unsafe {
                sys::ncclAllReduce(at, at, 8, float, sum, comm, stream.cu_stream().cast());
            }
            // Either the abort or the other rank's leaving ends it, in any case it ends.
            let id = cudarc::nccl::result::get_uniqueid().unwrap();
            let mut alone = std::ptr::null_mut();
            // SAFETY: as above.
            unsafe {
                assert_eq!(sys::ncclCommInitRank(&mut alone, 1, id, 0), ncclResult_t::ncclSuccess);
                assert_eq!(sys::ncclCommAbort(alone), ncclResult_t::ncclSuccess);
            }
            stream.synchronize().unwrap();
        });
        // One that waits and nobody else: only the abort can end it.
        let id = Id::new().unwrap();
        let streams = streams(2);
        let (stay, leave) = std::sync::mpsc::channel::<()>();
        let (first, second) = (streams[0].clone(), streams[1].clone());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                second.context().bind_to_thread().unwrap();
                let comm = Comm::from_rank(second, 1, 2, id).unwrap();
                let _ = leave.recv();
                drop(comm);
            });
            first.context().bind_to_thread().unwrap();
            let comm = Comm::from_rank(first.clone(), 0, 2, id).unwrap();
            let mut buffer = first.alloc_zeros::<f32>(8).unwrap();
            comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
            // cudarc aborts what it drops.
            drop(comm);
            first.synchronize().unwrap();
            drop(stay);
        });
    });
}

#[test]
fn two_ranks_do_not_share_a_device_unless_asked() {
    for shared in ["0", "1"] {
        in_child(test_name!(), &[("NCCL_MULTI_RANK_GPU_ENABLE", shared)], || {
            if std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").unwrap() != shared {
                return;
            }
            let id = Id::new().unwrap();
            let made: Vec<bool> = std::thread::scope(|scope| {
                let rank = |rank: usize| {
                    move || {
                        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
                        let comm = Comm::from_rank(stream.clone(), rank, 2, id);
                        let Ok(comm) = comm else { return false };
                        let mut buffer = stream.clone_htod(&[1_i32]).unwrap();
                        comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
                        stream.clone_dtoh(&buffer).unwrap() == [2]
                    }
                };
                let threads = [scope.spawn(rank(0)), scope.spawn(rank(1))];
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(made, [shared == "1"; 2]);
        });
    }
}

#[test]
fn wrong_arguments_are_refused() {
    in_child(test_name!(), &[], || {
        let null: sys::ncclComm_t = std::ptr::null_mut();
        let id = cudarc::nccl::result::get_uniqueid().unwrap();
        let mut comm = null;
        // SAFETY: the stand-in checks handles, ids and numbers.
        unsafe {
            assert_eq!(sys::ncclCommDestroy(null), ncclResult_t::ncclInvalidArgument);
            assert_eq!(sys::ncclCommInitRank(&mut comm, 2, id, 2), ncclResult_t::ncclInvalidArgument);
            let foreign = sys::ncclUniqueId { internal: [1; 128] };
            assert_eq!(sys::ncclCommInitRank(&mut comm, 1, foreign, 0), ncclResult_t::ncclInvalidArgument);
            assert_eq!(sys::ncclGroupEnd(), ncclResult_t::ncclInvalidUsage);
            let text = CStr::from_ptr(sys::ncclGetErrorString(ncclResult_t::ncclInvalidUsage));
            assert_eq!(text.to_str().unwrap(), "invalid usage");
        }
    });
}
