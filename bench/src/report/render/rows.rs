//! Rows of the tables and sentences that text and HTML share.

use crate::report::compare::{Comparison, TwoSteps};
use crate::report::curve::{Point, Shape};
use crate::report::group::{Curve, Group};
use crate::report::{Beside, FailedCandidate, OverlapFinding, TestsTable, bytes, observed};
use commtrace_report::render::counted;
use commtrace_report::units;

/// Said beside reduce_scatter + all_gather, by chapter 47.
pub(super) const TWO_STEPS: &str = "The explicit reduce_scatter + all_gather shows the meaning of an all_reduce in two steps. It does \
                                    not prove that NCCL runs Ring inside its all_reduce.";
/// How nccl-tests differs in what it measures.
pub(super) const TESTS: &str = "nccl-tests prints the mean of many calls in a row; a record has the median over repeats of the slowest \
                                rank. Slower ranks and the gap between calls are in the second alone.";

pub(super) const POINT: [&str; 9] =
    ["algorithm", "observed", "payload", "median", "P95", "payload GB/s", "busbw GB/s", "fit", "region"];

/// A row per payload of `curve`, in the columns of [`POINT`].
pub(super) fn points(curve: &Curve, labels: bool) -> impl Iterator<Item = Vec<String>> + '_ {
    curve.points.iter().map(move |point| {
        vec![
            curve.label(labels),
            observed(&point.algorithm_observed),
            bytes(point.payload_bytes_per_rank),
            units::ms(point.median_max_rank_ms),
            units::ms(point.p95_max_rank_ms),
            units::gbs(point.effective_payload_gbps),
            units::known(point.busbw_gbps, units::gbs),
            fitted(point),
            point.region.map_or("-", |region| region.as_str()).to_owned(),
        ]
    })
}

fn fitted(point: &Point) -> String {
    point.fit_ms.map_or("-".to_owned(), units::ms)
}

/// The fit in one line: figures, ranges, error.
pub(super) fn fit_line(shape: &Shape) -> Option<String> {
    let fit = shape.fit.as_ref()?;
    let mut text = format!("t = {}", units::ms(fit.latency_ms));
    if let Some([least, greatest]) = fit.latency_range_ms {
        text += &format!(" ({} to {})", units::ms(least), units::ms(greatest));
    }
    match fit.bandwidth_gbps {
        Some(gbps) => text += &format!(" + bytes / {} GB/s", units::gbs(gbps)),
        None => text += " whatever the bytes",
    }
    if let Some([least, greatest]) = fit.bandwidth_range_gbps {
        text += &format!(" ({} to {})", units::gbs(least), units::gbs(greatest));
    }
    match fit.max_relative_error.zip(fit.max_relative_error_at_bytes) {
        Some((error, at)) => text += &format!("; at most {} off, at {}", units::percent(error), bytes(at)),
        None => text += "; through both payloads",
    }
    Some(text)
}

/// Which algorithm was fastest, or that it is a tie.
pub(super) fn verdict(comparison: &Comparison) -> String {
    match &comparison.fastest {
        Some(name) => format!(
            "{name}, by {} ({})",
            units::percent(comparison.faster_by_ratio),
            units::ms(comparison.faster_by_ms)
        ),
        None => format!(
            "tie: {} apart, spread {}",
            units::ms(comparison.faster_by_ms),
            units::ms(comparison.spread_ms)
        ),
    }
}

pub(super) const COMPARISON: [&str; 4] =
    ["collective", "payload", "requested [observed] median, P95", "fastest"];

pub(super) fn comparison(comparison: &Comparison) -> Vec<String> {
    let candidates: Vec<String> = comparison
        .candidates
        .iter()
        .map(|candidate| {
            let runs =
                if candidate.runs > 1 { format!(" of {} runs", candidate.runs) } else { String::new() };
            format!(
                "{} [{}] {}, {}{runs}",
                candidate.algorithm_requested,
                observed(&candidate.algorithm_observed),
                units::ms(candidate.median_max_rank_ms),
                units::ms(candidate.p95_max_rank_ms)
            )
        })
        .collect();
    vec![
        comparison.collective.clone(),
        bytes(comparison.payload_bytes_per_rank),
        candidates.join("; "),
        verdict(comparison),
    ]
}

pub(super) const TWO_STEP: [&str; 5] = ["algorithm", "payload", "all_reduce", "in two steps", "ratio"];

pub(super) fn two_steps(group: &Group, steps: &TwoSteps) -> Vec<String> {
    let algorithm = if group.has_labels() {
        format!("{} ({})", steps.algorithm_requested, steps.run_label)
    } else {
        steps.algorithm_requested.clone()
    };
    vec![
        algorithm,
        bytes(steps.payload_bytes_per_rank),
        units::ms(steps.all_reduce_ms),
        units::ms(steps.reduce_scatter_all_gather_ms),
        format!("{:.2}", steps.ratio),
    ]
}

pub(super) const SCHEDULE: [&str; 4] = ["schedule", "median", "P95", "mean by rank"];

pub(super) fn schedules(finding: &OverlapFinding) -> Vec<Vec<String>> {
    [("serial", &finding.serial), ("overlapped", &finding.overlapped)]
        .into_iter()
        .map(|(name, schedule)| {
            let ranks: Vec<String> = schedule.rank_mean_ms.iter().take(16).map(|ms| units::ms(*ms)).collect();
            let more = schedule.rank_mean_ms.len().saturating_sub(16);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            vec![
                name.to_owned(),
                units::ms(schedule.median_max_rank_ms),
                units::ms(schedule.p95_max_rank_ms),
                format!("{}{more}", ranks.join(", ")),
            ]
        })
        .collect()
}

/// What the experiment ran.
pub(super) fn overlap_title(finding: &OverlapFinding) -> String {
    let dim = finding
        .compute_dim
        .map(|dim| format!(" and a matrix product of dimension {dim}"))
        .unwrap_or_default();
    format!(
        "{}: {} of {}{dim}; {}, {} requested, {} observed",
        finding.run_label,
        finding.collective,
        bytes(finding.payload_bytes_per_rank),
        finding.setting.title(),
        finding.algorithm_requested,
        observed(&finding.algorithm_observed)
    )
}

/// Comparison and conclusion.
pub(super) fn overlap_conclusion(finding: &OverlapFinding) -> [String; 2] {
    let ratio = units::known(finding.comparison.overlap_gain_ratio, units::percent);
    let pays = match finding.conclusion {
        crate::report::Conclusion::OverlapPays => "Overlapping pays in this experiment",
        crate::report::Conclusion::NotShown => "No gain of overlapping is shown",
    };
    [
        format!(
            "saved {} of the median, an overlap gain ratio of {ratio}",
            units::ms(finding.comparison.saved_ms)
        ),
        format!("{pays}: {}.", finding.reason),
    ]
}

/// A failed candidate in one line.
pub(super) fn failed(failed: &FailedCandidate) -> String {
    let kind = serde_json::to_value(failed.kind).ok();
    let kind = kind.as_ref().and_then(serde_json::Value::as_str).unwrap_or("failed").to_owned();
    let rank = failed.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
    let at = failed.collective.as_ref().map(|collective| format!(", in {collective}")).unwrap_or_default();
    let payload =
        failed.payload_bytes_per_rank.map(|size| format!(" of {}", bytes(size))).unwrap_or_default();
    let logs =
        if failed.logs.is_empty() { "no log".to_owned() } else { format!("log {}", failed.logs.join(", ")) };
    format!(
        "{} {} ({}, {}): {kind}{rank}{at}{payload}: {}; {logs}; {}",
        failed.experiment,
        failed.algorithm_requested,
        failed.backend,
        failed.run_label,
        failed.message,
        failed.file
    )
}

/// What a table of nccl-tests is of.
pub(super) fn tests_title(table: &TestsTable) -> String {
    let ranks = table.world_size.map_or("unknown ranks".to_owned(), |ranks| format!("{ranks} ranks"));
    let version = table.nccl_version.as_ref().map(|version| format!(", NCCL {version}")).unwrap_or_default();
    format!(
        "{}: {}, {ranks}, {}, {}{version}",
        table.file,
        table.program.as_deref().or(table.collective.as_deref()).unwrap_or("unknown program"),
        table.dtype.as_deref().unwrap_or("unknown type"),
        if table.devices.is_empty() { "unknown devices".to_owned() } else { table.devices.join(", ") }
    )
}

pub(super) const BESIDE: [&str; 6] =
    ["algorithm", "label", "payload", "record, median", "nccl-tests, mean", "ratio"];

pub(super) fn beside(beside: &Beside) -> Vec<String> {
    vec![
        beside.algorithm_requested.clone(),
        beside.run_label.clone(),
        bytes(beside.payload_bytes_per_rank),
        units::ms(beside.median_max_rank_ms),
        units::ms(beside.nccl_tests_mean_ms),
        format!("{:.2}", beside.ratio),
    ]
}

pub(super) const TEST: [&str; 5] = ["size", "payload", "mean", "busbw GB/s", "place"];

pub(super) fn tests(table: &TestsTable) -> Vec<Vec<String>> {
    let row = |point: &crate::report::TestsPoint| {
        vec![
            bytes(point.size_bytes),
            bytes(point.payload_bytes_per_rank),
            units::ms(point.mean_ms),
            units::known(point.busbw_gbps, units::gbs),
            if point.in_place { "in-place" } else { "out-of-place" }.to_owned(),
        ]
    };
    table.points.iter().map(row).collect()
}

/// Sizes of a table that were left out.
pub(super) fn left_out(table: &TestsTable) -> String {
    format!(
        "{} left out: without a time, with wrong results, of no bytes, or of an operation or ranks that are unknown.",
        counted(u64::from(table.sizes_left_out), "size", "sizes")
    )
}
