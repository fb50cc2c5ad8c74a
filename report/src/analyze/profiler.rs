//! The chapter's profiler: a handful of intervals by hand, in milliseconds.

use super::Summary;
use super::summary::overlap_ratio;
use serde::Serialize;
use std::cmp::Ordering;

/// Why an interval is not accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name}: start {start_ms} ms and end {end_ms} ms must be finite numbers of at most 9.2e12 in size")]
pub struct IntervalError {
    /// Name or op of the interval.
    pub name: String,
    /// Its start.
    pub start_ms: f64,
    /// Its end.
    pub end_ms: f64,
}

/// Compute and communication of one rank, added by hand; all times are milliseconds.
///
/// Gives the results of `NCCLProfilerSim` in "Communication Profiling with NCCL", edge cases included.
/// For recorded runs, use [`analyze`](super::analyze).
///
/// ```
/// use commtrace_report::analyze::{CommProfiler, find_priority_hotspot};
///
/// let mut profiler = CommProfiler::new();
/// profiler.add_compute("forward", 0.0, 2.0)?;
/// profiler.add_comm("all_reduce", 1.0, 2.5, 128 * 1024)?;
/// profiler.add_comm("broadcast", 2.6, 3.0, 64 * 1024)?;
/// let summary = profiler.summarize();
/// assert_eq!(summary.overlap_time, Some(1.0));
/// assert_eq!(find_priority_hotspot(&summary).map(|hotspot| hotspot.op), Some("all_reduce".to_string()));
/// # Ok::<(), commtrace_report::analyze::IntervalError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct CommProfiler {
    events: Vec<Event>,
    /// `(start, end)` in ascending order.
    compute: Vec<(f64, f64)>,
    /// The largest end among `compute[..=i]`: where a search for what reaches a time can begin.
    reach: Vec<f64>,
}

#[derive(Debug, Clone)]
struct Event {
    op: String,
    start: f64,
    end: f64,
    bytes: u64,
    overlap: bool,
}

impl Event {
    fn duration(&self) -> f64 {
        (self.end - self.start).max(0.0)
    }
}

/// One communication event of [`CommProfiler::timeline`]; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineRecord {
    /// The op.
    pub op: String,
    /// Start.
    pub start: f64,
    /// End.
    pub end: f64,
    /// `max(end - start, 0)`.
    pub duration: f64,
    /// Payload.
    pub bytes: u64,
    /// Whether compute that had been added before this event meets it.
    pub overlap: bool,
}

impl CommProfiler {
    /// A profiler without events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a compute interval. `name` only serves error messages.
    ///
    /// # Errors
    ///
    /// A time that is NaN, infinite, or beyond the range of `i64` nanoseconds.
    pub fn add_compute(&mut self, name: &str, start_ms: f64, end_ms: f64) -> Result<(), IntervalError> {
        check(name, start_ms, end_ms)?;
        let at = self.compute.partition_point(|&(start, end)| (start, end) <= (start_ms, end_ms));
        self.compute.insert(at, (start_ms, end_ms));
        self.reach.truncate(at);
        for &(_, end) in &self.compute[at..] {
            let before = self.reach.last().copied().unwrap_or(f64::NEG_INFINITY);
            self.reach.push(before.max(end));
        }
        Ok(())
    }

    /// Adds a communication event with its payload. Its overlap flag looks at the compute added so
    /// far; the times in [`summarize`](Self::summarize) look at all of it.
    ///
    /// # Errors
    ///
    /// A time that is NaN, infinite, or beyond the range of `i64` nanoseconds.
    pub fn add_comm(
        &mut self,
        op: &str,
        start_ms: f64,
        end_ms: f64,
        bytes: u64,
    ) -> Result<(), IntervalError> {
        check(op, start_ms, end_ms)?;
        let overlap = self.has_overlap(start_ms, end_ms);
        self.events.push(Event { op: op.to_string(), start: start_ms, end: end_ms, bytes, overlap });
        Ok(())
    }

    /// Whether any compute starts before `end` and ends after `start`. True also for an empty interval
    /// strictly inside compute.
    fn has_overlap(&self, start: f64, end: f64) -> bool {
        let begun = self.compute.partition_point(|compute| compute.0 < end);
        begun.checked_sub(1).is_some_and(|last| self.reach[last] > start)
    }

    /// Milliseconds of `[start_ms, end_ms)` that compute covers, counted once where compute overlaps.
    pub fn overlap_duration(&self, start_ms: f64, end_ms: f64) -> f64 {
        let first = self.reach.partition_point(|&reach| reach <= start_ms);
        let mut total = 0.0;
        let mut current: Option<(f64, f64)> = None;
        for &(start, end) in &self.compute[first..] {
            if start >= end_ms {
                break;
            }
            let (start, end) = (start.max(start_ms), end.min(end_ms));
            if start >= end {
                continue;
            }
            current = match current {
                Some((merged_start, merged_end)) if start <= merged_end => {
                    Some((merged_start, merged_end.max(end)))
                }
                Some((merged_start, merged_end)) => {
                    total += merged_end - merged_start;
                    Some((start, end))
                }
                None => Some((start, end)),
            };
        }
        current.map_or(total, |(start, end)| total + (end - start))
    }

    /// Sums over all events.
    pub fn summarize(&self) -> Summary {
        let mut summary = Summary { num_comm_events: self.events.len() as u64, ..Summary::default() };
        let mut overlap_time = 0.0;
        for event in &self.events {
            let duration = event.duration();
            let overlap = self.overlap_duration(event.start, event.end);
            summary.total_comm_time += duration;
            overlap_time += overlap;
            let op = match summary.by_op.get_mut(&event.op) {
                Some(op) => op,
                None => summary.by_op.entry(event.op.clone()).or_default(),
            };
            op.count += 1;
            op.time += duration;
            op.bytes = Some(op.bytes.unwrap_or(0).saturating_add(event.bytes));
            op.exposed_time = op.exposed_time.map(|exposed| exposed + (duration - overlap));
        }
        summary.overlap_ratio = Some(overlap_ratio(overlap_time, summary.total_comm_time));
        summary.exposed_comm_time = Some((summary.total_comm_time - overlap_time).max(0.0));
        summary.overlap_time = Some(overlap_time);
        summary
    }

    /// All communication events, sorted by start, end and op.
    pub fn timeline(&self) -> Vec<TimelineRecord> {
        let mut records: Vec<_> = self
            .events
            .iter()
            .map(|event| TimelineRecord {
                op: event.op.clone(),
                start: event.start,
                end: event.end,
                duration: event.duration(),
                bytes: event.bytes,
                overlap: event.overlap,
            })
            .collect();
        records.sort_by(|a, b| {
            (a.start, a.end)
                .partial_cmp(&(b.start, b.end))
                .unwrap_or(Ordering::Equal)
                .then_with(|| a.op.cmp(&b.op))
        });
        records
    }
}

fn check(name: &str, start_ms: f64, end_ms: f64) -> Result<(), IntervalError> {
    // The range of i64 nanoseconds; NaN is in no range.
    let range = -9.2e12..=9.2e12;
    if range.contains(&start_ms) && range.contains(&end_ms) {
        return Ok(());
    }
    Err(IntervalError { name: name.to_string(), start_ms, end_ms })
}
