//! The stand-in NCCL between processes.

use crate::common::of_kind;
use crate::values::numbers;
use cudarc::driver::CudaContext;
use cudarc::nccl::{Comm, Id, ReduceOp};
use double_support::{in_child, test_name};
use std::process::{Child, Command, Stdio};

const RANK: &str = "NCCL_PROCESSES_RANK";
const ID: &str = "NCCL_PROCESSES_ID";

/// This process's rank: 0 in the child of the test, which starts the others as copies of itself.
fn rank() -> usize {
    std::env::var(RANK).map_or(0, |rank| rank.parse().unwrap())
}

/// The id: rank 0 makes it, the others are given it.
fn id() -> Id {
    let Ok(text) = std::env::var(ID) else { return Id::new().unwrap() };
    let mut internal = [0; 128];
    for (byte, known) in internal.iter_mut().zip(text.bytes()) {
        *byte = known as std::ffi::c_char;
    }
    Id::uninit(internal)
}

/// Starts the other ranks, if this is rank 0.
fn start_others(ranks: usize, id: &Id) -> Vec<Child> {
    if rank() != 0 {
        return Vec::new();
    }
    let text: String =
        id.internal().iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8 as char).collect();
    let start = |rank: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(std::env::args().skip(1))
            .env(RANK, rank.to_string())
            .env(ID, &text)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    (1..ranks).map(start).collect()
}

#[test]
fn ranks_in_processes_reduce_together() {
    let Some(run) = in_child(test_name!(), &[("DOUBLE_CUDA_DEVICES", "3")], || {
        let id = id();
        let others = start_others(3, &id);
        let stream = CudaContext::new(rank()).unwrap().new_stream().unwrap();
        let comm = Comm::from_rank(stream.clone(), rank(), 3, id).unwrap();
        let parts: Vec<Vec<f32>> = (0..3).map(|rank| numbers(rank, 300_007)).collect();
        let plain: Vec<u32> =
            (0..parts[0].len()).map(|at| ((parts[0][at] + parts[1][at]) + parts[2][at]).to_bits()).collect();
        let send = stream.clone_htod(&parts[rank()]).unwrap();
        let mut receive = stream.alloc_zeros::<f32>(parts[0].len()).unwrap();
        for _ in 0..3 {
            comm.all_reduce(&send, &mut receive, &ReduceOp::Sum).unwrap();
        }
        let got = stream.clone_dtoh(&receive).unwrap();
        assert!(got.iter().map(|value| value.to_bits()).eq(plain));
        for mut other in others {
            assert!(other.wait().unwrap().success());
        }
    }) else {
        return;
    };
    let pieces = of_kind(&run.pieces, "nccl");
    let mut processes: Vec<u32> = pieces.iter().map(|piece| piece.pid).collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!((pieces.len(), processes.len()), (9, 3));
}

#[test]
fn a_process_that_dies_is_an_error_on_the_others() {
    in_child(test_name!(), &[], || {
        let id = id();
        let others = start_others(2, &id);
        let stream = CudaContext::new(rank()).unwrap().new_stream().unwrap();
        let comm = Comm::from_rank(stream.clone(), rank(), 2, id).unwrap();
        if rank() == 1 {
            std::process::exit(0);
        }
        let mut buffer = stream.alloc_zeros::<f32>(8).unwrap();
        comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
        // It ends without the other rank, and the device is not broken by it.
        stream.synchronize().unwrap();
        let next = comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum);
        assert_eq!(next.err().unwrap().0, cudarc::nccl::sys::ncclResult_t::ncclRemoteError);
        for mut other in others {
            assert!(other.wait().unwrap().success());
        }
    });
}
