//! `commtrace convert`: the same figures from every format.

mod common;

use common::{commtrace, record, shown, stderr};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::tempdir;

fn figures(path: &Path) -> Value {
    let output = commtrace(["report".as_ref(), path.as_os_str(), "--format=json".as_ref()]);
    assert!(output.status.success(), "{}", shown(&output));
    let mut object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // Where figures come from differs; what they are does not.
    object.as_object_mut().expect("an object").remove("inputs");
    object
}

#[test]
fn records_and_timeline_json_give_the_same_figures() {
    let folder = tempdir().unwrap();
    let run = folder.path().join("run");
    fs::create_dir(&run).unwrap();
    record(&run);
    let expected = figures(&run);
    let (json, records) = (folder.path().join("out.json"), folder.path().join("records"));
    for (from, to) in [(&run, &json), (&json, &records), (&run, &folder.path().join("again"))] {
        let output = commtrace(["convert".as_ref(), from.as_os_str(), "-o".as_ref(), to.as_os_str()]);
        assert!(output.status.success(), "{}", shown(&output));
        assert!(stderr(&output).contains("wrote"), "{}", shown(&output));
        assert_eq!(figures(to), expected, "{}", to.display());
    }
    let trace = folder.path().join("trace.json");
    let arguments =
        ["convert".as_ref(), run.as_os_str(), "-o".as_ref(), trace.as_os_str(), "--format=chrome".as_ref()];
    assert!(commtrace(arguments).status.success());
    let trace: Value = serde_json::from_slice(&fs::read(&trace).unwrap()).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| !events.is_empty()));
}

#[test]
fn nothing_is_overwritten_unasked() {
    let folder = tempdir().unwrap();
    record(folder.path());
    let path = folder.path().as_os_str();
    let output = commtrace(["convert".as_ref(), path, "-o".as_ref(), path]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("--force"), "{}", shown(&output));

    let json = folder.path().join("out.json");
    fs::write(&json, "mine").unwrap();
    let arguments = ["convert".as_ref(), path, "-o".as_ref(), json.as_os_str()];
    assert_eq!(commtrace(arguments).status.code(), Some(1));
    assert_eq!(fs::read_to_string(&json).unwrap(), "mine");
    let output = commtrace([&arguments[..], &["--force".as_ref()]].concat());
    assert!(output.status.success(), "{}", shown(&output));
    assert!(fs::read_to_string(&json).unwrap().contains("\"ranks\""));

    // A file where a folder is needed, and the other way round.
    for format in ["--format=records", "--format=timeline"] {
        let to = if format.ends_with("records") { json.as_os_str() } else { path };
        let output = commtrace(["convert".as_ref(), path, "-o".as_ref(), to, format.as_ref()]);
        assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    }
}

#[test]
fn a_log_has_no_intervals_to_convert() {
    let folder = tempdir().unwrap();
    let log = folder.path().join("nccl.log");
    fs::write(&log, "h:1:2 [0] NCCL INFO Using network IB\n").unwrap();
    let to = folder.path().join("out");
    let output = commtrace(["convert".as_ref(), log.as_os_str(), "-o".as_ref(), to.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("nothing to convert"), "{}", shown(&output));
    assert!(!to.exists());
}

/// Two hosts whose clocks are 500 ms apart, with ten all-reduces that end together.
#[test]
fn a_chrome_trace_of_two_hosts_is_on_one_time_scale_unless_asked_otherwise() {
    let folder = tempdir().unwrap();
    let rank = |rank: u32, ahead: u32| {
        let comm: Vec<Value> = (0..10)
            .map(|seq| {
                let start = ahead + seq * 20;
                let end = start + 8;
                serde_json::json!({
                    "op": "all_reduce", "start": start, "end": end, "bytes": 64, "comm": "world", "seq": seq
                })
            })
            .collect();
        serde_json::json!({"rank": rank, "host": format!("node{rank}"), "compute": [], "comm": comm})
    };
    let input = folder.path().join("run.timeline.json");
    fs::write(&input, serde_json::json!({"ranks": [rank(0, 0), rank(1, 500)]}).to_string()).unwrap();
    for (flag, expected_us) in [(None, 0.0), (Some("--no-align"), 500_000.0)] {
        let commands: [&[&str]; 2] = [&["report"], &["convert"]];
        for (number, command) in commands.into_iter().enumerate() {
            let to = folder.path().join(format!("{number}{}.json", flag.unwrap_or_default()));
            let mut arguments = command.to_vec();
            arguments.extend([input.to_str().unwrap(), "--format", "chrome", "-o", to.to_str().unwrap()]);
            arguments.extend(flag);
            let output = commtrace(&arguments);
            assert!(output.status.success(), "{}", shown(&output));
            let trace: Value = serde_json::from_slice(&fs::read(&to).unwrap()).expect("JSON");
            let events = trace["traceEvents"].as_array().unwrap();
            let first = |rank: u64| {
                let of_rank = events.iter().filter(|event| event["ph"] == "X" && event["pid"] == rank);
                of_rank.filter_map(|event| event["ts"].as_f64()).fold(f64::INFINITY, f64::min)
            };
            assert!((first(1) - first(0) - expected_us).abs() < 1.0, "{arguments:?}");
            assert_eq!(events.iter().filter(|event| event["ph"] == "s").count(), 10);
        }
    }
}
