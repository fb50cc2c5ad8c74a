//! The training example, as a newcomer runs it.

mod common;

use common::{SHORT, all_reduce_overlap, ddp_train, listing, recorded, shown, stderr, stdout, summary};
use serde_json::Value;
use std::fs;
use tempfile::tempdir;

/// Backward long enough, also in time slices of the scheduler, that communication can go on beside it.
fn long_backward<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let batch = if cfg!(debug_assertions) { "64" } else { "512" };
    [&["--steps", "30", "--batch", batch, "--hidden", "256"][..], more].concat()
}

fn strategy(report: &Value) -> &str {
    report["mitigation"]["strategy"].as_str().expect("a strategy")
}

#[test]
fn a_folder_holds_records_and_reports_of_all_ranks() {
    let folder = tempdir().unwrap();
    let report = recorded(folder.path(), &[&SHORT[..], &["--ranks", "3"]].concat());
    let names = listing(folder.path());
    for rank in 0..3 {
        let prefix = format!("rank-{rank:05}.");
        let records = names.iter().filter(|name| name.starts_with(&prefix) && name.ends_with(".arrows"));
        assert_eq!(records.count(), 1, "{names:?}");
    }
    assert_eq!(names.len(), 5, "{names:?}");
    assert!(names.contains(&"summary.json".to_owned()) && names.contains(&"report.txt".to_owned()));
    let text = fs::read_to_string(folder.path().join("report.txt")).unwrap();
    assert!(text.contains("3 ranks, 12 steps"), "{text}");

    let ranks = report["ranks"].as_array().unwrap();
    assert_eq!(ranks.iter().map(|rank| rank["rank"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    for rank in ranks {
        let ops = &rank["summary"]["by_op"];
        assert_eq!(ops["broadcast"]["count"], 5, "one per layer");
        assert_eq!(ops["all_gather"]["count"], 1);
        // One bucket holds all gradients; metrics before, after and at the last step.
        assert_eq!(ops["all_reduce"]["count"], 12 + 3);
        assert_eq!(rank["steps"].as_array().unwrap().len(), 12);
        assert!(rank["wall"]["compute_ms"].as_f64().unwrap() > 0.0);
    }
    let reduced =
        report["cross_rank"]["ops"].as_array().unwrap().iter().find(|op| op["collective"] == "all_reduce");
    assert_eq!(reduced.unwrap()["matched"], 12 + 3);
    assert_eq!(report["cross_rank"]["unmatched_events"], 0);
}

#[test]
fn training_is_said_and_is_the_same_traced_or_not() {
    let plain = ddp_train(None, &SHORT);
    let folder = tempdir().unwrap();
    let traced = ddp_train(Some(folder.path()), &SHORT);
    assert!(plain.status.success() && traced.status.success(), "{}", shown(&traced));
    assert_eq!(stdout(&plain), stdout(&traced));
    let text = stdout(&plain);
    for part in ["2 ranks", "step   12  loss ", "  accuracy ", "bit-identical on all ranks"] {
        assert!(text.contains(part), "{text}");
    }
    // The same arithmetic whenever gradients are averaged.
    let overlapped = stdout(&ddp_train(None, &[&SHORT[..], &["--overlap", "on"]].concat()));
    assert_eq!(overlapped.lines().skip(1).collect::<Vec<_>>(), text.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn a_second_run_into_a_folder_replaces_nothing() {
    let folder = tempdir().unwrap();
    recorded(folder.path(), &SHORT);
    let first = fs::read(folder.path().join("summary.json")).unwrap();
    let output = ddp_train(Some(folder.path()), &SHORT);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(fs::read(folder.path().join("summary.json")).unwrap(), first);
    let names = listing(folder.path());
    assert_eq!(names.iter().filter(|name| name.starts_with("summary.")).count(), 2, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.ends_with(".arrows")).count(), 4, "{names:?}");
}

#[test]
fn overlap_on_hides_what_overlap_off_exposes() {
    let (off, on) = (tempdir().unwrap(), tempdir().unwrap());
    let off = recorded(off.path(), &long_backward(&["--overlap", "off"]));
    let on = recorded(on.path(), &long_backward(&["--overlap", "on", "--bucket-kib", "128"]));
    assert_eq!(all_reduce_overlap(&off), 0.0);
    for rank in off["ranks"].as_array().unwrap() {
        assert_eq!(rank["wall"]["exposed_ms"], rank["wall"]["comm_ms"]);
    }
    let hidden: Vec<f64> = on["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rank| rank["summary"]["overlap_ratio"].as_f64().unwrap())
        .collect();
    // How much is hidden depends on how soon the scheduler runs a communication thread beside the
    // busy ranks; that much is, is plain.
    assert!(hidden.iter().all(|ratio| *ratio > 0.0) && hidden.iter().any(|ratio| *ratio > 0.1), "{hidden:?}");
    assert_eq!(strategy(&off), "increase_overlap_or_delay_sync");
}

#[test]
fn a_rank_that_computes_longer_is_found() {
    for overlap in ["off", "on"] {
        let folder = tempdir().unwrap();
        // Many times what scheduling makes of steps this short.
        let report =
            recorded(folder.path(), &[&SHORT[..], &["--slow-rank", "1:40", "--overlap", overlap]].concat());
        assert_eq!(strategy(&report), "rebalance_ranks_or_experts", "overlap {overlap}");
        let priority = &report["hotspots"]["priority"];
        assert_eq!(priority["collective"], "all_reduce");
        assert_eq!(priority["rank_imbalance_observed"], true);
        assert!(priority["rank_imbalance_ratio"].as_f64().unwrap() > 0.2);
        let waits: Vec<f64> = report["ranks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rank| rank["summary"]["by_op"]["all_reduce"]["time"].as_f64().unwrap())
            .collect();
        assert!(waits[0] > waits[1], "rank 0 waits for rank 1: {waits:?}");
    }
}

#[test]
fn ranks_that_are_late_by_chance_are_not_to_be_rebalanced() {
    for ranks in ["2", "3", "4"] {
        let folder = tempdir().unwrap();
        let report =
            recorded(folder.path(), &["--ranks", ranks, "--steps", "40", "--batch", "16", "--hidden", "256"]);
        let priority = &report["hotspots"]["priority"];
        assert_eq!(priority["rank_imbalance_observed"], true);
        assert_ne!(
            strategy(&report),
            "rebalance_ranks_or_experts",
            "{ranks} ranks: {}",
            report["cross_rank"]
        );
    }
}

/// Steps in which scheduling makes a rank late by less than the planted time, also on a busy machine.
const STEADY: [&str; 6] = ["--steps", "60", "--batch", "16", "--hidden", "64"];

#[test]
fn a_slow_rank_is_a_straggler_with_its_span_in_the_record_and_in_the_summary() {
    let arguments = [&STEADY[..], &["--ranks", "3", "--slow-rank", "1:80"]].concat();
    let folder = tempdir().unwrap();
    let report = recorded(folder.path(), &arguments);
    let stragglers = report["cross_rank"]["stragglers"].as_array().expect("a list");
    assert_eq!(stragglers.len(), 1, "{}", report["cross_rank"]["by_rank"]);
    let straggler = &stragglers[0];
    assert_eq!((&straggler["rank"], &straggler["span"]), (&1.into(), &"slow_rank_sleep".into()));
    assert_eq!(straggler["pattern"], "throughout");
    // Two ranks wait for it in 60 steps.
    let caused = straggler["caused_wait_ms"].as_f64().expect("a number");
    assert!(caused > 2.0 * 60.0 * 80.0 * 0.7, "{straggler}");
    assert!(straggler["suffered_wait_ms"].as_f64().is_some_and(|own| own < caused / 5.0), "{straggler}");
    let reason = report["followup"]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("Rank 1 spends ") && reason.contains(" longer in `slow_rank_sleep` than"),
        "{reason}"
    );

    let text = stderr(&ddp_train(None, &arguments));
    for part in ["Stragglers (", "slow_rank_sleep", "throughout", "Rank 1 spends"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn without_a_slow_rank_nobody_is_a_straggler() {
    for ranks in ["2", "3", "4"] {
        for overlap in ["off", "on"] {
            let folder = tempdir().unwrap();
            let arguments = [&STEADY[..], &["--ranks", ranks, "--overlap", overlap]].concat();
            let report = recorded(folder.path(), &arguments);
            let across = &report["cross_rank"];
            assert_eq!(across["stragglers"].as_array().map(Vec::len), Some(0), "{ranks} ranks: {across}");
            assert_eq!(across["by_rank"].as_array().map(|ranks| ranks.len().to_string()), Some(ranks.into()));
        }
    }
}

#[test]
fn with_no_variable_the_summary_ends_the_run_and_no_file_is_made() {
    let folder = tempdir().unwrap();
    let mut command = common::command(common::example("ddp_train"));
    let output = command.args(SHORT).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(listing(folder.path()), [""; 0]);
    let text = stderr(&output);
    for part in ["2 ranks, 12 steps", "all_reduce", "increase_overlap_or_delay_sync"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn off_says_nothing() {
    let output =
        common::command(common::example("ddp_train")).args(SHORT).env("COMMTRACE", "off").output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn only_the_wanted_steps_and_ranks_are_recorded() {
    let folder = tempdir().unwrap();
    let mut command = common::command(common::example("ddp_train"));
    command.env("COMMTRACE_DIR", folder.path()).env("COMMTRACE_STEPS", "4..7").env("COMMTRACE_RANKS", "1");
    let output = command.args(SHORT).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let report = summary(folder.path());
    let ranks = report["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 1);
    assert_eq!(ranks[0]["rank"], 1);
    let steps = ranks[0]["steps"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| step["step"].as_i64().unwrap()).collect::<Vec<_>>(), [4, 5, 6]);
}

#[test]
fn a_variable_that_cannot_be_used_is_named() {
    for (name, value) in [("COMMTRACE", "on"), ("COMMTRACE_STEPS", "5"), ("COMMTRACE_REPORT", "pdf")] {
        let output =
            common::command(common::example("ddp_train")).args(SHORT).env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        let text = stderr(&output);
        assert!(text.contains(name) && text.contains(value) && text.contains("expected"), "{text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let output = ddp_train(Some(&file.join("out")), &SHORT);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("COMMTRACE_DIR"), "{}", shown(&output));
}

#[test]
fn training_that_fails_is_status_1_with_its_report() {
    let folder = tempdir().unwrap();
    let output = ddp_train(Some(folder.path()), &[&SHORT[..], &["--learning-rate", "1000"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("the loss did not fall"), "{}", shown(&output));
    assert!(summary(folder.path())["ranks"].as_array().is_some_and(|ranks| ranks.len() == 2));
}

#[cfg(not(feature = "mpi"))]
#[test]
fn a_backend_that_was_not_built_in_says_how_to_build_it() {
    let output = ddp_train(None, &["--backend", "mpi"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("--features mpi"), "{}", shown(&output));
}

#[test]
fn wrong_arguments_are_status_2() {
    for arguments in [
        &["--ranks", "0"][..],
        &["--steps", "-1"],
        &["--overlap", "maybe"],
        &["--slow-rank", "1"],
        &["--slow-rank", "2:20"],
        &["--slow-rank", "1:-20"],
        &["--bucket-kib", "big"],
        &["--backend", "carrier-pigeon"],
        &["--wrong"],
    ] {
        let output = ddp_train(None, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", shown(&output));
        assert!(stderr(&output).contains(arguments[0]), "{arguments:?}: {}", shown(&output));
    }
}
