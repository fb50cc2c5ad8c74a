//! `guard.finish(&comm)` over NCCL: one report on ranks that share no folder.

use commtrace_collectives::nccl::{Id, ReduceOp, unique_id};
use commtrace_collectives::{Communicator, Finish, NcclComm};
use commtrace_instrument::{Report, init};
use double_support::{in_child, test_name};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::job::{self, DEVICES};

/// In the process of rank 1: the id of the communicator to join, in hexadecimal.
const JOIN: &str = "COMMTRACE_TEST_JOIN";

const RANKS: usize = 2;

fn variables(patience_s: &'static str) -> [(&'static str, &'static str); 4] {
    // Nothing is shared: the ranks' summaries travel as messages.
    [DEVICES, ("COMMTRACE", "summary"), ("WORLD_SIZE", "2"), ("COMMTRACE_MERGE_TIMEOUT_S", patience_s)]
}

/// The process of rank 1 runs the same test.
fn start_rank_1(test: &str, id: &Id) -> Child {
    let id: String = id.internal().iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(JOIN, id).env("RANK", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// The rank of this process of two, the communicator's id, and the process of rank 1 if this is rank 0's.
fn rank_of_process(test: &str) -> (usize, Id, Option<Child>) {
    match std::env::var(JOIN) {
        Ok(id) => {
            let byte = |at: usize| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap() as _;
            (1, Id::uninit(std::array::from_fn(byte)), None)
        }
        Err(_) => {
            let id = unique_id().unwrap();
            (0, id, Some(start_rank_1(test, &id)))
        }
    }
}

fn train(comm: &NcclComm) {
    let mut buffer = comm.stream().clone_htod(&[1.0_f32; 256]).unwrap();
    for _ in 0..5 {
        comm.all_reduce_in_place(&mut buffer, &ReduceOp::Sum).unwrap();
    }
    comm.stream().synchronize().unwrap();
}

fn all_reduces(report: &Report) -> Vec<(u32, u64)> {
    report.ranks.iter().map(|rank| (rank.rank, rank.summary.by_op["all_reduce"].count)).collect()
}

#[test]
fn processes_without_a_shared_folder_have_one_report() {
    let test = test_name!();
    let mut variables = variables("120").to_vec();
    variables.push(("RANK", "0"));
    in_child(test, &variables, || {
        let (rank, id, other) = rank_of_process(test);
        let guard = init().unwrap();
        let comm = NcclComm::from_rank(job::stream(rank), rank, RANKS, id).unwrap();
        assert!(!comm.is_one_process());
        train(&comm);
        let report = guard.finish(&comm);
        // Aborts it, which must not take away what rank 1 has sent.
        drop(comm);
        assert_eq!(report.is_some(), rank == 0);
        if let (Some(report), Some(mut other)) = (report, other) {
            assert_eq!(all_reduces(&report), [(0, 5), (1, 5)]);
            assert!(report.ranks.iter().all(|rank| rank.summary.by_op.get("recv").is_none()));
            assert!(other.wait().unwrap().success());
        }
    });
}

#[test]
fn a_rank_that_does_not_come_is_named_and_not_waited_for() {
    let test = test_name!();
    let mut variables = variables("1").to_vec();
    variables.push(("RANK", "0"));
    let run = in_child(test, &variables, || {
        let (rank, id, other) = rank_of_process(test);
        let guard = init().unwrap();
        let comm = NcclComm::from_rank(job::stream(rank), rank, RANKS, id).unwrap();
        train(&comm);
        let Some(mut other) = other else {
            // Alive, so that NCCL has nothing to report, until rank 0 ends it.
            std::thread::sleep(Duration::from_secs(600));
            return;
        };
        let report = guard.finish(&comm).unwrap();
        assert_eq!(all_reduces(&report), [(0, 5)]);
        drop(comm);
        other.kill().unwrap();
        other.wait().unwrap();
    });
    if let Some(run) = run {
        assert!(run.stderr.contains("not in this report: 1"), "{}", run.stderr);
    }
}

#[test]
fn ranks_that_are_threads_have_nothing_to_gather() {
    let test = test_name!();
    in_child(test, &[DEVICES, ("COMMTRACE", "summary")], || {
        let guard = std::sync::Mutex::new(Some(init().unwrap()));
        let barrier = std::sync::Barrier::new(RANKS);
        let reports = job::ranks(RANKS, |comm| {
            let half = comm.split(comm.rank() as u32, 0).unwrap();
            train(&comm);
            barrier.wait();
            assert!(comm.is_one_process() && half.is_one_process());
            let rank = comm.rank();
            if rank == 1 {
                return None;
            }
            // The other rank's communicator may be gone by now.
            guard.lock().unwrap().take().unwrap().finish(&comm)
        });
        assert_eq!(all_reduces(reports[0].as_ref().unwrap()), [(0, 5), (1, 5)]);
    });
}
