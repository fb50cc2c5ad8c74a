//! `commtrace report` on what a traced run left behind.

mod common;

use common::{command, commtrace, record, shown, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use tempfile::{TempDir, tempdir};

fn recorded() -> TempDir {
    let folder = tempdir().unwrap();
    record(folder.path());
    folder
}

/// Runs `commtrace report FOLDER ...`.
fn report(folder: &Path, more: &[&str]) -> Output {
    let folder = folder.to_str().expect("a path in UTF-8");
    commtrace([&["report", folder], more].concat())
}

fn json(folder: &Path, more: &[&str]) -> Value {
    let output = report(folder, &[&["--format", "json"], more].concat());
    assert!(output.status.success(), "{}", shown(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_folder_gives_the_figures_that_the_run_ended_with() {
    let folder = recorded();
    let output = report(folder.path(), &["--format", "json"]);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(stdout(&output), fs::read_to_string(folder.path().join("summary.json")).unwrap());
    let output = report(folder.path(), &[]);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(stdout(&output), fs::read_to_string(folder.path().join("report.txt")).unwrap());
    assert_eq!(stderr(&output), "");
}

#[test]
fn record_files_by_name_are_the_folder() {
    let folder = recorded();
    let mut files: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path().into_os_string())
        .filter(|path| path.to_string_lossy().ends_with(".arrows"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 2);
    let mut arguments = vec!["report".into(), "--format=json".into()];
    arguments.extend(files);
    let output = commtrace(arguments);
    assert!(output.status.success(), "{}", shown(&output));
    let of_files: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(of_files, json(folder.path(), &[]));
}

#[test]
fn steps_and_ranks_are_filters() {
    let folder = recorded();
    let some = json(folder.path(), &["--steps", "2..5", "--ranks", "1"]);
    let ranks = some["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 1);
    assert_eq!(ranks[0]["rank"], 1);
    let numbers: Vec<_> =
        ranks[0]["steps"].as_array().unwrap().iter().map(|step| step["step"].as_i64().unwrap()).collect();
    assert_eq!(numbers, [2, 3, 4]);
    // One bucket per step; the metrics are averaged after the last step and outside of them.
    assert_eq!(ranks[0]["summary"]["by_op"], {
        let all_reduce = &ranks[0]["summary"]["by_op"]["all_reduce"];
        assert_eq!(all_reduce["count"], 3);
        serde_json::json!({ "all_reduce": all_reduce })
    });
    assert_eq!(some["cross_rank"], Value::Null);

    assert_eq!(json(folder.path(), &["--steps", "..2"])["ranks"][0]["steps"].as_array().unwrap().len(), 2);
    assert_eq!(json(folder.path(), &["--steps", "9.."])["ranks"][0]["steps"].as_array().unwrap().len(), 3);
    assert_eq!(json(folder.path(), &["--ranks", "1, 0"])["ranks"].as_array().unwrap().len(), 2);
}

#[test]
fn filters_that_leave_nothing_say_what_there_is() {
    let folder = recorded();
    for (arguments, said) in [
        (["--steps", "100..200"], "12 of them, from 0 to 11"),
        (["--ranks", "7"], "they hold: 0, 1"),
        (["--run", "nobody"], "nobody"),
    ] {
        let output = report(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        assert!(stderr(&output).contains(said), "{}", shown(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn thresholds_decide_the_advice() {
    let folder = recorded();
    // Nothing is hidden in this run, so the overlap ratio is 0, which is not below 0.
    let all = ["--imbalance-threshold", "1", "--overlap-threshold", "0", "--accept-ms", "1e9"];
    let lenient = json(folder.path(), &all);
    assert_eq!(lenient["mitigation"]["strategy"], "inspect_collective_payload_and_schedule");
    assert_eq!(lenient["followup"]["decision"], "accept");
    let strict = json(folder.path(), &["--imbalance-threshold", "1", "--accept-ms", "0"]);
    assert_eq!(strict["mitigation"]["strategy"], "increase_overlap_or_delay_sync");
    assert_eq!(strict["followup"]["decision"], "tune");
}

#[test]
fn several_runs_are_told_apart() {
    let folder = recorded();
    let first: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    record(folder.path());
    let output = report(folder.path(), &["--format", "json"]);
    let said = stderr(&output);
    assert!(said.contains("warning") && said.contains("2 runs"), "{}", shown(&output));
    let newest: Value = serde_json::from_slice(&output.stdout).unwrap();
    let path = newest["inputs"][0]["path"].as_str().unwrap();
    assert!(!first.iter().any(|name| path.ends_with(&*name.to_string_lossy())), "{path} is of the first run");
    // In text the warning is part of the report, once.
    let output = report(folder.path(), &[]);
    assert!(stdout(&output).contains("2 runs"), "{}", shown(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn chrome_trace_has_every_interval() {
    let folder = recorded();
    let output = report(folder.path(), &["--format", "chrome"]);
    assert!(output.status.success(), "{}", shown(&output));
    let trace: Value = serde_json::from_slice(&output.stdout).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count =
        |name: &str| events.iter().filter(|event| event["ph"] == "X" && event["name"] == name).count();
    assert_eq!((count("step"), count("forward"), count("all_gather")), (2 * 12, 2 * 12, 2));
    let conflict = report(folder.path(), &["--format", "chrome", "--steps", "1..2"]);
    assert_eq!(conflict.status.code(), Some(2), "{}", shown(&conflict));
}

#[test]
fn a_file_is_replaced_only_by_force() {
    let folder = recorded();
    let target = folder.path().join("again.txt");
    let path = target.to_str().unwrap();
    let output = report(folder.path(), &["-o", path]);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).contains("again.txt"), "{}", shown(&output));
    let text = fs::read_to_string(&target).unwrap();
    assert_eq!(text, fs::read_to_string(folder.path().join("report.txt")).unwrap());

    let output = report(folder.path(), &["-o", path, "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("exists") && stderr(&output).contains("--force"), "{}", shown(&output));
    assert_eq!(fs::read_to_string(&target).unwrap(), text);

    let output = report(folder.path(), &["-o", path, "--format", "json", "--force"]);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(fs::read(&target).unwrap(), fs::read(folder.path().join("summary.json")).unwrap());
    let output = report(folder.path(), &["-o", folder.path().join("no/such/folder").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = recorded();
    let mut child = command()
        .args(["report", "--format", "chrome"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(stderr(&output), "");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: `name` ends with a zero byte and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let output = commtrace(["report".as_ref(), pipe.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("is a pipe or a device"), "{}", shown(&output));
}
