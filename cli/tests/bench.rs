//! `commtrace bench collectives --backend local`, end to end: records, failures, and what is never overwritten.

mod common;

use common::bench::{bench, record, records};
use common::{shown, stderr, stdout};
use std::fs;
use tempfile::tempdir;

const SMALL: [&str; 6] = ["--payload-elements", "1200,6000", "--warmup", "1", "--repeats", "3"];

#[test]
fn every_collective_and_payload_is_measured_and_correct() {
    let folder = tempdir().unwrap();
    let output = bench(folder.path(), &SMALL);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(
        records(folder.path()),
        ["collectives_local_auto_default.json", "collectives_local_auto_default.log"]
    );
    let record = record(folder.path(), "collectives_local_auto_default");
    assert!(record["failure"].is_null());
    assert_eq!(record["evidence_level"], "measured_cpu");
    assert_eq!(record["decision"]["decision"], "verify_overlap");
    assert_eq!(record["workload"]["algorithm_observed"], "unconfirmed");
    assert_eq!(record["workload"]["world_size"], 2);
    assert_eq!(record["hardware"]["hosts"][0]["ranks"], serde_json::json!([0, 1]));
    let rows = record["metrics"]["rows"].as_array().unwrap();
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row["collective"].as_str().unwrap(), row["payload_bytes_per_rank"].as_u64().unwrap()))
        .collect();
    let names = [
        "all_reduce",
        "reduce_scatter_all_gather",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "all_to_all",
    ];
    let expected: Vec<_> = names.iter().flat_map(|name| [(*name, 4800), (*name, 24_000)]).collect();
    assert_eq!(shown, expected);
    for row in rows {
        assert_eq!(row["wrong_elements"], 0);
        assert_eq!(row["max_rank_ms"].as_array().unwrap().len(), 3, "warm-up is not timed");
        assert_eq!(row["rank_mean_ms"].as_array().unwrap().len(), 2);
        let [min, median, p95] = ["min_max_rank_ms", "median_max_rank_ms", "p95_max_rank_ms"]
            .map(|key| row[key].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= p95, "{row}");
        let bytes = row["payload_bytes_per_rank"].as_f64().unwrap();
        let gbps = row["effective_payload_gbps"].as_f64().unwrap();
        assert!((gbps - bytes / median / 1e6).abs() <= 1e-9 * gbps, "10^9 bytes per second: {row}");
    }
    let table = stdout(&output);
    assert_eq!(table.lines().filter(|line| line.contains(" float32 ")).count(), 12, "{table}");
    assert!(table.contains("#wrong") && table.contains("# decision: verify_overlap"), "{table}");
}

#[test]
fn every_element_type_and_several_ranks() {
    let folder = tempdir().unwrap();
    for dtype in ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"] {
        let arguments = [
            "--dtype",
            dtype,
            "--run-label",
            dtype,
            "--ranks",
            "3",
            "--payload-elements",
            "100",
            "--repeats",
            "2",
        ];
        let output = bench(folder.path(), &arguments);
        assert!(output.status.success(), "{}", shown(&output));
        assert!(stderr(&output).contains("payloads are 99 elements"), "{}", shown(&output));
        let record = record(folder.path(), &format!("collectives_local_auto_{dtype}"));
        assert_eq!(record["workload"]["dtype"], dtype);
        assert_eq!(record["workload"]["payload_elements"], serde_json::json!([99]));
        assert_eq!(record["metrics"]["rows"].as_array().unwrap().len(), 6);
    }
}

/// A rank that puts in one wrong element makes one wrong sum on each of the two ranks.
#[test]
fn a_wrong_result_is_a_failure_without_times() {
    let folder = tempdir().unwrap();
    let output = bench(folder.path(), &[&SMALL[..], &["--fault", "wrong-result:1"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let record = record(folder.path(), "collectives_local_auto_default");
    let failure = &record["failure"];
    assert_eq!(failure["kind"], "wrong_result");
    assert_eq!(failure["collective"], "all_reduce");
    assert_eq!(failure["payload_bytes_per_rank"], 4800);
    // The first and the last call are checked, on two ranks.
    let message = failure["message"].as_str().unwrap();
    assert!(message.starts_with("4 wrong elements of all_reduce with 1200 elements"), "{message}");
    assert!(message.contains("element 1199 on rank 0"), "{message}");
    assert_eq!(record["metrics"]["rows"], serde_json::json!([]));
    assert_eq!(record["evidence_level"], "none");
    assert_eq!(record["decision"]["decision"], "inspect_failure");
    assert!(stdout(&output).contains("# failed: 4 wrong elements"), "{}", shown(&output));
}

#[test]
fn ranks_that_panic_exit_or_hang_are_failures_with_their_log() {
    let cases = [
        ("panic:1", "rank_failed", Some(1), "it panicked: a fault on purpose"),
        ("exit:0", "rank_failed", None, "exit status: 3"),
        ("hang:1", "timed_out", Some(1), "waited"),
    ];
    let folder = tempdir().unwrap();
    for (fault, kind, rank, words) in cases {
        let label = fault.replace(':', "-");
        // Ranks wait for a quarter less for each other, and must not give up because the machine is busy.
        let timeout = if fault == "hang:1" { "16" } else { "600" };
        let more = ["--fault", fault, "--run-label", &label, "--timeout", timeout];
        let output = bench(folder.path(), &[&SMALL[..], &more].concat());
        assert_eq!(output.status.code(), Some(1), "{fault}: {}", shown(&output));
        let record = record(folder.path(), &format!("collectives_local_auto_{label}"));
        let failure = &record["failure"];
        assert_eq!(failure["kind"], kind, "{failure}");
        assert_eq!(failure["rank"].as_u64(), rank, "{failure}");
        assert_eq!(failure["collective"], "all_reduce", "{failure}");
        assert!(failure["message"].as_str().unwrap().contains(words), "{failure}");
        assert_eq!(record["metrics"]["rows"], serde_json::json!([]));
        let log = folder.path().join(record["artifacts"]["log"].as_str().unwrap());
        let log = fs::read_to_string(log).unwrap();
        assert_eq!(log.contains("a fault on purpose"), fault == "panic:1", "{log}");
    }
}

#[test]
fn an_unknown_algorithm_is_recorded_and_the_others_run() {
    let folder = tempdir().unwrap();
    let output = bench(folder.path(), &[&SMALL[..], &["--algorithms", "Tree,auto"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let failed = record(folder.path(), "collectives_local_tree_default");
    assert_eq!(failed["failure"]["kind"], "unknown_algorithm");
    assert_eq!(failed["workload"]["algorithm_requested"], "Tree");
    let measured = record(folder.path(), "collectives_local_auto_default");
    assert!(measured["failure"].is_null());
    assert_eq!(measured["metrics"]["rows"].as_array().unwrap().len(), 12);
}

#[test]
fn a_record_is_never_overwritten() {
    let folder = tempdir().unwrap();
    assert!(bench(folder.path(), &SMALL).status.success());
    let path = folder.path().join("collectives_local_auto_default.json");
    let before = fs::read(&path).unwrap();
    let output = bench(folder.path(), &[&SMALL[..], &["--algorithms", "Tree,Auto"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("choose another --run-label"), "{}", shown(&output));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(records(folder.path()).len(), 2, "nothing else ran");
    assert!(bench(folder.path(), &[&SMALL[..], &["--run-label", "again"]].concat()).status.success());
    assert_eq!(records(folder.path()).len(), 4);
}

#[test]
fn a_dry_run_says_what_would_run_and_leaves_nothing() {
    let folder = tempdir().unwrap();
    let output = bench(&folder.path().join("new"), &[&SMALL[..], &["--dry-run"]].concat());
    assert!(output.status.success(), "{}", shown(&output));
    let text = stdout(&output);
    for part in [
        "2 threads of one process",
        "1200 6000 elements of float32",
        "3 after 1",
        "collectives_local_auto_default.json",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(records(folder.path()).is_empty());
}

#[test]
fn bad_usage_is_said_before_anything_runs() {
    let folder = tempdir().unwrap();
    for (arguments, words) in [
        (&["--payload-elements", "0"][..], "payload-elements"),
        (&["--payload-elements", "2", "--ranks", "3"], "at least 3"),
        (&["--repeats", "0"], "repeats"),
        (&["--dtype", "float8"], "bfloat16"),
        (&["--collectives", "allreduce"], "all_reduce"),
        (&["--run-label", "../x"], "file's name"),
        (&["--algorithms", "a/b"], "file's name"),
    ] {
        let output = bench(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", shown(&output));
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", shown(&output));
    }
    assert!(records(folder.path()).is_empty());
}

/// The calls of a benchmark can be looked at like those of any program.
#[test]
fn spans_are_recorded_if_the_environment_asks() {
    let folder = tempdir().unwrap();
    let trace = folder.path().join("trace");
    let output = common::bench::command(folder.path(), &SMALL).env("COMMTRACE_DIR", &trace).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let summary = fs::read_to_string(trace.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    // 4 calls for each of 2 payloads.
    assert_eq!(summary["ranks"][0]["summary"]["by_op"]["all_to_all"]["count"], 8, "{summary}");
}

#[test]
fn threads_of_one_process_are_not_the_ranks_of_a_launcher() {
    let folder = tempdir().unwrap();
    let mut command = common::bench::command(folder.path(), &SMALL);
    let output = command.env("RANK", "0").env("WORLD_SIZE", "2").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(stderr(&output).contains("torchrun has started 2 processes"), "{}", shown(&output));
    // A batch script of Slurm is no rank, whatever the number of tasks.
    let mut command = common::bench::command(folder.path(), &SMALL);
    let output = command.env("SLURM_PROCID", "0").env("SLURM_NTASKS", "8").output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
}

/// A command that is killed has taken its record's name, and the record says that there is nothing in it.
#[cfg(unix)]
#[test]
fn a_command_that_is_killed_leaves_a_record_that_says_so() {
    let folder = tempdir().unwrap();
    let mut command = common::bench::command(folder.path(), &[&SMALL[..], &["--fault", "hang:0"]].concat());
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let begun = || {
        let ranks = folder.path().join(".collectives_local_auto_default.ranks");
        fs::read_to_string(ranks.join("rank-00000.jsonl")).is_ok_and(|said| said.contains("running"))
    };
    for _ in 0..3000 {
        if begun() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(begun(), "the ranks start within a minute");
    child.kill().unwrap();
    child.wait().unwrap();
    let record = record(folder.path(), "collectives_local_auto_default");
    assert_eq!(record["failure"]["kind"], "rank_failed");
    assert!(record["failure"]["message"].as_str().unwrap().contains("the command ended before"), "{record}");
    assert_eq!(record["metrics"]["rows"], serde_json::json!([]));
}
