//! Whether a record's figures can be true.

use crate::record::{Record, Row};

/// Longer than any run, in milliseconds: beyond it a time is an error, and sums of such times would be infinite.
const MAX_MS: f64 = 1e12;
/// Shorter than any clock's tick, in milliseconds.
const MIN_MS: f64 = 1e-9;
/// More bytes than any machine has.
const MAX_BYTES: u64 = 1 << 56;

/// Why `record` cannot be used.
pub(super) fn problem(record: &Record) -> Option<String> {
    if record.schema_version == 0 {
        return Some("its schema version is 0, which no commtrace writes".to_owned());
    }
    if record.failure.is_some() {
        return None;
    }
    if record.workload.world_size == 0 {
        return Some("its world size is 0".to_owned());
    }
    if record.metrics.rows.is_empty() {
        return Some("it has neither times nor a failure".to_owned());
    }
    record.metrics.rows.iter().find_map(|row| {
        let reason = row_problem(row)?;
        Some(format!("{} of {} bytes: {reason}", row.collective, row.payload_bytes_per_rank))
    })
}

fn row_problem(row: &Row) -> Option<String> {
    if row.collective.is_empty() {
        return Some("the collective has no name".to_owned());
    }
    if !(1..=MAX_BYTES).contains(&row.payload_bytes_per_rank) {
        return Some("no collective has such a payload".to_owned());
    }
    if row.wrong_elements > 0 {
        return Some(format!(
            "{} elements were wrong, and times of wrong results count for nothing",
            row.wrong_elements
        ));
    }
    let times = [("median_max_rank_ms", row.median_max_rank_ms), ("p95_max_rank_ms", row.p95_max_rank_ms)];
    for (name, ms) in times {
        if !(MIN_MS..=MAX_MS).contains(&ms) {
            return Some(format!("{name} is {}, which is no time that was measured", figure(ms)));
        }
    }
    if row.p95_max_rank_ms < row.median_max_rank_ms {
        return Some("P95 is less than the median".to_owned());
    }
    let ranks = row.rank_mean_ms.iter().chain(&row.rank_p95_ms).chain(&row.max_rank_ms);
    if let Some(ms) = ranks.copied().find(|ms| !(0.0..=MAX_MS).contains(ms)) {
        return Some(format!("a rank's time is {} ms", figure(ms)));
    }
    let gbps = [row.effective_payload_gbps, row.algbw_gbps, row.busbw_gbps];
    if let Some(gbps) = gbps.into_iter().flatten().find(|gbps| !(0.0..=MAX_MS).contains(gbps)) {
        return Some(format!("a bandwidth is {}", figure(gbps)));
    }
    None
}

/// `value` for a message, in which no reader has to take `inf` or `NaN` for a figure.
fn figure(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { "not finite".to_owned() }
}
