//! `commtrace bench collectives --backend mpi`: started by itself, and as the ranks of a job under `mpirun`.
#![cfg(feature = "mpi")]

mod common;

use common::bench::{command, of_experiment, record, records};
use common::{shown, stderr, stdout};
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::tempdir;

const SMALL: [&str; 8] =
    ["--backend", "mpi", "--payload-elements", "1200,6000", "--warmup", "1", "--repeats", "3"];

/// Whether MPI's launcher is here. If not, a test is skipped with a message, or fails where
/// `COMMTRACE_TEST_MPI=required`.
fn mpirun_is_here() -> bool {
    let found = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let required = env::var_os("COMMTRACE_TEST_MPI").is_some_and(|value| value == "required");
    assert!(
        found.is_ok() || !required,
        "COMMTRACE_TEST_MPI=required and no mpirun: apt-get install openmpi-bin"
    );
    if found.is_err() {
        eprintln!("skipped: no mpirun (apt-get install openmpi-bin libopenmpi-dev)");
    }
    found.is_ok()
}

/// In an environment in which Open MPI runs as any user, and with more ranks than cores.
fn prepare(command: &mut Command) -> &mut Command {
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_mpi_yield_when_idle", "1")
        // Memory of other processes may not be read in containers; Open MPI then warns.
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
}

/// Outside of a job: the command starts its ranks.
fn alone(folder: &Path, more: &[&str]) -> Output {
    prepare(&mut command(folder, &[&SMALL[..], more].concat())).output().expect("commtrace starts")
}

/// Under `mpirun -n 2`: it is the ranks.
fn under_mpirun(folder: &Path, more: &[&str]) -> Output {
    let inner = command(folder, &[&SMALL[..], more].concat());
    let mut mpirun = Command::new("mpirun");
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => mpirun.env(name, value),
            None => mpirun.env_remove(name),
        };
    }
    mpirun.args(["-n", "2"]).arg(inner.get_program()).args(inner.get_args());
    prepare(&mut mpirun).output().expect("mpirun starts")
}

type Start = fn(&Path, &[&str]) -> Output;
const BOTH: [(&str, Start); 2] = [("alone", alone), ("under mpirun", under_mpirun)];

#[test]
fn both_ways_of_starting_measure_everything() {
    if !mpirun_is_here() {
        return;
    }
    for (how, start) in BOTH {
        let folder = tempdir().unwrap();
        let output = start(folder.path(), &[]);
        assert!(output.status.success(), "{how}: {}", shown(&output));
        let stem = "collectives_mpi_auto_default";
        assert_eq!(records(folder.path()), [format!("{stem}.json"), format!("{stem}.log")], "{how}");
        let record = record(folder.path(), stem);
        assert!(record["failure"].is_null(), "{how}: {record}");
        let rows = record["metrics"]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 12, "{how}");
        assert!(
            rows.iter()
                .all(|row| row["wrong_elements"] == 0 && row["rank_mean_ms"].as_array().unwrap().len() == 2)
        );
        assert_eq!(record["hardware"]["hosts"][0]["ranks"], serde_json::json!([0, 1]), "{how}");
        assert!(record["versions"]["library"].is_string(), "{how}");
        assert_eq!(
            stdout(&output).matches("# decision: verify_overlap").count(),
            1,
            "{how}: {}",
            shown(&output)
        );
    }
}

#[test]
fn failures_name_the_rank_and_keep_the_log() {
    if !mpirun_is_here() {
        return;
    }
    let cases = [
        ("wrong-result:1", "wrong_result", Some(0), "4 wrong elements"),
        ("exit:1", "rank_failed", Some(1), "exit status: 3"),
        ("panic:0", "rank_failed", Some(0), "it panicked"),
        ("hang:1", "timed_out", None, ""),
    ];
    for (how, start) in BOTH {
        let folder = tempdir().unwrap();
        for (fault, kind, rank, words) in cases {
            let label = fault.replace(':', "-");
            let output = start(folder.path(), &["--fault", fault, "--run-label", &label, "--timeout", "20"]);
            assert_eq!(output.status.code(), Some(1), "{how}, {fault}: {}", shown(&output));
            let stem = format!("collectives_mpi_auto_{label}");
            let record = record(folder.path(), &stem);
            let failure = &record["failure"];
            assert_eq!(failure["kind"], kind, "{how}, {fault}: {failure}\n{}", shown(&output));
            if rank.is_some() {
                assert_eq!(failure["rank"].as_u64(), rank, "{how}, {fault}: {failure}");
            }
            assert_eq!(failure["collective"], "all_reduce", "{how}, {fault}: {failure}");
            assert!(failure["message"].as_str().unwrap().contains(words), "{how}, {fault}: {failure}");
            assert_eq!(record["metrics"]["rows"], serde_json::json!([]));
            let log =
                fs::read_to_string(folder.path().join(record["artifacts"]["log"].as_str().unwrap())).unwrap();
            assert!(log.contains("--- rank-00001"), "{how}, {fault}: {log}");
            assert_eq!(
                log.contains("a fault on purpose"),
                fault.starts_with("panic"),
                "{how}, {fault}: {log}"
            );
        }
    }
}

#[test]
fn without_an_mpirun_the_record_says_so() {
    let folder = tempdir().unwrap();
    let output = command(folder.path(), &SMALL).env("PATH", folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let record = record(folder.path(), "collectives_mpi_auto_default");
    assert_eq!(record["failure"]["kind"], "missing");
    assert!(record["failure"]["message"].as_str().unwrap().contains("there is no mpirun"));
}

#[test]
fn a_launchers_number_of_ranks_holds() {
    if !mpirun_is_here() {
        return;
    }
    let folder = tempdir().unwrap();
    let output = under_mpirun(folder.path(), &["--ranks", "3"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("leave --ranks out"), "{}", shown(&output));
    assert!(records(folder.path()).is_empty());
}

#[test]
fn overlap_of_processes() {
    if !mpirun_is_here() {
        return;
    }
    let folder = tempdir().unwrap();
    let arguments = [
        "--backend",
        "mpi",
        "--payload-elements",
        "5000",
        "--compute-dim",
        "80",
        "--warmup",
        "1",
        "--repeats",
        "3",
    ];
    let output = prepare(&mut of_experiment("overlap", folder.path(), &arguments)).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let record = record(folder.path(), "overlap_mpi_auto_default");
    assert_eq!(record["metrics"]["rows"].as_array().unwrap().len(), 2, "{record}");
    assert!(record["metrics"]["comparison"]["saved_ms"].is_number());
}
