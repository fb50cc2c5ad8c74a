//! A job of several processes that record into one folder.

mod common;

use common::{command, example, listing, shown, stderr, summary};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::tempdir;

const SIZE: usize = 3;

/// Starts the ranks of a job; `change` may set variables of one of them.
fn job(folder: &Path, change: impl Fn(usize, &mut Command)) -> Vec<Output> {
    // Free now; the chance that another program takes it before rank 0 does is small.
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let children: Vec<Child> = (0..SIZE)
        .map(|rank| {
            let mut command = command(example("tcp_all_reduce"));
            command
                .env("COMMTRACE_DIR", folder)
                .env("TORCHELASTIC_RUN_ID", "job-1")
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", SIZE.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            change(rank, &mut command);
            command.spawn().expect("the rank starts")
        })
        .collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

#[test]
fn rank_0_reports_on_all_ranks() {
    let folder = tempdir().unwrap();
    let outputs = job(folder.path(), |_, command| {
        // Generous: a rank that the system does not schedule is not a missing rank.
        command.env("COMMTRACE_MERGE_TIMEOUT_S", "120");
    });
    for output in &outputs {
        assert!(output.status.success(), "{}", shown(output));
    }
    let names = listing(folder.path());
    assert_eq!(names.iter().filter(|name| name.ends_with(".arrows")).count(), SIZE, "{names:?}");
    assert_eq!(names.len(), SIZE + 2, "one summary.json and one report.txt: {names:?}");
    assert!(stderr(&outputs[0]).contains("summary.json"), "{}", shown(&outputs[0]));
    for output in &outputs[1..] {
        assert_eq!(stderr(output), "");
    }

    let report = summary(folder.path());
    let ranks = report["ranks"].as_array().unwrap();
    assert_eq!(ranks.iter().map(|rank| rank["rank"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    let op = &report["cross_rank"]["ops"][0];
    assert_eq!(op["collective"], "all_reduce");
    assert_eq!((&op["matched"], &op["partial"]), (&8.into(), &false.into()));
    assert_eq!(report["hotspots"]["priority"]["rank_imbalance_observed"], true);
}

#[test]
fn a_rank_without_a_record_is_named() {
    let folder = tempdir().unwrap();
    let outputs = job(folder.path(), |rank, command| {
        command.env("COMMTRACE_MERGE_TIMEOUT_S", "1");
        if rank == 1 {
            command.env("COMMTRACE", "off");
        }
    });
    for output in &outputs {
        assert!(output.status.success(), "{}", shown(output));
    }
    let text = stderr(&outputs[0]);
    assert!(text.contains("COMMTRACE_MERGE_TIMEOUT_S") && text.contains(": 1"), "{text}");
    let report = std::fs::read_to_string(folder.path().join("report.txt")).unwrap();
    assert!(report.contains("Rank 1 has no record (1 of 3 ranks missing)"), "{report}");
    let ranks = summary(folder.path())["ranks"].as_array().unwrap().len();
    assert!(ranks == 2 || ranks == 1, "rank 2 may be later than the timeout");
}

#[test]
fn a_rank_variable_that_is_no_number_is_an_error() {
    let output =
        command(example("tcp_all_reduce")).env("RANK", "first").env("WORLD_SIZE", "2").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("RANK") && text.contains("first"), "{text}");
}
