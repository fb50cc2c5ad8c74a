//! The mixture-of-experts example: skewed routing is told from balanced routing, and the hot rank is named.

mod common;
#[cfg(feature = "mpi")]
#[allow(dead_code, reason = "these tests run another program")]
#[path = "../collectives/tests/common/under_mpirun.rs"]
mod under_mpirun;

use common::{command, example, shown, stderr, stdout, summary};
use double_support::{Doubles, Finished, finish};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::tempdir;

/// A run of a second or two, also unoptimized.
const SHORT: [&str; 6] = ["--steps", "6", "--tokens", "33", "--hidden", "64"];
/// Experts that compute long next to what scheduling does to a step.
const LONG: [&str; 6] = ["--steps", "24", "--tokens", "512", "--hidden", "256"];
/// Steps that are short, and so many that a bad spell of the machine is a few of them.
const MANY: [&str; 6] = ["--steps", "60", "--tokens", "256", "--hidden", "128"];

fn program(arguments: &[&str]) -> Command {
    let mut command = command(example("mixture_of_experts"));
    command.args(arguments);
    command
}

fn succeeded(output: Output) -> Output {
    assert!(output.status.success(), "{}", shown(&output));
    output
}

/// Runs on ranks of this process with records in `folder`; returns `summary.json`.
fn recorded(folder: &Path, arguments: &[&str]) -> Value {
    succeeded(program(arguments).env("COMMTRACE_DIR", folder).output().unwrap());
    summary(folder)
}

fn ranks(report: &Value) -> &[Value] {
    report["ranks"].as_array().unwrap()
}

fn strategy(report: &Value) -> &str {
    report["mitigation"]["strategy"].as_str().expect("a strategy")
}

/// The rank for which the others waited longest.
fn most_waited_for(report: &Value) -> u64 {
    let caused = |rank: &&Value| rank["caused_wait_ms"].as_f64().unwrap();
    let by_rank = report["cross_rank"]["by_rank"].as_array().unwrap();
    let worst = by_rank.iter().max_by(|a, b| caused(a).total_cmp(&caused(b))).unwrap();
    worst["rank"].as_u64().unwrap()
}

/// The advice for routing whose hot expert is the first of `rank`.
fn assert_names_the_hot_rank(report: &Value, rank: u64) {
    let across = &report["cross_rank"];
    assert_eq!(strategy(report), "rebalance_ranks_or_experts", "{across}");
    assert_eq!(report["mitigation"]["target"], "all_to_all_v", "{across}");
    assert_eq!(most_waited_for(report), rank, "{across}");
    let routing = &across["routing"];
    assert_eq!(routing["hottest_rank"], rank, "{routing}");
    assert!(routing["expert_load_skew"].as_f64().is_some_and(|skew| skew > 2.0), "{routing}");
    // On a busy machine its lateness need not stand out enough for a claim; another rank's must not.
    for straggler in across["stragglers"].as_array().unwrap() {
        assert_eq!((&straggler["rank"], &straggler["span"]), (&rank.into(), &"expert".into()), "{across}");
        let hot_expert = (2 * rank).to_string();
        assert_eq!(straggler["span_label"].as_str(), Some(&*hot_expert), "{straggler}");
        let reason = report["followup"]["reason"].as_str().unwrap();
        assert!(reason.contains(&format!("Rank {rank} spends ")), "{reason}");
    }
}

#[test]
fn skewed_routing_is_to_be_rebalanced_and_the_hot_rank_is_named() {
    for rank in [1, 3] {
        let folder = tempdir().unwrap();
        let hot_rank = rank.to_string();
        let report = recorded(folder.path(), &[&LONG[..], &["--hot-rank", &hot_rank]].concat());
        assert_names_the_hot_rank(&report, rank);
    }
}

#[test]
fn skewed_routing_is_found_beside_overlap_too() {
    let folder = tempdir().unwrap();
    let report = recorded(folder.path(), &[&LONG[..], &["--hot-rank", "2", "--overlap", "on"]].concat());
    assert_names_the_hot_rank(&report, 2);
}

#[test]
fn balanced_routing_is_not_to_be_rebalanced() {
    let folder = tempdir().unwrap();
    let report = recorded(folder.path(), &[&MANY[..], &["--skew", "1"]].concat());
    assert_eq!(strategy(&report), "increase_overlap_or_delay_sync", "{}", report["cross_rank"]);
    assert_eq!(report["cross_rank"]["stragglers"].as_array().map(Vec::len), Some(0));
    for rank in ranks(&report) {
        assert_eq!(rank["wall"]["exposed_ms"], rank["wall"]["comm_ms"]);
    }
}

#[test]
fn balanced_routing_beside_compute_is_routing_traffic() {
    let folder = tempdir().unwrap();
    let report = recorded(folder.path(), &[&LONG[..], &["--skew", "1", "--overlap", "on"]].concat());
    let hidden = report["hotspots"]["priority"]["overlap_ratio"].as_f64().unwrap();
    assert!(hidden > 0.0);
    let across = &report["cross_rank"];
    // With more threads than cores a rank can have the worse core for a whole run; then it is named.
    if across["stragglers"].as_array().is_some_and(|stragglers| !stragglers.is_empty()) {
        return;
    }
    let expected = if hidden < 0.30 { "increase_overlap_or_delay_sync" } else { "reduce_routing_traffic" };
    assert_eq!(strategy(&report), expected, "{hidden}: {across}");
}

/// What the run says, without the figure that no two runs have in common.
fn said(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with("throughput_tokens_per_s ")).collect()
}

#[test]
fn the_result_is_the_same_traced_or_not_overlapped_or_not() {
    let folder = tempdir().unwrap();
    let run = |arguments: &[&str], variable: &str, value: &Path| {
        let arguments = [&SHORT[..], arguments].concat();
        stdout(&succeeded(program(&arguments).env(variable, value).output().unwrap()))
    };
    let plain = run(&[], "COMMTRACE", Path::new("off"));
    assert_eq!(plain.matches("the output equals that of all experts computed there").count(), 4, "{plain}");
    assert_eq!(said(&run(&[], "COMMTRACE_DIR", folder.path())), said(&plain));
    let overlapped = run(&["--overlap", "on"], "COMMTRACE", Path::new("off"));
    assert_eq!(said(&overlapped)[1..], said(&plain)[1..], "all but the line that says how it is run");
}

#[test]
fn calls_and_bytes_are_those_of_the_layer() {
    let shapes: [(&[&str], u64); 3] = [
        (&["--overlap", "off"], 2),
        (&["--overlap", "on", "--skew", "1"], 4),
        // All tokens for one expert: other ranks get none.
        (&["--experts-per-rank", "1", "--ranks", "3", "--skew", "3", "--overlap", "on"], 4),
    ];
    for (arguments, exchanges) in shapes {
        let folder = tempdir().unwrap();
        let report = recorded(folder.path(), &[&SHORT[..], arguments].concat());
        for rank in ranks(&report) {
            let ops = &rank["summary"]["by_op"];
            assert_eq!(ops["all_to_all"]["count"], 6, "counts, once a step");
            assert_eq!(ops["all_to_all_v"]["count"], 6 * exchanges, "{arguments:?}");
            assert_eq!(ops["all_gather"]["count"], 1);
            assert_eq!(rank["steps"].as_array().unwrap().len(), 6);
        }
        // Every token goes out and comes back once.
        let bytes: u64 = ranks(&report)
            .iter()
            .map(|rank| rank["summary"]["by_op"]["all_to_all_v"]["bytes"].as_u64().unwrap())
            .sum();
        assert_eq!(bytes, ranks(&report).len() as u64 * 6 * 33 * 64 * 4 * 2, "{arguments:?}");
        assert_eq!(report["cross_rank"]["unmatched_events"], 0);
    }
}

#[test]
fn the_report_has_the_figures_that_the_run_counts() {
    for arguments in [&["--hot-rank", "2"][..], &["--skew", "1", "--overlap", "on"]] {
        let folder = tempdir().unwrap();
        let mut command = program(&[&SHORT[..], arguments].concat());
        let text = stdout(&succeeded(command.env("COMMTRACE_DIR", folder.path()).output().unwrap()));
        let counted = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse().unwrap()
        };
        let report = summary(folder.path());
        let routing = &report["cross_rank"]["routing"];
        for name in ["dispatch_payload_bytes", "cross_rank_token_ratio", "expert_load_skew"] {
            let reported = routing[name].as_f64().unwrap();
            assert!((reported - counted(name)).abs() <= 1e-6, "{name} {reported}: {text}");
        }
        assert_eq!(counted("dispatch_payload_bytes"), (4 * 6 * 33 * 64 * 4) as f64);
        // The report's time begins with the first interval and ends with the last; the run's is that of its steps.
        let ratio = routing["throughput_tokens_per_s"].as_f64().unwrap() / counted("throughput_tokens_per_s");
        assert!((0.3..3.0).contains(&ratio), "{ratio}: {routing} {text}");
        if arguments[0] == "--hot-rank" {
            assert_eq!(routing["hottest_rank"], 2);
            let advice = fs::read_to_string(folder.path().join("report.txt")).unwrap();
            assert!(advice.contains("rank 2 gets"), "{advice}");
        }
    }
}

#[test]
fn wrong_arguments_are_status_2() {
    for arguments in [
        &["--ranks", "0"][..],
        &["--skew", "0.5"],
        &["--skew", "9"],
        &["--skew", "NaN"],
        &["--hot-rank", "4"],
        &["--tokens", "-1"],
        &["--overlap", "maybe"],
        &["--wrong"],
    ] {
        let output = program(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", shown(&output));
        assert!(stderr(&output).contains(arguments[0]), "{arguments:?}: {}", shown(&output));
    }
}

/// How long a run may take on a machine that is busy with others.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Runs on the stand-in driver and NCCL, whose figures are not those of a GPU.
fn on_stand_ins(doubles: &Doubles, folder: &Path, arguments: &[&str]) -> Finished {
    let mut command = program(&[&SHORT[..], &["--backend", "nccl"], arguments].concat());
    let path = doubles.command("").get_envs().find_map(|(name, value)| {
        (name == "LD_LIBRARY_PATH").then(|| value.map(ToOwned::to_owned)).flatten()
    });
    command.env("LD_LIBRARY_PATH", path.expect("the path of the stand-ins"));
    command.env("DOUBLE_CUDA_DEVICES", "4").env("COMMTRACE_DIR", folder);
    let run = finish(&mut command, TIME_LIMIT).unwrap();
    let ok = run.status.is_some_and(|status| status.success());
    assert!(ok, "{:?}\n--- stdout\n{}--- stderr\n{}", run.status, run.stdout, run.stderr);
    run
}

#[test]
fn nccl_carries_the_same_tokens_with_compute_in_streams() {
    let doubles = Doubles::new().unwrap();
    let on_host = stdout(&succeeded(program(&SHORT).env("COMMTRACE", "off").output().unwrap()));
    for (overlap, exchanges) in [("off", 2), ("on", 4)] {
        let folder = tempdir().unwrap();
        let run = on_stand_ins(&doubles, folder.path(), &["--overlap", overlap]);
        assert_eq!(run.stdout.matches("the output equals").count(), 4, "{}", run.stdout);
        let figures = |text: &str| -> Vec<String> {
            said(text).iter().skip(1).take(4).map(ToString::to_string).collect()
        };
        assert_eq!(figures(&run.stdout), figures(&on_host));
        let report = summary(folder.path());
        for rank in ranks(&report) {
            let ops = &rank["summary"]["by_op"];
            assert_eq!(
                (&ops["all_to_all"]["count"], &ops["all_to_all_v"]["count"]),
                (&6.into(), &(6 * exchanges).into())
            );
            assert!(rank["wall"]["compute_ms"].as_f64().unwrap() > 0.0);
            assert_eq!(rank["untimed"]["count"], 0);
        }
        assert_eq!(report["cross_rank"]["unmatched_events"], 0);
    }
}

#[cfg(feature = "mpi")]
mod mpi {
    use super::*;

    /// `mpirun -n 4` with records in `folder`; `None` without mpirun.
    fn recorded(folder: &Path, arguments: &[&str]) -> Option<(Value, String)> {
        under_mpirun::is_here().then(|| {
            let mut command = under_mpirun::mpirun(4);
            command.env("COMMTRACE_MERGE_TIMEOUT_S", "120").env("COMMTRACE_DIR", folder);
            command.arg(example("mixture_of_experts")).args(["--backend", "mpi"]).args(arguments);
            let output = succeeded(under_mpirun::finish(command));
            (summary(folder), stdout(&output))
        })
    }

    #[test]
    fn processes_carry_the_same_tokens() {
        let folder = tempdir().unwrap();
        let Some((report, text)) = recorded(folder.path(), &[&SHORT[..], &["--overlap", "on"]].concat())
        else {
            return;
        };
        assert_eq!(text.matches("the output equals").count(), 4, "{text}");
        for rank in ranks(&report) {
            assert_eq!(rank["summary"]["by_op"]["all_to_all_v"]["count"], 6 * 4);
        }
        assert_eq!(report["cross_rank"]["unmatched_events"], 0);
    }

    #[test]
    fn the_hot_rank_is_waited_for() {
        let folder = tempdir().unwrap();
        let arguments = ["--steps", "24", "--tokens", "1024", "--hidden", "256", "--hot-rank", "2"];
        let Some((report, _)) = recorded(folder.path(), &arguments) else { return };
        assert_names_the_hot_rank(&report, 2);
    }
}
