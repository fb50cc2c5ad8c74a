//! `commtrace doctor` without a run: the environment; and folders that are none.

mod common;

use common::{command, shown, stderr, stdout};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::tempdir;

/// `doctor` in an environment of these variables alone.
fn doctor(variables: &[(&str, &str)]) -> (Output, Value) {
    let mut command = command();
    command.env_clear().args(["doctor", "--format", "json"]);
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", shown(&output)));
    (output, found)
}

/// The checks of a subject: status, what was found, and the remedy.
fn checks<'a>(found: &'a Value, subject: &str) -> Vec<(&'a str, &'a str, Option<&'a str>)> {
    let checks = found["checks"].as_array().unwrap().iter().filter(|check| check["subject"] == subject);
    checks
        .map(|check| {
            let text = |key: &str| check[key].as_str();
            (text("status").unwrap(), text("found").unwrap(), text("remedy"))
        })
        .collect()
}

#[test]
fn everything_is_looked_at_and_what_is_absent_has_a_remedy() {
    let (_, found) = doctor(&[]);
    for subject in ["CUDA driver", "kernel module", "NCCL", "MPI", "mpirun", "launcher", "clock", "host"] {
        assert!(!checks(&found, subject).is_empty(), "{subject}: {found}");
    }
    for check in found["checks"].as_array().unwrap() {
        assert_eq!(check["status"] == "ok", check["remedy"].is_null(), "{check}");
    }
    assert_eq!(checks(&found, "recording")[0].0, "absent");
    let (status, clock, _) = checks(&found, "clock")[0];
    assert!(status == "ok" && (clock.starts_with("tsc") || clock.starts_with("monotonic")), "{clock}");
}

#[test]
fn variables_that_are_wrong_or_contradict_each_other_are_problems() {
    let folder = tempdir().unwrap();
    let (output, found) = doctor(&[
        ("COMMTRACE_DIR", folder.path().to_str().unwrap()),
        ("COMMTRACE_FLUSH_MS", "1s"),
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_RANK", "2"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let (status, what, remedy) = checks(&found, "COMMTRACE_FLUSH_MS")[0];
    assert_eq!(status, "problem");
    assert!(what.contains("\"1s\"") && remedy.is_some(), "{what}");
    let launcher = checks(&found, "launcher");
    assert!(launcher[0].1.starts_with("rank 1 of 4"), "{launcher:?}");
    assert!(launcher[1].1.contains("Open MPI says rank 2 of 4; torchrun is believed"), "{launcher:?}");
    // The folder's path and that it can be written to.
    let directory = checks(&found, "COMMTRACE_DIR");
    assert!(directory.iter().any(|check| check.1.contains("can be written to")), "{directory:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A folder for libraries, with `library` as `name` made of C source. `None` without a compiler.
fn library(name: &str, source: &str) -> Option<tempfile::TempDir> {
    let folder = tempdir().unwrap();
    let file = folder.path().join("library.c");
    std::fs::write(&file, source).unwrap();
    let made =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(folder.path().join(name)).arg(&file).status();
    made.is_ok_and(|status| status.success()).then_some(folder)
}

fn with_library(name: &str, source: &str) -> Option<Value> {
    let Some(folder) = library(name, source) else {
        eprintln!("skipped: no C compiler");
        return None;
    };
    Some(doctor(&[("LD_LIBRARY_PATH", folder.path().to_str().unwrap())]).1)
}

#[test]
#[cfg(target_os = "linux")]
fn a_library_that_crashes_is_a_problem_and_not_the_end() {
    let source = "int ncclGetVersion(int *version) { return *(volatile int *)0; }";
    let Some(found) = with_library("libnccl.so.2", source) else { return };
    let (status, what, _) = checks(&found, "NCCL")[0];
    assert_eq!(status, "problem");
    assert!(what.contains("ends the process"), "{what}");
    assert!(!checks(&found, "host").is_empty(), "everything else is looked at");
}

#[test]
#[cfg(target_os = "linux")]
fn a_library_of_another_kind_is_told_by_what_it_lacks() {
    let Some(found) = with_library("libnccl.so.2", "int unrelated(void) { return 0; }") else { return };
    let (status, what, _) = checks(&found, "NCCL")[0];
    assert_eq!(status, "problem");
    assert!(what.contains("it has no ncclGetVersion"), "{what}");
}

/// A driver with two devices and one of an older version.
#[test]
#[cfg(target_os = "linux")]
fn devices_are_named_and_a_function_that_is_missing_is_told() {
    let source = r#"
        #include <string.h>
        int cuInit(unsigned flags) { return 0; }
        int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
        int cuDeviceGetCount(int *count) { *count = 2; return 0; }
        int cuDeviceGet(int *device, int ordinal) { *device = ordinal + 5; return 0; }
        int cuDeviceGetName(char *name, int length, int device) {
            strcpy(name, device == 5 ? "First" : "Second");
            return 0;
        }
    "#;
    let total =
        "int cuDeviceTotalMem_v2(unsigned long *bytes, int device) { *bytes = 85899345920ul; return 0; }";
    let Some(found) = with_library("libcuda.so.1", &format!("{source}{total}")) else { return };
    assert!(checks(&found, "CUDA driver")[0].1.ends_with("libcuda.so.1, for CUDA up to 12.4"), "{found}");
    assert_eq!(checks(&found, "device 0"), [("ok", "First, 80.0 GiB", None)]);
    assert_eq!(checks(&found, "device 1"), [("ok", "Second, 80.0 GiB", None)]);

    let Some(found) = with_library("libcuda.so.1", source) else { return };
    let driver = checks(&found, "CUDA driver");
    assert_eq!(driver[1].0, "problem");
    assert!(driver[1].1.contains("it has no cuDeviceTotalMem_v2"), "{driver:?}");
    assert_eq!(checks(&found, "device 0")[0].1, "First, memory unknown");
}

#[test]
#[cfg(target_os = "linux")]
fn a_driver_without_a_device_says_which_call_failed() {
    let source = r#"
        int cuInit(unsigned flags) { return 100; }
        int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
        int cuGetErrorName(int code, const char **name) { *name = "CUDA_ERROR_NO_DEVICE"; return 0; }
    "#;
    let Some(found) = with_library("libcuda.so.1", source) else { return };
    let (status, what, remedy) = checks(&found, "devices")[0];
    assert_eq!((status, what), ("absent", "cuInit failed: CUDA_ERROR_NO_DEVICE (100)"));
    assert!(remedy.is_some());
}

/// The NCCL of PyPI's `nvidia-nccl-cu12`, if the interpreter that the variable names has it.
#[test]
#[cfg(target_os = "linux")]
fn nccl_of_pypi_is_found_and_its_version_told() {
    let Some(python) = std::env::var_os("COMMTRACE_TEST_PYTHON") else {
        eprintln!("skipped: COMMTRACE_TEST_PYTHON names no interpreter");
        return;
    };
    let script = "import importlib.metadata, nvidia.nccl; \
                  print(list(nvidia.nccl.__path__)[0]); \
                  print(importlib.metadata.version('nvidia-nccl-cu12'))";
    let output = Command::new(python).args(["-c", script]).output().unwrap();
    if !output.status.success() {
        eprintln!("skipped: no nvidia-nccl-cu12 there: {}", stderr(&output));
        return;
    }
    let text = stdout(&output);
    let mut lines = text.lines();
    let folder: PathBuf = Path::new(lines.next().unwrap()).join("lib");
    let version = lines.next().unwrap();
    let (_, found) = doctor(&[("LD_LIBRARY_PATH", folder.to_str().unwrap())]);
    let (status, what, _) = checks(&found, "NCCL")[0];
    // A package may be built once more: 2.21.5.post1.
    let version = version.split(".post").next().unwrap();
    assert_eq!((status, what.split(',').next()), ("ok", Some(version)), "{what}");
    assert!(what.ends_with("libnccl.so.2"), "{what}");
}

#[test]
fn what_is_no_run_is_an_error_that_says_what_is_there() {
    let folder = tempdir().unwrap();
    let run = |path: &Path| command().arg("doctor").arg(path).output().unwrap();
    let output = run(&folder.path().join("none"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("none"), "{}", shown(&output));
    let output = run(folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: "), "{}", shown(&output));
    std::fs::write(folder.path().join("rank-00000.1.1.arrows"), b"not a record").unwrap();
    let output = run(folder.path());
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).contains("rank-00000.1.1.arrows"), "{}", shown(&output));
}

#[test]
fn options_of_a_run_need_one() {
    let output = command().args(["doctor", "--stuck-after", "3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
}
