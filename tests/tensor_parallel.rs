//! The tensor-parallel example on every backend: what it says of its own result, and what its report shows.

mod common;
#[cfg(feature = "mpi")]
#[allow(dead_code, reason = "these tests run another program")]
#[path = "../collectives/tests/common/under_mpirun.rs"]
mod under_mpirun;

use common::{command, example, shown, stderr, stdout, summary};
use double_support::{Doubles, finish};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::tempdir;

const STEPS: u64 = 12;
const LAYERS: u64 = 3;
/// 16 samples of 96 `f32`.
const BYTES: u64 = 16 * 96 * 4;

/// A run of a second or two, also unoptimized.
const SHORT: [&str; 8] = ["--steps", "12", "--layers", "3", "--batch", "16", "--hidden", "96"];

/// As many steps as it takes to tell a habit from chance, and a delay of many times what scheduling makes of them.
const SLOW: [&str; 10] =
    ["--steps", "40", "--layers", "1", "--batch", "16", "--hidden", "96", "--slow-rank", "1:100"];

/// The example with these arguments.
fn training(arguments: &[&str]) -> Command {
    let mut command = command(example("tensor_parallel"));
    command.args(arguments);
    command
}

fn with<'a>(arguments: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [arguments, more].concat()
}

/// Runs it with its first 12 steps recorded in `folder`: not what comes before and after. Returns `summary.json`.
fn recorded(folder: &Path, arguments: &[&str]) -> Value {
    let output = in_steps(training(arguments), folder).output().unwrap();
    is_as_unsplit(&output);
    summary(folder)
}

fn in_steps(mut command: Command, folder: &Path) -> Command {
    command.env("COMMTRACE_DIR", folder).env("COMMTRACE_STEPS", format!("0..{STEPS}"));
    command
}

/// The run found its result to be that of the unsplit model.
fn is_as_unsplit(output: &Output) {
    assert!(output.status.success(), "{}", shown(output));
    says_as_unsplit(&stdout(output));
}

fn says_as_unsplit(text: &str) {
    for part in ["logits before training are", "parameters after training are", "logits after training are"] {
        assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
    }
    assert!(text.contains("replicated parameters are bit-identical on all"), "{text}");
}

fn ranks(report: &Value) -> &[Value] {
    report["ranks"].as_array().unwrap()
}

fn all_reduce(report: &Value) -> &Value {
    let ops = report["cross_rank"]["ops"].as_array().unwrap_or_else(|| panic!("{report}"));
    ops.iter().find(|op| op["collective"] == "all_reduce").unwrap()
}

/// Communicators and how many all_reduces each one's ranks had together, in the order of their names.
fn by_communicator(report: &Value) -> Vec<(&str, u64)> {
    let entries = all_reduce(report)["by_communicator"].as_array().unwrap();
    let mut found: Vec<_> = entries
        .iter()
        .map(|entry| (entry["comm"].as_str().unwrap(), entry["matched"].as_u64().unwrap()))
        .collect();
    found.sort_unstable();
    found
}

/// Two all_reduces a layer and step on every rank, all of them exposed.
fn has_two_all_reduces_a_layer(report: &Value, ranks: usize) {
    let calls = 2 * LAYERS * STEPS;
    assert_eq!(self::ranks(report).len(), ranks);
    for rank in self::ranks(report) {
        let reduced = &rank["summary"]["by_op"]["all_reduce"];
        assert_eq!((&reduced["count"], &reduced["bytes"]), (&calls.into(), &(calls * BYTES).into()));
        assert_eq!(rank["summary"]["num_comm_events"], calls, "there is nothing else");
        assert_eq!(rank["summary"]["overlap_ratio"], 0.0);
        assert_eq!(rank["wall"]["exposed_ms"], rank["wall"]["comm_ms"]);
        assert!(rank["wall"]["exposed_ms"].as_f64().unwrap() > 0.0);
        assert!(rank["wall"]["compute_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(rank["untimed"]["count"], 0);
        assert_eq!(rank["steps"].as_array().unwrap().len(), STEPS as usize);
    }
    assert_eq!(all_reduce(report)["matched"], calls);
    assert_eq!(report["cross_rank"]["unmatched_events"], 0);
    assert_eq!(by_communicator(report).len(), 1);
}

#[test]
fn a_layer_costs_two_exposed_all_reduces_a_step() {
    for ranks in [2, 4] {
        let folder = tempdir().unwrap();
        let report = recorded(folder.path(), &with(&SHORT, &["--ranks", &ranks.to_string()]));
        has_two_all_reduces_a_layer(&report, ranks);
        assert_eq!(by_communicator(&report), [("world", 2 * LAYERS * STEPS)]);
    }
}

#[test]
fn with_replicas_gradients_are_averaged_in_groups_of_their_own() {
    let folder = tempdir().unwrap();
    let report = recorded(folder.path(), &with(&SHORT, &["--ranks", "4", "--data-parallel", "2"]));
    let (layers, steps) = (2 * LAYERS * STEPS, STEPS);
    // Named after the colors of two splits: replicas first, then the ranks with the same part.
    let expected = [("world/0", layers), ("world/0.1", steps), ("world/1", layers), ("world/1.1", steps)];
    assert_eq!(by_communicator(&report), expected);
    for rank in ranks(&report) {
        assert_eq!(rank["summary"]["by_op"]["all_reduce"]["count"], layers + steps);
    }
}

#[test]
fn one_of_two_all_reduces_can_be_hidden_and_the_result_is_the_same() {
    let folder = tempdir().unwrap();
    // Products that are long enough for a communication thread to be scheduled beside them.
    let long = ["--steps", "12", "--layers", "3", "--batch", "128", "--hidden", "128", "--overlap"];
    let on = in_steps(training(&with(&long, &["on"])), folder.path()).output().unwrap();
    is_as_unsplit(&on);
    let report = summary(folder.path());
    let hidden: Vec<f64> =
        ranks(&report).iter().map(|rank| rank["summary"]["overlap_ratio"].as_f64().unwrap()).collect();
    // Those of forward cannot be, however the threads are scheduled.
    assert!(hidden.iter().any(|ratio| *ratio > 0.0) && hidden.iter().all(|ratio| *ratio < 1.0), "{hidden:?}");
    let off = training(&with(&long, &["off"])).env("COMMTRACE", "off").output().unwrap();
    assert_eq!(stdout(&off), stdout(&on));
}

#[test]
fn a_rank_that_computes_longer_is_named() {
    let folder = tempdir().unwrap();
    let mut command = training(&with(&SLOW, &["--ranks", "3"]));
    is_as_unsplit(&command.env("COMMTRACE_DIR", folder.path()).output().unwrap());
    let report = summary(folder.path());
    names_rank_1(&report);
    assert_eq!(report["mitigation"]["strategy"], "rebalance_ranks_or_experts");
    assert_eq!(report["hotspots"]["priority"]["collective"], "all_reduce");
}

fn names_rank_1(report: &Value) {
    let named = report["cross_rank"]["stragglers"].as_array().unwrap();
    assert_eq!(named.len(), 1, "{}", report["cross_rank"]["by_rank"]);
    assert_eq!((&named[0]["rank"], &named[0]["span"]), (&1.into(), &"slow_rank_sleep".into()));
}

#[test]
fn with_no_variable_the_summary_ends_the_run() {
    let output = training(&SHORT).output().unwrap();
    is_as_unsplit(&output);
    let text = stderr(&output);
    // Two more forwards than steps; the training of the unsplit model is not in it.
    for part in ["2 ranks, 12 steps", "summed over 78 calls", "increase_overlap_or_delay_sync"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn training_that_fails_is_status_1() {
    let output = training(&with(&SHORT, &["--learning-rate", "1000"])).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("the loss did not fall"), "{}", shown(&output));
}

#[test]
fn arguments_that_do_not_fit_each_other_are_status_2() {
    for (arguments, named) in [
        (&["--ranks", "5"][..], "--hidden 192: 5 ranks cannot divide the 768 columns"),
        (&["--ranks", "3", "--data-parallel", "2"], "--data-parallel 2"),
        (&["--slow-rank", "2:10"], "--slow-rank 2"),
        (&["--layers", "0"], "--layers"),
    ] {
        let output = training(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", shown(&output));
        assert!(stderr(&output).contains(named), "{arguments:?}: {}", shown(&output));
    }
}

/// On the stand-in driver and NCCL.
#[test]
fn on_devices_the_all_reduces_are_timed_there() {
    let doubles = Doubles::new().unwrap();
    let run = |mut command: Command| {
        let path = doubles.command("").get_envs().find_map(|(name, value)| {
            (name == "LD_LIBRARY_PATH").then(|| value.map(ToOwned::to_owned)).flatten()
        });
        command.env("LD_LIBRARY_PATH", path.expect("the path of the stand-ins")).args(["--backend", "nccl"]);
        // On a machine that is busy with others.
        let run = finish(&mut command, Duration::from_secs(120)).unwrap();
        assert!(run.status.is_some_and(|status| status.success()), "{}\n{}", run.stdout, run.stderr);
        says_as_unsplit(&run.stdout);
    };
    let folder = tempdir().unwrap();
    run(in_steps(training(&SHORT), folder.path()));
    let report = summary(folder.path());
    has_two_all_reduces_a_layer(&report, 2);
    for (number, rank) in ranks(&report).iter().enumerate() {
        assert_eq!((&rank["rank"], &rank["device"]), (&number.into(), &number.into()));
    }

    let folder = tempdir().unwrap();
    let mut slow = training(&SLOW);
    slow.env("COMMTRACE_DIR", folder.path());
    run(slow);
    names_rank_1(&summary(folder.path()));

    let folder = tempdir().unwrap();
    let more = ["--ranks", "4", "--data-parallel", "2", "--overlap", "on"];
    let mut replicas = in_steps(training(&with(&SHORT, &more)), folder.path());
    replicas.env("DOUBLE_CUDA_DEVICES", "4");
    run(replicas);
    let report = summary(folder.path());
    let counts: Vec<u64> = by_communicator(&report).into_iter().map(|(_, count)| count).collect();
    let (layers, steps) = (2 * LAYERS * STEPS, STEPS);
    assert_eq!(counts, [layers, steps, layers, steps]);
}

#[cfg(feature = "mpi")]
#[test]
fn under_mpirun_it_is_the_same() {
    if !under_mpirun::is_here() {
        return;
    }
    let job = |ranks: usize, steps: bool, arguments: &[&str]| {
        let (folder, mut command) = (tempdir().unwrap(), under_mpirun::mpirun(ranks));
        command.env("COMMTRACE_DIR", folder.path());
        if steps {
            command = in_steps(command, folder.path());
        }
        // Generous: a rank that the system does not schedule is not a missing rank.
        command.env("COMMTRACE_MERGE_TIMEOUT_S", "120");
        command.arg(example("tensor_parallel")).args(["--backend", "mpi"]).args(arguments);
        is_as_unsplit(&under_mpirun::finish(command));
        summary(folder.path())
    };
    has_two_all_reduces_a_layer(&job(2, true, &SHORT), 2);
    names_rank_1(&job(2, false, &SLOW));
    let report = job(4, true, &with(&SHORT, &["--data-parallel", "2"]));
    assert_eq!(by_communicator(&report).len(), 4);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_backend_that_was_not_built_in_says_how_to_build_it() {
    let output = training(&["--backend", "mpi"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("--features mpi"), "{}", shown(&output));
}
