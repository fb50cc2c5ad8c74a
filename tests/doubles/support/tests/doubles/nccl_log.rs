//! What the stand-in NCCL writes when `NCCL_DEBUG` asks, and what `NCCL_ALGO` has to do with it.

use crate::common::streams;
use crate::nccl::on_ranks;
use cudarc::nccl::{Comm, Id, ReduceOp};
use double_support::{Run, in_child, test_name};

/// One all_reduce and one all_gather of two ranks.
fn calls() {
    let results = on_ranks(2, |comm, stream| {
        let send = stream.clone_htod(&[1.0_f32; 64]).unwrap();
        let (mut sum, mut all) =
            (stream.alloc_zeros::<f32>(64).unwrap(), stream.alloc_zeros::<f32>(128).unwrap());
        comm.all_reduce(&send, &mut sum, &ReduceOp::Sum).unwrap();
        comm.all_gather(&send, &mut all).is_ok()
    });
    println!("all_gather: {results:?}");
}

const INFO: (&str, &str) = ("NCCL_DEBUG", "INFO");
const SUBSYSTEMS: (&str, &str) = ("NCCL_DEBUG_SUBSYS", "INIT,ENV,TUNING,COLL");

fn lines<'a>(run: &'a Run, with: &str) -> Vec<&'a str> {
    run.stdout.lines().filter(|line| line.contains(with)).collect()
}

#[test]
fn the_log_follows_what_is_asked_for() {
    let ring = ("NCCL_ALGO", "allreduce:tree");
    let Some(run) = in_child(test_name!(), &[INFO, SUBSYSTEMS, ring], calls) else { return };
    assert_eq!(lines(&run, "AllReduce: 256 Bytes -> Algo TREE proto SIMPLE").len(), 1, "{}", run.stdout);
    assert_eq!(lines(&run, "AllGather: 256 Bytes -> Algo RING proto SIMPLE").len(), 1);
    assert_eq!(lines(&run, "AllReduce: opCount").len(), 2, "of each rank");
    assert_eq!(lines(&run, "NCCL_ALGO set by environment to allreduce:tree.").len(), 2);
    assert_eq!(lines(&run, "Init COMPLETE").len(), 2);
}

#[test]
fn the_log_of_an_older_version_has_numbers() {
    let older = ("DOUBLE_NCCL_VERSION", "22005");
    let Some(run) = in_child(test_name!(), &[INFO, SUBSYSTEMS, older, ("NCCL_ALGO", "Tree")], calls) else {
        return;
    };
    assert_eq!(lines(&run, "NCCL INFO 256 Bytes -> Algo 0 proto 2").len(), 1, "{}", run.stdout);
    assert_eq!(lines(&run, "NCCL INFO 512 Bytes -> Algo 1 proto 2").len(), 1, "all_gather has a ring only");
}

#[test]
fn nothing_is_written_unasked() {
    let Some(run) = in_child(test_name!(), &[SUBSYSTEMS], calls) else { return };
    assert!(lines(&run, "NCCL INFO").is_empty(), "{}", run.stdout);
}

#[test]
fn a_function_without_the_algorithm_fails() {
    let Some(run) = in_child(test_name!(), &[INFO, ("NCCL_ALGO", "Tree")], calls) else { return };
    assert_eq!(lines(&run, "all_gather: [false, false]").len(), 1, "{}", run.stdout);
    assert_eq!(lines(&run, "no algorithm/protocol available for function AllGather").len(), 2);
}

#[test]
fn an_unknown_algorithm_makes_no_communicator() {
    let ran = in_child(test_name!(), &[INFO, ("NCCL_ALGO", "Star")], || {
        let [stream] = &streams(1)[..] else { panic!("one stream") };
        let error = Comm::from_rank(stream.clone(), 0, 1, Id::new().unwrap()).unwrap_err();
        assert_eq!(format!("{:?}", error.0), "ncclInvalidUsage");
    });
    let Some(run) = ran else { return };
    assert_eq!(lines(&run, "Unrecognized element token \"Star\"").len(), 1, "{}", run.stdout);
}
