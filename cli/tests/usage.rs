//! Command lines that are wrong, and `commtrace estimate`.

mod common;

use common::{commtrace, shown, stderr, stdout};

/// Status 2, nothing on stdout, and a message with `said`.
fn refused(arguments: &[&str], said: &str) {
    let output = commtrace(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", shown(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    assert!(stderr(&output).contains(said), "{arguments:?}: {}", shown(&output));
}

#[test]
fn bad_usage_is_status_2() {
    refused(&[], "Usage");
    refused(&["report"], "PATH");
    refused(&["report", "x", "--format", "pdf"], "pdf");
    refused(&["report", "x", "--steps", "5"], "FIRST..END");
    refused(&["report", "x", "--steps", "9..3"], "9..3");
    refused(&["report", "x", "--ranks", "0;1"], "comma-separated");
    refused(&["report", "x", "--overlap-threshold", "30"], "0 to 1");
    refused(&["report", "x", "--accept-ms", "nan"], "milliseconds");
    refused(&["report", "x", "--force"], "--output");
    refused(&["dance"], "dance");
}

#[test]
fn help_and_version_are_results() {
    for arguments in [&["--help"][..], &["--version"], &["report", "--help"], &["estimate", "--help"]] {
        let output = commtrace(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        assert!(!stdout(&output).is_empty());
    }
}

fn estimate<'a>(payload: &'a str, latency: &'a str, bandwidth: &'a str, count: &'a str) -> [&'a str; 9] {
    [
        "estimate",
        "--payload-bytes",
        payload,
        "--startup-latency",
        latency,
        "--bandwidth",
        bandwidth,
        "--sync-count",
        count,
    ]
}

/// The estimate in seconds that the command prints.
fn seconds(arguments: &[&str]) -> f64 {
    let output = commtrace(arguments);
    assert!(output.status.success(), "{}", shown(&output));
    let text = stdout(&output);
    let figure = text.lines().next().and_then(|line| line.split_whitespace().nth(1));
    figure.and_then(|figure| figure.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn estimates_are_the_chapters() {
    // "Communication Profiling with NCCL": 3 * (0.1 + 100 / 1000) and no collective at all.
    assert!((seconds(&estimate("100", "0.1", "1000", "3")) - 0.6).abs() < 1e-12);
    assert_eq!(seconds(&estimate("100", "0.1", "1000", "0")), 0.0);
    // 1e9 / 1e11 = 10 ms of transfer and 20 us of startup.
    let large = estimate("1e9", "2e-5", "1e11", "1");
    assert!((seconds(&large) - 0.010_02).abs() < 1e-12);
    let text = stdout(&commtrace(large));
    assert!(text.contains("10.020 ms") && text.contains("transfer (99.8 %)"), "{text}");
    let text = stdout(&commtrace(estimate("8", "2e-5", "1e11", "1000")));
    assert!(text.contains("startup (100.0 %)"), "{text}");
    assert!((seconds(&estimate("8", "2e-5", "1e11", "1000")) - 0.020_000_08).abs() < 1e-9);
}

#[test]
fn estimates_of_nonsense_are_refused() {
    refused(&estimate("100", "0.1", "0", "1"), "bandwidth");
    refused(&estimate("100", "0.1", "-5", "1"), "bandwidth");
    refused(&estimate("100", "0.1", "inf", "1"), "bandwidth");
    refused(&estimate("100", "-1", "1000", "1"), "latency");
    refused(&estimate("100", "nan", "1000", "1"), "latency");
    refused(&estimate("-100", "0.1", "1000", "1"), "payload-bytes");
    refused(&estimate("1.5", "0.1", "1000", "1"), "whole number");
    refused(&estimate("lots", "0.1", "1000", "1"), "whole number");
    refused(&estimate("100", "0.1", "1000", "-1"), "sync-count");
    refused(&estimate("1e15", "0.1", "1e-300", "1"), "finite");
    refused(&["estimate", "--payload-bytes", "1"], "--bandwidth");
}
