//! `commtrace bench --backend nccl` on the stand-in driver, NCCL and cuBLAS. No figure in here is a GPU's.
#![cfg(all(feature = "nccl", target_os = "linux"))]

mod common;

use common::bench::record;
use double_support::{Doubles, Finished, Piece, finish};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::tempdir;

/// How long a run may take on a machine that is busy with others.
const TIME_LIMIT: Duration = Duration::from_secs(240);

/// Small, with sizes on both sides of where the stand-in changes its algorithm.
const SMALL: [&str; 6] = ["--payload-elements", "64,65536", "--warmup", "1", "--repeats", "3"];

/// What could tell the command that it is part of a job.
const LAUNCHERS: [&str; 8] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NCCL_ALGO",
    "NCCL_MULTI_RANK_GPU_ENABLE",
    "COMMTRACE_DIR",
];

fn bench(doubles: &Doubles, experiment: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = doubles.command(env!("CARGO_BIN_EXE_commtrace"));
    for name in LAUNCHERS {
        command.env_remove(name);
    }
    command
        .args(["bench", experiment, "--backend", "nccl", "--timeout", "200", "-o"])
        .arg(folder)
        .args(arguments);
    command
}

fn run(command: &mut Command) -> Finished {
    finish(command, TIME_LIMIT).unwrap()
}

/// The run, which must have ended with this status.
#[track_caller]
fn ends_with(code: i32, command: &mut Command) -> Finished {
    let run = run(command);
    let status = run.status.and_then(|status| status.code());
    assert_eq!(status, Some(code), "--- stdout\n{}--- stderr\n{}", run.stdout, run.stderr);
    run
}

/// What was observed for a collective with a payload of so many bytes.
fn observed<'a>(record: &'a Value, collective: &str, bytes: u64) -> &'a Value {
    let rows = record["metrics"]["rows"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["collective"] == collective && row["payload_bytes_per_rank"] == bytes)
        .unwrap_or_else(|| panic!("no {collective} of {bytes} bytes: {record}"));
    &row["algorithm_observed"]
}

fn log(folder: &Path, record: &Value) -> String {
    fs::read_to_string(folder.join(record["artifacts"]["nccl_log"].as_str().unwrap())).unwrap()
}

#[test]
fn each_algorithm_is_a_record_with_its_log_and_what_that_proves() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    // A variable of the user's must not reach a candidate.
    let mut command = bench(&doubles, "collectives", folder.path(), &SMALL);
    let run = ends_with(0, command.env("NCCL_ALGO", "Ring"));
    let of = |name: &str| record(folder.path(), &format!("collectives_nccl_{name}_default"));
    let (auto, ring, tree) = (of("auto"), of("ring"), of("tree"));
    for (record, requested) in [(&auto, "Auto"), (&ring, "Ring"), (&tree, "Tree")] {
        assert_eq!(record["failure"], Value::Null);
        assert_eq!(record["workload"]["algorithm_requested"], requested);
        assert_eq!(record["metrics"]["rows"].as_array().unwrap().len(), 12);
        assert_eq!(record["versions"]["library"], "NCCL 2.28.9");
        assert_eq!(record["versions"]["cuda_driver"], "13.0");
        assert_eq!(record["evidence_level"], "measured_cpu", "a stand-in is no GPU");
        let gpus = record["hardware"]["hosts"][0]["gpus"].as_array().unwrap();
        assert_eq!(gpus.len(), 2);
        assert_eq!(
            (&gpus[1]["ordinal"], &gpus[1]["compute_capability"], &gpus[1]["name"]),
            (&json!(1), &json!("9.0"), &json!("commtrace stand-in device"))
        );
        assert!(gpus[1]["memory_bytes"].as_u64() > Some(0));
        assert!(log(folder.path(), record).contains("Init COMPLETE"));
        // A call between two ranks has no algorithm to choose.
        assert_eq!(observed(record, "all_to_all", 256), "unconfirmed");
    }
    assert!(!log(folder.path(), &auto).contains("NCCL_ALGO"));
    assert!(log(folder.path(), &ring).contains("NCCL_ALGO set by environment to Ring"));
    let small_and_large = |record| [256, 262_144].map(|bytes| observed(record, "all_reduce", bytes).clone());
    assert_eq!(small_and_large(&auto), [json!(["Tree"]), json!(["Ring"])]);
    assert_eq!(small_and_large(&ring), [json!(["Ring"]), json!(["Ring"])]);
    assert_eq!(small_and_large(&tree), [json!(["Tree"]), json!(["Tree"])]);
    // What has a ring only runs it, and says so.
    for collective in ["all_gather", "reduce_scatter", "broadcast", "reduce_scatter_all_gather"] {
        assert_eq!(observed(&tree, collective, 256), &json!(["Ring"]), "{collective}");
    }
    assert_eq!(tree["workload"]["algorithm_observed"], json!(["Ring", "Tree"]));
    assert!(run.stdout.contains("algorithm Tree requested"), "{}", run.stdout);
}

#[test]
fn what_was_asked_for_is_not_what_was_observed() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let arguments = [&SMALL[..], &["--algorithms", "Ring", "--collectives", "all_reduce"]].concat();
    let said = |label: &str, algorithm: &str| {
        let arguments = [&arguments[..], &["--run-label", label]].concat();
        let mut command = bench(&doubles, "collectives", folder.path(), &arguments);
        ends_with(0, command.env("DOUBLE_NCCL_ALGORITHM_SAID", algorithm));
        record(folder.path(), &format!("collectives_nccl_ring_{label}"))
    };
    let other = said("other", "Tree");
    assert_eq!(other["workload"]["algorithm_requested"], "Ring");
    assert_eq!(other["workload"]["algorithm_observed"], json!(["Tree"]));
    assert_eq!(observed(&other, "all_reduce", 256), &json!(["Tree"]));
    let silent = said("silent", "none");
    assert_eq!(silent["workload"]["algorithm_observed"], "unconfirmed");
    assert!(log(folder.path(), &silent).contains("NCCL_ALGO set by environment to Ring"));
}

/// Lines of 2.20 name no function: which call they are about follows from the calls before them.
#[test]
fn the_log_of_an_older_version() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let arguments = [&SMALL[..], &["--algorithms", "Tree"]].concat();
    let mut command = bench(&doubles, "collectives", folder.path(), &arguments);
    ends_with(0, command.env("DOUBLE_NCCL_VERSION", "22005"));
    let tree = record(folder.path(), "collectives_nccl_tree_default");
    assert_eq!(observed(&tree, "all_reduce", 262_144), &json!(["Tree"]));
    assert_eq!(observed(&tree, "all_gather", 262_144), &json!(["Ring"]));
    assert_eq!(observed(&tree, "reduce_scatter", 262_144), &json!(["Ring"]));
}

#[test]
fn an_algorithm_that_nccl_does_not_know_fails_alone() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let arguments = [&SMALL[..], &["--algorithms", "Star,Ring", "--collectives", "all_reduce"]].concat();
    ends_with(1, &mut bench(&doubles, "collectives", folder.path(), &arguments));
    let star = record(folder.path(), "collectives_nccl_star_default");
    assert_eq!(star["failure"]["kind"], "unknown_algorithm", "{star}");
    assert!(star["failure"]["message"].as_str().unwrap().contains("Star"));
    assert_eq!(star["metrics"]["rows"], json!([]));
    assert_eq!(star["evidence_level"], "none");
    assert!(log(folder.path(), &star).contains("Unrecognized element token"));
    let ring = record(folder.path(), "collectives_nccl_ring_default");
    assert_eq!((&ring["failure"], ring["metrics"]["rows"].as_array().unwrap().len()), (&Value::Null, 2));
}

#[test]
fn wrong_arithmetic_and_a_rank_that_ends_are_failures_with_a_log() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let arguments = [&SMALL[..], &["--algorithms", "Auto", "--collectives", "all_reduce"]].concat();
    let arguments = |label| [&arguments[..], &["--run-label", label]].concat();
    let mut command = bench(&doubles, "collectives", folder.path(), &arguments("wrong"));
    ends_with(1, command.env("DOUBLE_NCCL_WRONG_RANK", "1"));
    let wrong = record(folder.path(), "collectives_nccl_auto_wrong");
    assert_eq!((&wrong["failure"]["kind"], &wrong["failure"]["rank"]), (&json!("wrong_result"), &json!(1)));
    assert_eq!(wrong["metrics"]["rows"], json!([]));
    assert!(!log(folder.path(), &wrong).is_empty());

    let mut command = bench(&doubles, "collectives", folder.path(), &arguments("ended"));
    ends_with(1, command.args(["--fault", "exit:1"]));
    let ended = record(folder.path(), "collectives_nccl_auto_ended");
    assert_eq!(
        (&ended["failure"]["kind"], &ended["failure"]["rank"]),
        (&json!("rank_failed"), &json!(1)),
        "{ended}"
    );
    assert!(!log(folder.path(), &ended).is_empty());
}

/// The explicit way; without it, nothing is run where there is no GPU.
const RUN: &str = "--dry-run=false";

#[test]
fn without_a_gpu_the_configuration_is_checked_and_nothing_else() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let without = |arguments: &[&str]| {
        let mut command = bench(&doubles, "collectives", &folder.path().join("records"), arguments);
        command.env("DOUBLE_CUDA_DEVICES", "0");
        command
    };
    let run = ends_with(0, &mut without(&SMALL));
    for expected in ["Auto", "Ring", "Tree", "all_to_all", "65536"] {
        assert!(run.stdout.contains(expected), "{expected}: {}", run.stdout);
    }
    let all = run.stdout + &run.stderr;
    assert!(all.contains("nothing was measured") && all.contains("no GPU"), "{all}");
    assert!(!folder.path().join("records").exists());

    ends_with(1, &mut without(&[&SMALL[..], &[RUN]].concat()));
    let auto = record(&folder.path().join("records"), "collectives_nccl_auto_default");
    assert_eq!(auto["failure"]["kind"], "missing");
    assert!(auto["failure"]["message"].as_str().unwrap().contains("no GPU"), "{auto}");
    // Bad usage is told all the same.
    ends_with(2, &mut without(&["--payload-elements", "1"]));
}

#[test]
fn without_nccl_it_is_missing() {
    let (doubles, folder) = (Doubles::without_nccl().unwrap(), tempdir().unwrap());
    ends_with(1, &mut bench(&doubles, "collectives", folder.path(), &[&SMALL[..], &[RUN]].concat()));
    let auto = record(folder.path(), "collectives_nccl_auto_default");
    assert_eq!(auto["failure"]["kind"], "missing");
    assert!(auto["failure"]["message"].as_str().unwrap().contains("NCCL"), "{auto}");
}

#[test]
fn ranks_share_a_gpu_only_if_nccl_is_told() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    let arguments =
        [&SMALL[..], &["--algorithms", "Auto", "--collectives", "broadcast", "--run-label"]].concat();
    let one = |label| {
        let mut command = bench(&doubles, "collectives", folder.path(), &[&arguments[..], &[label]].concat());
        command.env("DOUBLE_CUDA_DEVICES", "1");
        command
    };
    ends_with(1, &mut one("refused"));
    let refused = record(folder.path(), "collectives_nccl_auto_refused");
    assert_eq!(refused["failure"]["kind"], "missing");
    assert!(refused["failure"]["message"].as_str().unwrap().contains("NCCL_MULTI_RANK_GPU_ENABLE=1"));
    ends_with(0, one("shared").env("NCCL_MULTI_RANK_GPU_ENABLE", "1"));
    let shared = record(folder.path(), "collectives_nccl_auto_shared");
    assert_eq!(shared["hardware"]["hosts"][0]["gpus"].as_array().unwrap().len(), 1);
}

/// Two processes, as torchrun starts them; each has a folder of its own, as on machines without a shared one.
#[test]
fn in_a_job_of_torchrun_the_processes_are_the_ranks() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    // Torchrun itself listens at the port; ranks meet at the one after it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let arguments = [&SMALL[..], &["--collectives", "all_reduce,broadcast"]].concat();
    let runs: Vec<Finished> = std::thread::scope(|scope| {
        let ranks: Vec<_> = ["0", "1"]
            .map(|rank| {
                let mut command = bench(&doubles, "collectives", &folder.path().join(rank), &arguments);
                command.env("RANK", rank).env("LOCAL_RANK", rank).env("WORLD_SIZE", "2");
                command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
                scope.spawn(move || run(&mut command))
            })
            .into_iter()
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for run in &runs {
        assert!(run.status.is_some_and(|status| status.success()), "{}{}", run.stdout, run.stderr);
    }
    assert!(runs[1].stdout.is_empty(), "rank 0 speaks: {}", runs[1].stdout);
    for algorithm in ["auto", "ring", "tree"] {
        let record = record(&folder.path().join("0"), &format!("collectives_nccl_{algorithm}_default"));
        assert_eq!(record["failure"], Value::Null);
        assert_eq!(record["metrics"]["rows"][0]["rank_mean_ms"].as_array().unwrap().len(), 2);
        assert_eq!(record["hardware"]["hosts"][0]["ranks"], json!([0, 1]));
    }
    let tree = record(&folder.path().join("0"), "collectives_nccl_tree_default");
    assert_eq!(observed(&tree, "all_reduce", 262_144), &json!(["Tree"]));
    let left = fs::read_dir(folder.path().join("1")).map_or(0, |entries| entries.count());
    assert_eq!(left, 0, "records are rank 0's");
}

const OVERLAP: [&str; 10] = [
    "--payload-elements",
    "65536",
    "--compute-dim",
    "96",
    "--warmup",
    "1",
    "--repeats",
    "4",
    "--algorithms",
    "Auto",
];

/// Intervals of `name` on device 0, in the order of their beginnings.
fn pieces<'a>(all: &'a [Piece], name: &str) -> Vec<&'a Piece> {
    let mut found: Vec<_> = all.iter().filter(|piece| piece.device == 0 && piece.name == name).collect();
    found.sort_by_key(|piece| piece.start_ns);
    found
}

#[test]
fn overlap_runs_both_schedules_with_checked_results() {
    let (doubles, folder) = (Doubles::with_cublas().unwrap(), tempdir().unwrap());
    let log_file = folder.path().join("pieces.jsonl");
    let mut command = bench(&doubles, "overlap", folder.path(), &OVERLAP);
    // All reduces that last 20 ms leave room beside them, whatever else the machine does.
    command.env("DOUBLE_NCCL_TRANSFER_NS", "20000000").env("DOUBLE_CUDA_LOG", &log_file);
    let run = ends_with(0, &mut command);
    let record = record(folder.path(), "overlap_nccl_auto_default");
    assert_eq!(record["failure"], Value::Null);
    assert_eq!(record["workload"]["workload_id"], "par-overlap-allreduce-matmul");
    assert_eq!(
        (&record["workload"]["dtype"], &record["workload"]["compute_dim"]),
        (&json!("bfloat16"), &json!(96))
    );
    let rows = record["metrics"]["rows"].as_array().unwrap();
    assert_eq!([&rows[0]["schedule"], &rows[1]["schedule"]], ["serial", "overlapped"]);
    for row in rows {
        assert_eq!(
            (&row["collective"], &row["payload_bytes_per_rank"]),
            (&json!("all_reduce"), &json!(131_072))
        );
        assert_eq!(row["max_rank_ms"].as_array().unwrap().len(), 4);
        assert!(row["median_max_rank_ms"].as_f64() >= Some(20.0), "{row}");
        assert_eq!(
            (&row["algbw_gbps"], &row["busbw_gbps"]),
            (&Value::Null, &Value::Null),
            "compute is in the time"
        );
        assert_eq!(row["algorithm_observed"], json!(["Ring"]));
    }
    let (comparison, decision) = (&record["metrics"]["comparison"], &record["decision"]);
    let saved = |key: &str| comparison[key].as_f64().unwrap();
    let medians = [0, 1].map(|row: usize| rows[row]["median_max_rank_ms"].as_f64().unwrap());
    assert!((saved("saved_ms") - (medians[0] - medians[1])).abs() < 1e-9);
    assert!((saved("overlap_gain_ratio") - saved("saved_ms") / medians[0]).abs() < 1e-9);
    let improved = saved("saved_ms") > 0.0 && saved("saved_p95_ms") > 0.0;
    let no_tail = comparison["ranks_with_new_tail"] == json!([]);
    let expected = if improved && no_tail { "adopt_overlap" } else { "keep_serial" };
    assert_eq!(decision["decision"], expected, "{comparison}");
    assert!(decision["reason"].as_str().unwrap().contains("no real model's gain"));
    assert!(run.stdout.contains("overlapped"), "{}", run.stdout);

    // One product a repeat and schedule. In turns, it begins after the collective has ended, and before that.
    let all = Piece::read(&log_file).unwrap();
    let (products, collectives) = (pieces(&all, "gemm"), pieces(&all, "all_reduce"));
    assert_eq!(products.len(), 10);
    let beside: Vec<bool> = products
        .iter()
        .map(|product| {
            // Of the payload, not of the barrier before it, which is as long on the stand-in.
            let last = collectives.iter().rfind(|collective| collective.start_ns <= product.end_ns).unwrap();
            last.end_ns > product.start_ns
        })
        .collect();
    assert_eq!(beside.iter().filter(|&&beside| beside).count(), 5, "{beside:?}");
}

#[test]
fn overlap_without_cublas_is_missing() {
    let (doubles, folder) = (Doubles::new().unwrap(), tempdir().unwrap());
    ends_with(1, &mut bench(&doubles, "overlap", folder.path(), &OVERLAP));
    let record = record(folder.path(), "overlap_nccl_auto_default");
    assert_eq!(record["failure"]["kind"], "missing", "{record}");
    assert!(record["failure"]["message"].as_str().unwrap().contains("cuBLAS"));
}
