//! Running the command, and making runs for it to report on.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod bench;

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the command with `arguments`.
pub fn commtrace<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    command().args(arguments).output().expect("commtrace starts")
}

pub fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_commtrace"))
}

/// The training example's program, built if no earlier `cargo` did.
fn ddp_train() -> PathBuf {
    let profile = Path::new(env!("CARGO_BIN_EXE_commtrace")).parent().expect("target/<profile>");
    let path = profile.join("examples").join(format!("ddp_train{}", env::consts::EXE_SUFFIX));
    if !path.is_file() {
        let name = profile.file_name().and_then(OsStr::to_str).expect("the profile's folder");
        let name = if name == "debug" { "dev" } else { name };
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--package", "commtrace", "--example", "ddp_train", "--profile", name])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.is_ok_and(|status| status.success()), "cannot build the example");
    }
    path
}

/// A training run of 12 steps on two ranks, recorded into `folder`.
pub fn record(folder: &Path) {
    let mut command = Command::new(ddp_train());
    for name in ["COMMTRACE", "COMMTRACE_STEPS", "COMMTRACE_RANKS", "COMMTRACE_REPORT", "RANK", "WORLD_SIZE"]
    {
        command.env_remove(name);
    }
    let output = command
        .args(["--steps", "12", "--batch", "16", "--hidden", "64"])
        .env("COMMTRACE_DIR", folder)
        .output()
        .expect("ddp_train starts");
    assert!(output.status.success(), "{}", shown(&output));
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
