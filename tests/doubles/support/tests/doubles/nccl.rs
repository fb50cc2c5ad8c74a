//! Collectives of the stand-in NCCL among threads, against plain arithmetic.

use crate::common::{Gate, of_kind, streams};
use crate::values::{Type, numbers};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use cudarc::nccl::sys::{self, ncclComm_t, ncclResult_t};
use cudarc::nccl::{Comm, Id, ReduceOp, group_end, group_start};
use double_support::{in_child, test_name};
use std::sync::Arc;

/// Runs `body` as each of the ranks, on threads with a device each; the results in the order of ranks.
pub fn on_ranks<R: Send>(ranks: usize, body: impl Fn(&Comm, &Arc<CudaStream>) -> R + Sync) -> Vec<R> {
    let id = Id::new().unwrap();
    let (body, streams) = (&body, streams(ranks));
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(rank, stream)| {
                scope.spawn(move || {
                    stream.context().bind_to_thread().unwrap();
                    let comm = Comm::from_rank(stream.clone(), rank, ranks, id).unwrap();
                    let result = body(&comm, &stream);
                    stream.synchronize().unwrap();
                    result
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The rank's raw communicator beside cudarc's, which keeps its own private.
pub fn on_raw_ranks<R: Send>(
    ranks: usize,
    body: impl Fn(ncclComm_t, usize, &Arc<CudaStream>) -> R + Sync,
) -> Vec<R> {
    let id = cudarc::nccl::result::get_uniqueid().unwrap();
    let (body, streams) = (&body, streams(ranks));
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(rank, stream)| {
                scope.spawn(move || {
                    stream.context().bind_to_thread().unwrap();
                    let mut comm = std::ptr::null_mut();
                    // SAFETY: a place for the communicator; all ranks come.
                    let made = unsafe { sys::ncclCommInitRank(&mut comm, ranks as i32, id, rank as i32) };
                    assert_eq!(made, ncclResult_t::ncclSuccess);
                    let result = body(comm, rank, &stream);
                    // SAFETY: the communicator is this thread's own.
                    assert_eq!(unsafe { sys::ncclCommDestroy(comm) }, ncclResult_t::ncclSuccess);
                    result
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub fn address<T>(slice: &CudaSlice<T>, stream: &CudaStream) -> *mut std::ffi::c_void {
    slice.device_ptr(stream).0 as *mut _
}

const THREE: &[(&str, &str)] = &[("DOUBLE_CUDA_DEVICES", "3")];

#[test]
fn the_library_is_found_with_its_version() {
    in_child(test_name!(), &[("DOUBLE_NCCL_VERSION", "22703")], || {
        assert_eq!(cudarc::nccl::result::get_nccl_version().unwrap(), 22_703);
    });
}

#[test]
fn reductions_of_all_types_are_plain_arithmetic() {
    in_child(test_name!(), THREE, || {
        const COUNT: usize = 7;
        let value = |rank: usize, at: usize| ((rank + at) % 4 + 1) as f64;
        type Plain = fn(&[f64]) -> f64;
        let operations: [(i32, Plain); 5] = [
            (0, |x| x.iter().sum()),
            (1, |x| x.iter().product()),
            (2, |x| x.iter().copied().fold(f64::MIN, f64::max)),
            (3, |x| x.iter().copied().fold(f64::MAX, f64::min)),
            (4, |x| x.iter().sum::<f64>() / x.len() as f64),
        ];
        on_raw_ranks(3, |comm, rank, stream| {
            for data_type in Type::ALL {
                let mine: Vec<u8> = (0..COUNT).flat_map(|at| data_type.encode(value(rank, at))).collect();
                let send = stream.clone_htod(&mine).unwrap();
                let receive = stream.alloc_zeros::<u8>(mine.len()).unwrap();
                for (operation, plain) in operations {
                    // SAFETY: both enumerations have these numbers; the buffers are as long as said.
                    let code = unsafe {
                        sys::ncclAllReduce(
                            address(&send, stream),
                            address(&receive, stream),
                            COUNT,
                            std::mem::transmute::<u32, sys::ncclDataType_t>(data_type.code()),
                            std::mem::transmute::<i32, sys::ncclRedOp_t>(operation),
                            comm,
                            stream.cu_stream().cast(),
                        )
                    };
                    assert_eq!(code, ncclResult_t::ncclSuccess);
                    let expected: Vec<u8> = (0..COUNT)
                        .flat_map(|at| data_type.encode(plain(&[0, 1, 2].map(|rank| value(rank, at)))))
                        .collect();
                    let got = stream.clone_dtoh(&receive).unwrap();
                    assert_eq!(got, expected, "{data_type:?}, operation {operation}");
                }
            }
        });
    });
}

#[test]
fn all_ranks_get_the_same_bits_of_a_long_sum() {
    in_child(test_name!(), THREE, || {
        // Longer than what sockets buffer, and not a multiple of the number of ranks.
        let parts: Vec<Vec<f32>> = (0..3).map(|rank| numbers(rank, 1_000_001)).collect();
        let plain: Vec<f32> =
            (0..parts[0].len()).map(|at| (parts[0][at] + parts[1][at]) + parts[2][at]).collect();
        let results = on_ranks(3, |comm, stream| {
            let mut buffer = stream.clone_htod(&parts[comm.rank()]).unwrap();
            comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
            stream.clone_dtoh(&buffer).unwrap()
        });
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for result in results {
            assert!(bits(&result) == bits(&plain));
        }
    });
}

#[test]
fn every_collective_moves_what_it_should() {
    in_child(test_name!(), THREE, || {
        let part = |rank: usize| vec![rank as i32 + 1, 10 * (rank as i32 + 1)];
        on_ranks(3, |comm, stream| {
            let rank = comm.rank();
            let send = stream.clone_htod(&part(rank)).unwrap();
            let mut two = stream.alloc_zeros::<i32>(2).unwrap();
            let mut six = stream.alloc_zeros::<i32>(6).unwrap();
            let read = |slice: &CudaSlice<i32>| stream.clone_dtoh(slice).unwrap();

            comm.all_reduce(&send, &mut two, &ReduceOp::Sum).unwrap();
            assert_eq!(read(&two), [6, 60]);
            comm.all_gather(&send, &mut six).unwrap();
            assert_eq!(read(&six), [1, 10, 2, 20, 3, 30]);
            comm.broadcast((rank == 1).then_some(&send), &mut two, 1).unwrap();
            assert_eq!(read(&two), [2, 20]);
            let mut in_place = send.clone();
            comm.broadcast_in_place(&mut in_place, 2).unwrap();
            assert_eq!(read(&in_place), [3, 30]);
            stream.memset_zeros(&mut two).unwrap();
            comm.reduce(&send, (rank == 2).then_some(&mut two), &ReduceOp::Max, 2).unwrap();
            assert_eq!(read(&two), if rank == 2 { [3, 30] } else { [0, 0] });
            comm.reduce_scatter(&six, &mut two, &ReduceOp::Sum).unwrap();
            assert_eq!(read(&two), part(rank).iter().map(|x| 3 * x).collect::<Vec<_>>());
        });
    });
}

#[test]
fn all_to_all_and_gather_and_scatter_are_native() {
    in_child(test_name!(), THREE, || {
        on_raw_ranks(3, |comm, rank, stream| {
            let mine: Vec<i32> = (0..3).map(|to| 100 * rank as i32 + to).collect();
            let send = stream.clone_htod(&mine).unwrap();
            let receive = stream.alloc_zeros::<i32>(3).unwrap();
            let (from, to) = (address(&send, stream), address(&receive, stream));
            let (int, s) = (sys::ncclDataType_t::ncclInt32, stream.cu_stream().cast());
            let read = || stream.clone_dtoh(&receive).unwrap();
            let me = rank as i32;
            // SAFETY: buffers of three elements each, of which each rank has one.
            unsafe {
                assert_eq!(sys::ncclAlltoAll(from, to, 1, int, comm, s), ncclResult_t::ncclSuccess);
                assert_eq!(read(), [me, 100 + me, 200 + me]);
                assert_eq!(sys::ncclScatter(from, to, 1, int, 1, comm, s), ncclResult_t::ncclSuccess);
                assert_eq!(read()[0], 100 + me);
                assert_eq!(sys::ncclGather(from, to, 1, int, 1, comm, s), ncclResult_t::ncclSuccess);
                let gathered = if rank == 1 { vec![0, 100, 200] } else { vec![100 + me, 100 + me, 200 + me] };
                assert_eq!(read(), gathered);
            }
        });
    });
}

#[test]
fn a_library_of_an_older_version_has_no_all_to_all() {
    in_child(test_name!(), &[("DOUBLE_NCCL_MISSING", "ncclAlltoAll")], || {
        // SAFETY: opening the stand-in runs nothing but its initializers, and symbols are only looked up.
        unsafe {
            let library = libloading::Library::new("libnccl.so.2").unwrap();
            assert!(library.get::<unsafe extern "C" fn()>("ncclAlltoAll").is_err());
            assert!(library.get::<unsafe extern "C" fn()>("ncclAllReduce").is_ok());
        }
    });
}

#[test]
fn sends_and_receives_of_a_group_progress_together() {
    let Some(run) = in_child(test_name!(), THREE, || {
        on_ranks(3, |comm, stream| {
            let rank = comm.rank();
            let (next, before) = ((rank + 1) % 3, (rank + 2) % 3);
            // All send first: without a group, and with more than sockets buffer, nobody would receive.
            let send = stream.clone_htod(&vec![rank as u64; 500_000]).unwrap();
            let mut receive = stream.alloc_zeros::<u64>(500_000).unwrap();
            let mut own = stream.alloc_zeros::<u64>(1).unwrap();
            group_start().unwrap();
            comm.send(&send, next as i32).unwrap();
            comm.send(&send.slice(..1), rank as i32).unwrap();
            comm.recv(&mut own, rank as i32).unwrap();
            comm.recv(&mut receive, before as i32).unwrap();
            group_end().unwrap();
            assert!(stream.clone_dtoh(&receive).unwrap().iter().all(|value| *value == before as u64));
            assert_eq!(stream.clone_dtoh(&own).unwrap(), [rank as u64]);
        });
    }) else {
        return;
    };
    let pieces = of_kind(&run.pieces, "nccl");
    assert!(pieces.len() == 3 && pieces.iter().all(|piece| piece.name == "group"), "{pieces:?}");
}

#[test]
fn one_thread_drives_all_devices_in_groups() {
    in_child(test_name!(), THREE, || {
        let streams = streams(3);
        let comms = Comm::from_devices(streams.clone()).unwrap();
        let sends: Vec<_> =
            streams.iter().zip(1_i64..).map(|(s, x)| s.clone_htod(&[x, -x]).unwrap()).collect();
        let mut receives: Vec<_> = streams.iter().map(|s| s.alloc_zeros::<i64>(2).unwrap()).collect();
        group_start().unwrap();
        group_start().unwrap();
        for ((comm, send), receive) in comms.iter().zip(&sends).zip(&mut receives) {
            comm.all_reduce(send, receive, &ReduceOp::Sum).unwrap();
        }
        group_end().unwrap();
        // Nested groups take effect with the outermost.
        for (comm, receive) in comms.iter().zip(&mut receives) {
            comm.broadcast_in_place(receive, 0).unwrap();
        }
        group_end().unwrap();
        for (stream, receive) in streams.iter().zip(&receives) {
            assert_eq!(stream.clone_dtoh(receive).unwrap(), [6, -6]);
        }
    });
}

#[test]
fn a_collective_starts_when_its_stream_comes_to_it_and_ends_when_all_are_through() {
    let Some(run) = in_child(test_name!(), &[], || {
        on_ranks(2, |comm, stream| {
            let mut buffer = stream.clone_htod(&[1.0_f32]).unwrap();
            let gate = (comm.rank() == 1).then(|| Gate::on(stream));
            comm.all_reduce_in_place(&mut buffer, &ReduceOp::Avg).unwrap();
            if let Some(gate) = gate {
                gate.open();
            }
            assert_eq!(stream.clone_dtoh(&buffer).unwrap(), [1.0]);
        });
    }) else {
        return;
    };
    let late = of_kind(&run.pieces, "host")[0];
    let pieces = of_kind(&run.pieces, "nccl");
    let of_rank = |device: i32| *pieces.iter().find(|piece| piece.device == device).unwrap();
    let (waits, comes_late) = (of_rank(0), of_rank(1));
    assert_eq!(comes_late.start_ns, late.end_ns, "it starts as the work before it ends");
    assert!(waits.end_ns >= comes_late.start_ns, "the early rank waits for the late one");
    assert_eq!((waits.name.as_str(), run.counts.of("cuStreamSynchronize") > 0), ("all_reduce", true));
}

#[test]
fn communicators_split_by_color_and_order_by_key() {
    in_child(test_name!(), &[("DOUBLE_CUDA_DEVICES", "4")], || {
        let seen = on_raw_ranks(4, |comm, rank, stream| {
            let mut part = std::ptr::null_mut();
            let color = if rank == 3 { -1 } else { (rank % 2) as i32 };
            // Higher ranks first.
            // SAFETY: a place for the communicator, and no configuration.
            let code =
                unsafe { sys::ncclCommSplit(comm, color, -(rank as i32), &mut part, std::ptr::null_mut()) };
            assert_eq!(code, ncclResult_t::ncclSuccess);
            if part.is_null() {
                return None;
            }
            let (mut new_rank, mut size) = (0, 0);
            let buffer = stream.clone_htod(&[rank as i32]).unwrap();
            let at = address(&buffer, stream);
            let (int, sum) = (sys::ncclDataType_t::ncclInt32, sys::ncclRedOp_t::ncclSum);
            // SAFETY: places for the results, and a buffer of one element.
            unsafe {
                sys::ncclCommUserRank(part, &mut new_rank);
                sys::ncclCommCount(part, &mut size);
                let code = sys::ncclAllReduce(at, at, 1, int, sum, part, stream.cu_stream().cast());
                assert_eq!(code, ncclResult_t::ncclSuccess);
            }
            let sum = stream.clone_dtoh(&buffer).unwrap()[0];
            // SAFETY: the communicator is this thread's own.
            unsafe { sys::ncclCommDestroy(part) };
            Some((new_rank, size, sum))
        });
        assert_eq!(seen, [Some((1, 2, 2)), Some((0, 1, 1)), Some((0, 2, 2)), None]);
    });
}

#[test]
fn each_rank_may_scale_its_part_of_a_sum() {
    in_child(test_name!(), &[], || {
        on_raw_ranks(2, |comm, rank, stream| {
            let mut scalar = [0.5_f32, 3.0][rank];
            let send = stream.clone_htod(&[2.0_f32]).unwrap();
            let receive = stream.alloc_zeros::<f32>(1).unwrap();
            let float = sys::ncclDataType_t::ncclFloat32;
            let immediate = sys::ncclScalarResidence_t::ncclScalarHostImmediate;
            // The reduction's number is none of cudarc's, so the call goes around its type.
            type AllReduce = unsafe extern "C" fn(
                *const std::ffi::c_void,
                *mut std::ffi::c_void,
                usize,
                sys::ncclDataType_t,
                i32,
                ncclComm_t,
                sys::cudaStream_t,
            ) -> ncclResult_t;
            // SAFETY: the functions have these types; the buffers hold one element.
            unsafe {
                let library = libloading::Library::new("libnccl.so.2").unwrap();
                let create = library
                    .get::<unsafe extern "C" fn(
                        *mut i32,
                        *mut f32,
                        sys::ncclDataType_t,
                        sys::ncclScalarResidence_t,
                        ncclComm_t,
                    ) -> ncclResult_t>("ncclRedOpCreatePreMulSum")
                    .unwrap();
                let all_reduce = library.get::<AllReduce>("ncclAllReduce").unwrap();
                let mut operation = 0;
                assert_eq!(
                    create(&mut operation, &mut scalar, float, immediate, comm),
                    ncclResult_t::ncclSuccess
                );
                let (from, to) = (address(&send, stream), address(&receive, stream));
                let code = all_reduce(from, to, 1, float, operation, comm, stream.cu_stream().cast());
                assert_eq!(code, ncclResult_t::ncclSuccess);
            }
            assert_eq!(stream.clone_dtoh(&receive).unwrap(), [2.0 * 0.5 + 2.0 * 3.0]);
        });
    });
}

#[test]
fn collectives_are_captured_into_graphs() {
    let Some(run) = in_child(test_name!(), &[], || {
        use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
        on_ranks(2, |comm, stream| {
            let mut buffer = stream.clone_htod(&[1.0_f64, 2.0]).unwrap();
            let relaxed = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
            // Both capture at once, each on its own thread.
            // SAFETY: one stream a rank.
            unsafe { stream.context().disable_event_tracking() };
            stream.begin_capture(relaxed).unwrap();
            comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
            let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
            // A call outside of the graph comes before it without having to wait for it.
            comm.all_reduce_in_place(&mut buffer, &ReduceOp::Avg).unwrap();
            for _ in 0..3 {
                graph.launch().unwrap();
            }
            assert_eq!(stream.clone_dtoh(&buffer).unwrap(), [8.0, 16.0]);
        });
    }) else {
        return;
    };
    assert_eq!(of_kind(&run.pieces, "nccl").len(), 2 * 4);
}
