//! What the overlap experiment shows, read as chapter 48 does.

use super::group::Setting;
use crate::record::{Comparison, Record, Row, Schedule};
use commtrace_report::units;
use serde::{Deserialize, Serialize};

/// One record of the overlap experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverlapFinding {
    /// The record's file.
    pub file: String,
    /// What it ran with and on.
    pub setting: Setting,
    /// The algorithm that was asked for.
    pub algorithm_requested: String,
    /// What ran, as far as there is evidence.
    pub algorithm_observed: crate::record::AlgorithmObserved,
    /// The run label.
    pub run_label: String,
    /// Dimension of the square matrices.
    pub compute_dim: Option<u32>,
    /// The collective.
    pub collective: String,
    /// Bytes that each rank puts in.
    pub payload_bytes_per_rank: u64,
    /// First the one, then the other.
    pub serial: ScheduleFinding,
    /// Both at the same time.
    pub overlapped: ScheduleFinding,
    /// What overlapping gained.
    pub comparison: Comparison,
    /// Whether it pays in this experiment.
    pub conclusion: Conclusion,
    /// Why.
    pub reason: String,
    /// What it does not say.
    pub caveat: String,
}

/// One schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScheduleFinding {
    /// Median over the repeats of the slowest rank's time.
    pub median_max_rank_ms: f64,
    /// 95th percentile of the same.
    pub p95_max_rank_ms: f64,
    /// Mean of each rank's own time, by rank.
    pub rank_mean_ms: Vec<f64>,
}

/// Chapter 48: a gain only if median and P95 improve and no rank shows a new tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// All three hold.
    OverlapPays,
    /// One of them does not.
    NotShown,
}

const CAVEAT: &str = "A gain of scheduling two synthetic pieces of work. It does not stand for the buckets, dependencies and \
                      schedule of a real model, and is not the share of communication exposed in a real trace.";

/// What `record` shows, or why it cannot be read.
pub(super) fn finding(file: &str, record: &Record) -> Result<OverlapFinding, String> {
    let serial = row(record, Schedule::Serial)?;
    let overlapped = row(record, Schedule::Overlapped)?;
    if (&serial.collective, serial.payload_bytes_per_rank)
        != (&overlapped.collective, overlapped.payload_bytes_per_rank)
    {
        return Err("its two schedules are not of the same collective and payload".to_owned());
    }
    let comparison = record.metrics.comparison.clone().ok_or("it has times and no comparison")?;
    let saved = serial.median_max_rank_ms - overlapped.median_max_rank_ms;
    let saved_p95 = serial.p95_max_rank_ms - overlapped.p95_max_rank_ms;
    let ratio = comparison.overlap_gain_ratio;
    let told_ratio = ratio.is_none_or(|ratio| agrees(ratio, saved / serial.median_max_rank_ms, 1.0));
    if !(agrees(comparison.saved_ms, saved, serial.median_max_rank_ms)
        && agrees(comparison.saved_p95_ms, saved_p95, serial.p95_max_rank_ms)
        && told_ratio)
    {
        return Err("its comparison is not that of its two rows".to_owned());
    }
    let (conclusion, reason) = conclude(&comparison);
    Ok(OverlapFinding {
        file: file.to_owned(),
        setting: Setting::of(record),
        algorithm_requested: record.workload.algorithm_requested.clone(),
        algorithm_observed: record.workload.algorithm_observed.clone(),
        run_label: record.workload.run_label.clone(),
        compute_dim: record.workload.compute_dim,
        collective: serial.collective.clone(),
        payload_bytes_per_rank: serial.payload_bytes_per_rank,
        serial: schedule(serial),
        overlapped: schedule(overlapped),
        comparison,
        conclusion,
        reason,
        caveat: CAVEAT.to_owned(),
    })
}

fn row(record: &Record, schedule: Schedule) -> Result<&Row, String> {
    let mut rows = record.metrics.rows.iter().filter(|row| row.schedule == Some(schedule));
    match (rows.next(), rows.next()) {
        (Some(row), None) => Ok(row),
        _ => Err(format!("it does not have exactly one row of the schedule {schedule}")),
    }
}

/// Up to what decimals in a file lose, next to `scale`.
fn agrees(told: f64, computed: f64, scale: f64) -> bool {
    (told - computed).abs() <= 1e-6 * scale
}

fn schedule(row: &Row) -> ScheduleFinding {
    ScheduleFinding {
        median_max_rank_ms: row.median_max_rank_ms,
        p95_max_rank_ms: row.p95_max_rank_ms,
        rank_mean_ms: row.rank_mean_ms.clone(),
    }
}

fn conclude(comparison: &Comparison) -> (Conclusion, String) {
    let mut against = Vec::new();
    if comparison.saved_ms <= 0.0 {
        against.push(format!("the median does not improve ({} saved)", units::ms(comparison.saved_ms)));
    }
    if comparison.saved_p95_ms <= 0.0 {
        against.push(format!("P95 does not improve ({} saved)", units::ms(comparison.saved_p95_ms)));
    }
    if !comparison.ranks_with_new_tail.is_empty() {
        let ranks: Vec<String> = comparison.ranks_with_new_tail.iter().map(u32::to_string).collect();
        against.push(format!("ranks with a new tail: {}", ranks.join(", ")));
    }
    if against.is_empty() {
        let reason = format!(
            "median and P95 improve ({} and {} saved), and no rank shows a new tail",
            units::ms(comparison.saved_ms),
            units::ms(comparison.saved_p95_ms)
        );
        (Conclusion::OverlapPays, reason)
    } else {
        let reason = format!("{}: look at scheduling and load before overlapping", against.join("; "));
        (Conclusion::NotShown, reason)
    }
}
