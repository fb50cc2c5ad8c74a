//! `commtrace bench overlap` on processors, end to end.

mod common;

use common::bench::{of_experiment, record, records};
use common::{shown, stderr, stdout};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;
use tempfile::tempdir;

const SMALL: [&str; 8] =
    ["--payload-elements", "5000", "--compute-dim", "80", "--warmup", "1", "--repeats", "5"];

fn overlap(folder: &Path, arguments: &[&str]) -> Output {
    of_experiment("overlap", folder, &[&SMALL[..], arguments].concat()).output().unwrap()
}

/// The figures of a record that has not failed agree with each other.
fn check(record: &Value, dtype_bytes: u64) {
    assert!(record["failure"].is_null(), "{record}");
    assert_eq!(record["workload"]["workload_id"], "par-overlap-allreduce-matmul");
    assert_eq!(record["workload"]["compute_dim"], 80);
    assert_eq!(record["evidence_level"], "measured_cpu");
    let rows = record["metrics"]["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| &row["schedule"]).collect::<Vec<_>>(), ["serial", "overlapped"]);
    for row in rows {
        assert_eq!(row["collective"], "all_reduce");
        assert_eq!(row["payload_bytes_per_rank"], 5000 * dtype_bytes);
        assert_eq!(row["max_rank_ms"].as_array().unwrap().len(), 5, "warm-up is not timed");
        assert_eq!(row["rank_mean_ms"].as_array().unwrap().len(), 2);
        assert!(row["busbw_gbps"].is_null(), "compute is in the time");
        assert_eq!(row["wrong_elements"], 0);
    }
    let comparison = &record["metrics"]["comparison"];
    let saved = |key: &str| comparison[key].as_f64().unwrap();
    let figure = |row: usize, key: &str| rows[row][key].as_f64().unwrap();
    let difference = |key: &str| figure(0, key) - figure(1, key);
    assert!((saved("saved_ms") - difference("median_max_rank_ms")).abs() < 1e-9);
    assert!((saved("saved_p95_ms") - difference("p95_max_rank_ms")).abs() < 1e-9);
    let ratio = saved("saved_ms") / figure(0, "median_max_rank_ms");
    assert!((saved("overlap_gain_ratio") - ratio).abs() < 1e-9);
    let improved = saved("saved_ms") > 0.0 && saved("saved_p95_ms") > 0.0;
    let adopted = improved && comparison["ranks_with_new_tail"] == json!([]);
    let expected = if adopted { "adopt_overlap" } else { "keep_serial" };
    assert_eq!(record["decision"]["decision"], expected, "{comparison}");
    assert!(record["decision"]["reason"].as_str().unwrap().contains("no real model's gain"));
}

#[test]
fn threads_as_ranks_with_every_type_that_matrices_have() {
    let folder = tempdir().unwrap();
    for (dtype, bytes) in [("float32", 4), ("float64", 8), ("float16", 2), ("bfloat16", 2)] {
        let output = overlap(folder.path(), &["--dtype", dtype, "--run-label", dtype]);
        assert!(output.status.success(), "{}", shown(&output));
        check(&record(folder.path(), &format!("overlap_local_auto_{dtype}")), bytes);
        let table = stdout(&output);
        assert!(table.contains("all_reduce serial") && table.contains("all_reduce overlapped"), "{table}");
    }
}

#[test]
fn a_wrong_sum_is_a_failure_without_a_comparison() {
    let folder = tempdir().unwrap();
    let output = overlap(folder.path(), &["--fault", "wrong-result:1"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let record = record(folder.path(), "overlap_local_auto_default");
    assert_eq!(record["failure"]["kind"], "wrong_result");
    assert_eq!((&record["metrics"]["rows"], &record["metrics"]["comparison"]), (&json!([]), &Value::Null));
    assert_eq!(record["decision"]["decision"], "inspect_failure");
}

#[test]
fn what_cannot_be_run_is_bad_usage() {
    let folder = tempdir().unwrap();
    for arguments in [["--dtype", "int32"], ["--compute-dim", "0"], ["--compute-dim", "99999"]] {
        let output = of_experiment("overlap", folder.path(), &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
        assert!(stderr(&output).contains(arguments[0]), "{}", shown(&output));
    }
    assert!(records(folder.path()).is_empty());
}

#[test]
fn a_dry_run_says_what_would_run() {
    let folder = tempdir().unwrap();
    let output = of_experiment("overlap", &folder.path().join("none"), &["--dry-run"]).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    for expected in ["2048 x 2048", "4194304", "bfloat16", "10 after 3"] {
        assert!(stdout(&output).contains(expected), "{expected}: {}", shown(&output));
    }
    assert!(stderr(&output).contains("nothing was measured"), "{}", shown(&output));
    assert!(!folder.path().join("none").exists());
}
