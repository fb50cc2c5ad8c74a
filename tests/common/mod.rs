//! Running the examples as a user does.
#![allow(dead_code, reason = "each test file uses a part of it")]

use serde_json::Value;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An example's program, which `cargo test` builds beside the tests.
pub fn example(name: &str) -> PathBuf {
    let test = env::current_exe().expect("the test's own path");
    let target = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let path = target.join("examples").join(format!("{name}{}", env::consts::EXE_SUFFIX));
    assert!(path.is_file(), "{} is missing: cargo build --example {name}", path.display());
    path
}

/// A command that sees no variable of a launcher or of commtrace.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let prefixes = ["COMMTRACE", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE"];
        if prefixes.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Arguments of a training run that takes a second or two, also unoptimized.
pub const SHORT: [&str; 6] = ["--steps", "12", "--batch", "16", "--hidden", "64"];

/// Runs `ddp_train`; `folder` is where it records, `None` leaves the variable unset.
pub fn ddp_train(folder: Option<&Path>, arguments: &[&str]) -> Output {
    let mut command = command(example("ddp_train"));
    if let Some(folder) = folder {
        command.env("COMMTRACE_DIR", folder);
    }
    command.args(arguments).output().expect("ddp_train starts")
}

/// As [`ddp_train`] with a folder; the run must succeed. Returns `summary.json`.
pub fn recorded(folder: &Path, arguments: &[&str]) -> Value {
    let output = ddp_train(Some(folder), arguments);
    assert!(output.status.success(), "{}", shown(&output));
    summary(folder)
}

pub fn summary(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("summary.json")).expect("summary.json");
    serde_json::from_str(&text).expect("JSON")
}

/// Status and both streams, for the message of a failed assertion.
pub fn shown(output: &Output) -> String {
    format!("{}\n--- stdout\n{}--- stderr\n{}", output.status, stdout(output), stderr(output))
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Names in `folder`, in order.
pub fn listing(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The worst overlap ratio of `all_reduce`.
pub fn all_reduce_overlap(report: &Value) -> f64 {
    let events = report["hotspot_events"].as_array().expect("hotspot_events");
    let event = events.iter().find(|event| event["collective"] == "all_reduce").expect("all_reduce");
    event["overlap_ratio"].as_f64().expect("a number")
}
