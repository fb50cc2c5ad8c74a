//! The training example as real processes under `mpirun`: one report, with and without a folder that all
//! ranks share, and what is left when a rank dies.
#![cfg(feature = "mpi")]

mod common;
#[allow(dead_code, reason = "these tests run another program")]
#[path = "../collectives/tests/common/under_mpirun.rs"]
mod under_mpirun;

use common::{SHORT, example, listing, shown, stderr, stdout, summary};
use commtrace::report::analyze::{AnalyzeOptions, DesyncKind, analyze};
use commtrace::report::read::{ReadOptions, read};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// `mpirun -n 4 ddp_train --backend mpi`, with what `change` sets; `None` without mpirun.
fn job(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Option<Output> {
    under_mpirun::is_here().then(|| {
        let mut command = under_mpirun::mpirun(4);
        // Generous: a rank that the system does not schedule is not a missing rank.
        command.env("COMMTRACE_MERGE_TIMEOUT_S", "120");
        change(&mut command);
        command.arg(example("ddp_train")).args(["--backend", "mpi"]).args(arguments);
        let output = under_mpirun::finish(command);
        assert!(output.status.success(), "{}", shown(&output));
        output
    })
}

fn ranks(report: &Value) -> Vec<u64> {
    report["ranks"].as_array().unwrap().iter().map(|rank| rank["rank"].as_u64().unwrap()).collect()
}

fn across<'a>(report: &'a Value, collective: &str) -> &'a Value {
    let ops = report["cross_rank"]["ops"].as_array().unwrap_or_else(|| panic!("{report}"));
    ops.iter().find(|op| op["collective"] == collective).unwrap()
}

#[test]
fn without_a_folder_rank_0_reports_on_all_ranks_once() {
    let Some(output) = job(&SHORT, |command| {
        command.env("COMMTRACE", "summary");
    }) else {
        return;
    };
    let (said, trained) = (stderr(&output), stdout(&output));
    assert_eq!(said.matches("4 ranks, 12 steps").count(), 1, "{}", shown(&output));
    assert_eq!(said.matches("Waits across ranks").count(), 1, "{}", shown(&output));
    assert_eq!(trained.matches("weights are bit-identical on all ranks").count(), 1, "{}", shown(&output));
}

#[test]
fn a_folder_that_all_ranks_share_is_merged() {
    let folder = tempdir().unwrap();
    let Some(output) = job(&SHORT, |command| {
        command.env("COMMTRACE_DIR", folder.path());
    }) else {
        return;
    };
    let names = listing(folder.path());
    assert_eq!(names.iter().filter(|name| name.ends_with(".arrows")).count(), 4, "{names:?}");
    assert_eq!(names.len(), 6, "one summary.json and one report.txt: {names:?}");
    assert_eq!(stderr(&output).matches("wrote").count(), 1, "{}", shown(&output));
    let report = summary(folder.path());
    assert_eq!(ranks(&report), [0, 1, 2, 3]);
    assert_eq!(report["inputs"].as_array().unwrap().len(), 4);
    // A bucket per step, and metrics before, after and at the last step.
    assert_eq!(
        (&across(&report, "all_reduce")["matched"], &report["cross_rank"]["unmatched_events"]),
        (&15.into(), &0.into())
    );
    for rank in report["ranks"].as_array().unwrap() {
        assert_eq!(rank["summary"]["by_op"]["broadcast"]["count"], 5);
        assert_eq!(rank["steps"].as_array().unwrap().len(), 12);
        assert_eq!(rank["summary"]["by_op"].get("send"), None, "the gathering is not recorded");
    }
}

/// Each rank records into a folder that only it sees, as on nodes with disks of their own.
#[test]
fn private_folders_give_the_same_figures() {
    let folder = tempdir().unwrap();
    if !under_mpirun::is_here() {
        return;
    }
    let mut command = under_mpirun::mpirun(4);
    command.env("COMMTRACE_MERGE_TIMEOUT_S", "120").env("BASE", folder.path());
    let script = r#"COMMTRACE_DIR="$BASE/node-$OMPI_COMM_WORLD_RANK" exec "$0" "$@""#;
    command.args(["sh", "-c", script]).arg(example("ddp_train")).args(["--backend", "mpi"]).args(SHORT);
    let output = under_mpirun::finish(command);
    assert!(output.status.success(), "{}", shown(&output));
    for rank in 1..4 {
        let names = listing(&folder.path().join(format!("node-{rank}")));
        assert!(names.len() == 1 && names[0].starts_with(&format!("rank-{rank:05}.")), "{names:?}");
    }
    let first = folder.path().join("node-0");
    let report = summary(&first);
    assert_eq!(ranks(&report), [0, 1, 2, 3]);
    assert_eq!(
        (&across(&report, "all_reduce")["matched"], &report["cross_rank"]["unmatched_events"]),
        (&15.into(), &0.into())
    );
    let text = std::fs::read_to_string(first.join("report.txt")).unwrap();
    assert!(text.contains("3 record files of other processes are not in"), "{text}");
}

/// Rank 0 is not recorded and still reports, since nobody else can.
#[test]
fn only_the_wanted_ranks_are_reported() {
    let Some(output) = job(&SHORT, |command| {
        command.env("COMMTRACE", "summary").env("COMMTRACE_RANKS", "1,3");
    }) else {
        return;
    };
    assert_eq!(stderr(&output).matches("2 ranks, 12 steps").count(), 1, "{}", shown(&output));
}

#[test]
fn off_says_nothing() {
    let Some(output) = job(&SHORT, |command| {
        command.env("COMMTRACE", "off");
    }) else {
        return;
    };
    assert_eq!(stderr(&output), "", "{}", shown(&output));
}

/// Enough steps to tell a habit from chance.
const LONGER: [&str; 6] = ["--steps", "40", "--batch", "16", "--hidden", "64"];

#[test]
fn a_slow_rank_is_found() {
    let folder = tempdir().unwrap();
    let arguments = [&LONGER[..], &["--slow-rank", "2:30"]].concat();
    if job(&arguments, |command| {
        command.env("COMMTRACE_DIR", folder.path());
    })
    .is_none()
    {
        return;
    }
    let report = summary(folder.path());
    assert_eq!(report["mitigation"]["strategy"], "rebalance_ranks_or_experts", "{}", report["cross_rank"]);
    assert_eq!(report["hotspots"]["priority"]["collective"], "all_reduce");
    let times: Vec<f64> = report["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rank| rank["summary"]["by_op"]["all_reduce"]["time"].as_f64().unwrap())
        .collect();
    let least = (0..4).min_by(|&a, &b| times[a].total_cmp(&times[b])).unwrap();
    assert_eq!(least, 2, "the others wait for rank 2: {times:?}");
    let causes = report["cross_rank"]["by_rank"].as_array().unwrap();
    let caused = |rank: &&Value| rank["caused_wait_ms"].as_f64().unwrap();
    let worst = causes.iter().max_by(|a, b| caused(a).total_cmp(&caused(b))).unwrap();
    assert_eq!(worst["rank"], 2, "{causes:?}");
    // Where the scheduler holds the other ranks up for as long now and then, it need not be called a straggler.
    assert!(named_stragglers(&report).iter().all(|named| *named == SLOW), "{}", report["cross_rank"]);
}

/// What `--slow-rank 2` is to be named as.
const SLOW: (u64, Option<&str>) = (2, Some("slow_rank_sleep"));

fn named_stragglers(report: &Value) -> Vec<(u64, Option<&str>)> {
    let stragglers = report["cross_rank"]["stragglers"].as_array().unwrap();
    stragglers.iter().map(|one| (one["rank"].as_u64().unwrap(), one["span"].as_str())).collect()
}

/// Late by many times what scheduling of more ranks than cores makes of steps this short.
#[test]
fn a_straggler_is_named_with_the_span_that_makes_it_late() {
    let folder = tempdir().unwrap();
    let arguments = [&LONGER[..], &["--slow-rank", "2:200"]].concat();
    if job(&arguments, |command| {
        command.env("COMMTRACE_DIR", folder.path());
    })
    .is_none()
    {
        return;
    }
    let report = summary(folder.path());
    assert_eq!(named_stragglers(&report), [SLOW], "{}", report["cross_rank"]);
}

#[test]
fn without_a_slow_rank_nobody_is_called_one() {
    let folder = tempdir().unwrap();
    if job(&LONGER, |command| {
        command.env("COMMTRACE_DIR", folder.path());
    })
    .is_none()
    {
        return;
    }
    let report = summary(folder.path());
    assert_eq!(
        report["cross_rank"]["stragglers"].as_array().map(Vec::len),
        Some(0),
        "{}",
        report["cross_rank"]
    );
}

/// The process of a rank is killed in the middle of the run; mpirun ends the others.
#[test]
fn records_of_a_job_whose_rank_was_killed_are_readable() {
    if !under_mpirun::is_here() {
        return;
    }
    let folder = tempdir().unwrap();
    let mut command = under_mpirun::mpirun(4);
    command.env("COMMTRACE_DIR", folder.path()).env("COMMTRACE_FLUSH_MS", "50");
    command.arg(example("ddp_train")).args(["--backend", "mpi", "--steps", "100000", "--hidden", "64"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = wait_for_records(folder.path(), 2);
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success(), "{}", shown(&output));

    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    assert_eq!(timeline.tracks.iter().map(|track| track.rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(timeline.tracks.iter().all(|track| track.comm.len() > 5 && !track.compute.is_empty()));
    let killed = timeline.inputs.iter().find(|input| input.rank == Some(2)).unwrap();
    assert_eq!(killed.ended, Some(false), "it had no time to end its record");

    // Those who end as mpirun asks them to leave a whole record: then only the killed rank is told.
    let report = analyze(&timeline, &AnalyzeOptions::default());
    let stopped: Vec<u32> = (report.cross_rank.iter().flat_map(|across| &across.desync))
        .filter(|finding| finding.kind == DesyncKind::Stopped)
        .flat_map(|finding| finding.ranks.iter().copied())
        .collect();
    let unfinished: Vec<u32> = (timeline.inputs.iter().filter(|input| input.ended == Some(false)))
        .filter_map(|input| input.rank)
        .collect();
    assert_eq!(stopped, unfinished, "{:?}", report.cross_rank.map(|across| across.desync));
}

/// Waits until every rank has flushed a few batches. Returns the process id of `rank`, which is in its file's name.
fn wait_for_records(folder: &Path, rank: u32) -> String {
    let deadline = Instant::now() + Duration::from_secs(240);
    loop {
        let records: Vec<String> =
            listing(folder).into_iter().filter(|name| name.ends_with(".arrows")).collect();
        let full = |name: &&String| folder.join(name).metadata().is_ok_and(|data| data.len() > 20_000);
        if records.iter().filter(full).count() == 4 {
            let prefix = format!("rank-{rank:05}.");
            let name = records.iter().find(|name| name.starts_with(&prefix)).unwrap();
            return name.trim_start_matches(&prefix).split('.').next().unwrap().to_owned();
        }
        assert!(Instant::now() < deadline, "no records of all ranks: {records:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
