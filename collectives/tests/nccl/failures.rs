//! What is missing, refused, or fails.

use commtrace_collectives::nccl::{self, NcclError, ReduceOp};
use commtrace_collectives::{Error, NcclComm};
use cudarc::driver::CudaContext;
use cudarc::nccl::sys::ncclResult_t;
use double_support::{Doubles, in_child};
use std::process::Command;

use crate::job::{self, DEVICES};

/// The message of an error of which nothing else is wanted.
fn message<T>(result: Result<T, Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

const ALONE: &str = "COMMTRACE_TEST_WITHOUT_NCCL";

#[test]
fn without_nccl_a_constructor_says_what_was_looked_for() {
    if std::env::var_os(ALONE).is_none() {
        let doubles = Doubles::without_nccl().unwrap();
        let mut command: Command = doubles.command(std::env::current_exe().unwrap());
        // A machine may have NCCL installed; here it is not found.
        command.env("LD_LIBRARY_PATH", doubles.folder()).env(ALONE, "1");
        command.args([
            "--exact",
            "failures::without_nccl_a_constructor_says_what_was_looked_for",
            "--nocapture",
        ]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    // SAFETY: it only looks whether the library is there.
    if unsafe { cudarc::nccl::sys::is_culib_present() } {
        return;
    }
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let id = nccl::Id::uninit([0; 128]);
    for error in [
        message(nccl::unique_id()),
        message(nccl::version()),
        message(nccl::group_start()),
        message(NcclComm::from_devices(vec![stream.clone()])),
        message(NcclComm::from_rank(stream, 0, 1, id)),
    ] {
        for part in ["NCCL: ", "libnccl.so.2", "LD_LIBRARY_PATH"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn a_library_that_lacks_a_function_is_named() {
    let name = "failures::a_library_that_lacks_a_function_is_named";
    in_child(name, &[("DOUBLE_NCCL_MISSING", "ncclAllReduce")], || {
        let error = message(nccl::unique_id());
        assert!(error.contains("ncclAllReduce") && error.contains("libnccl"), "{error}");
    });
}

#[test]
fn a_library_without_split_works_but_for_split() {
    let name = "failures::a_library_without_split_works_but_for_split";
    let missing = ("DOUBLE_NCCL_MISSING", "ncclCommSplit,ncclGetLastError,ncclCommGetAsyncError");
    in_child(name, &[DEVICES, missing], || {
        job::ranks(2, |comm| {
            let mut buffer = comm.stream().clone_htod(&[1.0_f32]).unwrap();
            comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
            assert_eq!(comm.stream().clone_dtoh(&buffer).unwrap(), [2.0]);
            let error = message(comm.split(0, 0));
            assert!(error.contains("ncclCommSplit") && error.contains("2.18"), "{error}");
            comm.async_error().unwrap();
        });
    });
}

#[test]
fn arguments_that_would_run_over_a_buffer_are_refused() {
    in_child("failures::arguments_that_would_run_over_a_buffer_are_refused", &[DEVICES], || {
        job::ranks(2, |comm| {
            let stream = comm.stream();
            let four = stream.alloc_zeros::<f32>(4).unwrap();
            let mut three = stream.alloc_zeros::<f32>(3).unwrap();
            let sum = &ReduceOp::Sum;
            let refused = [
                ("all_reduce", message(comm.all_reduce(&four, &mut three, sum))),
                ("all_gather", message(comm.all_gather(&four, &mut three))),
                ("reduce_scatter", message(comm.reduce_scatter(&four, &mut three, sum))),
                ("all_to_all", message(comm.all_to_all(&four, &mut three))),
                ("all_to_all", message(comm.all_to_all(&four.slice(0..3), &mut three))),
                ("all_to_all_v", message(comm.all_to_all_v(&four, &[1, 4], &mut three, &[1, 2]))),
                ("all_to_all_v", message(comm.all_to_all_v(&four, &[1], &mut three, &[1, 2]))),
                ("all_to_all_v", message(comm.all_to_all_v(&four, &[usize::MAX, 1], &mut three, &[1, 2]))),
                ("reduce", message(comm.reduce(&four, Some(&mut three), sum, comm.rank() as i32))),
                ("reduce", message(comm.reduce(&four, Some(&mut three), sum, 2))),
                ("broadcast", message(comm.broadcast(Some(&four), &mut three, -1))),
                ("send", message(comm.send(&four, 2))),
                ("recv", message(comm.recv(&mut three, -1))),
            ];
            for (op, error) in refused {
                assert!(error.contains(op) && error.contains(&format!("rank {}", comm.rank())), "{error}");
            }
            // None of them counts, and the ranks still meet.
            let mut sum_of_threes = stream.clone_htod(&[1.0_f32; 3]).unwrap();
            comm.all_reduce_in_place(&mut sum_of_threes, sum).unwrap();
            assert_eq!(stream.clone_dtoh(&sum_of_threes).unwrap(), [2.0; 3]);
        });
    });
}

#[test]
fn an_error_of_nccl_has_its_words_and_becomes_cudarcs() {
    in_child("failures::an_error_of_nccl_has_its_words_and_becomes_cudarcs", &[DEVICES], || {
        // Rank 5 of 2.
        let error = NcclComm::from_rank(job::stream(0), 5, 2, nccl::unique_id().unwrap()).unwrap_err();
        let Error::Native { library: "NCCL", code, ref message, .. } = error else { panic!("{error}") };
        assert_eq!(code, 4, "ncclInvalidArgument");
        assert!(message.contains("invalid argument"), "{message}");
        assert!(error.to_string().contains("rank 5 of 2"), "{error}");
        assert_eq!(NcclError::from(error).0, ncclResult_t::ncclInvalidArgument);
    });
}

#[test]
fn no_communicator_is_made_in_a_group() {
    in_child("failures::no_communicator_is_made_in_a_group", &[DEVICES], || {
        let comm = NcclComm::from_devices(vec![job::stream(0)]).unwrap().remove(0);
        nccl::group_start().unwrap();
        let refused = [
            message(NcclComm::from_devices(vec![job::stream(1)])),
            message(NcclComm::from_rank(job::stream(1), 0, 1, nccl::unique_id().unwrap())),
            message(comm.split(0, 0)),
        ];
        nccl::group_end().unwrap();
        for error in refused {
            assert!(error.contains("between a group's start and end"), "{error}");
        }
        assert_eq!(comm.split(0, 0).unwrap().world_size(), 1, "afterwards it works");
    });
}
