//! A record as a table, with the columns of nccl-tests.

use crate::record::{Record, Row};
use std::fmt::Write;

/// The record's table and decision, as text with a final newline.
///
/// Columns as of nccl-tests: size in bytes as it takes it, count of elements that each rank puts in, time in
/// microseconds, bandwidths in 10^9 bytes per second. The time is the median over the repeats of the slowest rank's, P95
/// likewise.
pub fn table(record: &Record) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut text, record);
    text
}

fn write_table(text: &mut String, record: &Record) -> std::fmt::Result {
    let workload = &record.workload;
    writeln!(
        text,
        "# {}: {}, algorithm {} requested, {} ranks, {} warm-up and {} timed repeats, run label {}",
        record.experiment,
        workload.backend,
        workload.algorithm_requested,
        workload.world_size,
        workload.warmup,
        workload.repeats,
        workload.run_label,
    )?;
    for host in &record.hardware.hosts {
        let cpu = host.cpu.as_deref().unwrap_or("unknown processor");
        write!(text, "# {}: {} of {} ranks, {cpu}", host.name, host.ranks.len(), workload.world_size)?;
        for gpu in &host.gpus {
            write!(text, ", GPU {} {}", gpu.ordinal, gpu.name)?;
        }
        writeln!(text)?;
    }
    if !record.metrics.rows.is_empty() {
        writeln!(
            text,
            "#{:>11} {:>11} {:>9} {:>26} {:>11} {:>11} {:>8} {:>8} {:>7}",
            "size", "count", "type", "collective", "time", "P95", "algbw", "busbw", "#wrong"
        )?;
        writeln!(
            text,
            "#{:>11} {:>11} {:>9} {:>26} {:>11} {:>11} {:>8} {:>8}",
            "(B)", "(elements)", "", "", "(us)", "(us)", "(GB/s)", "(GB/s)"
        )?;
    }
    for row in &record.metrics.rows {
        let name = match row.schedule {
            Some(schedule) => format!("{} {schedule}", row.collective),
            None => row.collective.clone(),
        };
        let Row { size_bytes, payload_elements, wrong_elements, .. } = row;
        writeln!(
            text,
            " {size_bytes:>11} {payload_elements:>11} {:>9} {name:>26} {:>11.2} {:>11.2} {:>8} {:>8} {wrong_elements:>7}",
            workload.dtype,
            row.median_max_rank_ms * 1e3,
            row.p95_max_rank_ms * 1e3,
            bandwidth(row.algbw_gbps),
            bandwidth(row.busbw_gbps),
        )?;
    }
    if let Some(failure) = &record.failure {
        writeln!(text, "# failed: {}", failure.message)?;
    }
    writeln!(text, "# decision: {} ({})", record.decision.decision.as_str(), record.decision.reason)
}

fn bandwidth(gbps: Option<f64>) -> String {
    gbps.map_or_else(|| "-".to_owned(), |gbps| format!("{gbps:.3}"))
}
