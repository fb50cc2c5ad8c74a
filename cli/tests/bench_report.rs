//! `commtrace bench report` on a folder of records.

mod common;

use common::{commtrace, shown, stderr, stdout};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::tempdir;

/// A record with an all_reduce of 50 us + 1 GB/s.
fn record(algorithm: &str) -> Value {
    let row = |payload: u64| {
        let ms = 0.05 + payload as f64 / 1e6;
        json!({
            "collective": "all_reduce", "schedule": null, "payload_elements": payload / 4,
            "payload_bytes_per_rank": payload, "size_bytes": payload, "median_max_rank_ms": ms,
            "p95_max_rank_ms": ms * 1.1, "min_max_rank_ms": ms, "effective_payload_gbps": payload as f64 / ms / 1e6,
            "algbw_gbps": payload as f64 / ms / 1e6, "busbw_gbps": payload as f64 / ms / 1e6, "rank_mean_ms": [ms, ms],
            "rank_p95_ms": [ms, ms], "max_rank_ms": [], "algorithm_observed": "unconfirmed", "wrong_elements": 0
        })
    };
    let rows: Vec<Value> = [1 << 10, 1 << 15, 1 << 20].map(row).to_vec();
    json!({
        "schema_version": 1, "experiment": "collectives", "started_at": "2026-11-30T08:00:00Z",
        "versions": {"commtrace": "0.1.0", "library": null, "cuda_driver": null},
        "workload": {
            "workload_id": "par-nccl-collective-matrix", "backend": "local", "world_size": 2, "dtype": "float32",
            "payload_elements": [256], "warmup": 5, "repeats": 20, "compute_dim": null,
            "algorithm_requested": algorithm, "algorithm_observed": "unconfirmed", "run_label": "default"
        },
        "hardware": {"hosts": []}, "metrics": {"rows": rows, "comparison": null}, "evidence_level": "measured_cpu",
        "failure": null,
        "decision": {"decision": "verify_overlap", "reason": "measured", "next_measurements": []},
        "artifacts": {"nccl_log": null, "log": null}
    })
}

fn write(folder: &Path, name: &str, record: &Value) {
    fs::write(folder.join(name), record.to_string()).unwrap();
}

fn report(folder: &Path, more: &[&str]) -> std::process::Output {
    commtrace([&["bench", "report", folder.to_str().unwrap()], more].concat())
}

#[test]
fn a_folder_as_text_json_and_html() {
    let folder = tempdir().unwrap();
    write(folder.path(), "auto.json", &record("Auto"));
    let mut failed = record("Tree");
    failed["metrics"]["rows"] = json!([]);
    failed["failure"] = json!({"kind": "rank_failed", "message": "rank 1 ended", "rank": 1, "collective": null,
        "payload_bytes_per_rank": null});
    write(folder.path(), "tree.json", &failed);
    let text = report(folder.path(), &[]);
    assert!(text.status.success(), "a failed candidate is no failure of the report: {}", shown(&text));
    assert_eq!(stderr(&text), "");
    for words in ["startup latency 50.0 us", "knee at 48.8 KiB", "rank 1 ended", "unconfirmed"] {
        assert!(stdout(&text).contains(words), "{words} is not in\n{}", stdout(&text));
    }
    let object: Value = serde_json::from_slice(&report(folder.path(), &["--format", "json"]).stdout).unwrap();
    assert_eq!(object["schema_version"], 1);
    assert_eq!(object["groups"][0]["curves"][0]["shape"]["knee"], json!({"at": 50_000}));
    assert_eq!(object["failed"][0]["kind"], "rank_failed");

    let page = folder.path().join("bench.html");
    let html = |more: &[&str]| {
        report(folder.path(), &[&["--format", "html", "-o", page.to_str().unwrap()], more].concat())
    };
    let first = html(&[]);
    assert!(first.status.success() && stdout(&first).is_empty(), "{}", shown(&first));
    assert!(fs::read_to_string(&page).unwrap().contains("<svg"));
    let second = html(&[]);
    assert_eq!(second.status.code(), Some(1), "{}", shown(&second));
    assert!(stderr(&second).contains("--force"), "{}", shown(&second));
    assert!(html(&["--force"]).status.success());
}

#[test]
fn a_folder_without_records_is_status_1_and_bad_usage_is_status_2() {
    let folder = tempdir().unwrap();
    let none = report(folder.path(), &[]);
    assert_eq!(none.status.code(), Some(1), "{}", shown(&none));
    assert!(stderr(&none).contains("no record of `commtrace bench`"), "{}", shown(&none));
    let mut newer = record("Auto");
    newer["schema_version"] = json!(9);
    write(folder.path(), "newer.json", &newer);
    let newer = report(folder.path(), &[]);
    assert_eq!(newer.status.code(), Some(1), "{}", shown(&newer));
    assert!(stderr(&newer).contains("newer.json: a newer commtrace wrote this record"), "{}", shown(&newer));
    assert_eq!(commtrace(["bench", "report"]).status.code(), Some(2));
    assert_eq!(report(folder.path(), &["--format", "pdf"]).status.code(), Some(2));
    assert_eq!(report(folder.path(), &["--force"]).status.code(), Some(2));
}
