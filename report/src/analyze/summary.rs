//! Sums over communication events, by the chapter's names.

use super::ms_from_ns;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Sums over one rank's communication events; times in milliseconds.
///
/// What depends on where events lie in time is `None` (`null` in JSON, never 0) if an event has only a
/// duration. Names and formulas are those of `NCCLProfilerSim.summarize` in "Communication Profiling with NCCL".
/// Events that run side by side are each counted in full; [`Wall`](super::Wall) counts them once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Number of events.
    pub num_comm_events: u64,
    /// Sum of durations.
    pub total_comm_time: f64,
    /// Sum of the parts with compute beside them.
    pub overlap_time: Option<f64>,
    /// `min(overlap_time, total_comm_time) / max(total_comm_time, 1e-8)`.
    pub overlap_ratio: Option<f64>,
    /// `max(total_comm_time - overlap_time, 0)`.
    pub exposed_comm_time: Option<f64>,
    /// The same per op, in first-seen order.
    pub by_op: IndexMap<String, OpSummary>,
}

/// Sums over the events of one op; times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpSummary {
    /// Number of events.
    pub count: u64,
    /// Sum of durations.
    pub time: f64,
    /// Sum of the known payloads; `None` if no event says.
    pub bytes: Option<u64>,
    /// Sum of the parts without compute beside them; `None` if an event has only a duration.
    pub exposed_time: Option<f64>,
}

/// Of no events: everything is known, and zero.
impl Default for Summary {
    fn default() -> Self {
        SummaryBuilder::default().finish()
    }
}

/// Of no events: everything is known, and zero.
impl Default for OpSummary {
    fn default() -> Self {
        Self { count: 0, time: 0.0, bytes: None, exposed_time: Some(0.0) }
    }
}

/// The ratio of two times as the chapter defines it.
pub(super) fn overlap_ratio(overlap: f64, total: f64) -> f64 {
    overlap.min(total) / total.max(1e-8)
}

/// Adds events up in integer nanoseconds and converts once at the end.
#[derive(Debug, Clone, Default)]
pub struct SummaryBuilder {
    by_op: IndexMap<String, Sums>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: u64,
    time_ns: u128,
    overlap_ns: u128,
    /// Events of which only the duration is known.
    unplaced: u64,
    bytes: Option<u64>,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.time_ns += other.time_ns;
        self.overlap_ns += other.overlap_ns;
        self.unplaced += other.unplaced;
        self.bytes = match (self.bytes, other.bytes) {
            (Some(left), Some(right)) => Some(left.saturating_add(right)),
            (left, right) => left.or(right),
        };
    }

    fn exposed_ms(&self) -> Option<f64> {
        (self.unplaced == 0).then(|| ms_from_ns(self.time_ns - self.overlap_ns))
    }
}

impl SummaryBuilder {
    /// Adds one event of `op`: its duration, the part of it with compute beside it (at most the
    /// duration), and its payload if known.
    pub fn add(&mut self, op: &str, duration_ns: u64, overlap_ns: u64, bytes: Option<u64>) {
        let slot = self.slot(op);
        self.add_at(slot, duration_ns, overlap_ns, bytes);
    }

    /// Adds one event of `op` of which it is not known when it was, so that nothing is known of what
    /// ran beside it.
    pub fn add_unplaced(&mut self, op: &str, duration_ns: u64, bytes: Option<u64>) {
        let slot = self.slot(op);
        let sums = Sums { count: 1, time_ns: duration_ns.into(), overlap_ns: 0, unplaced: 1, bytes };
        self.add_sums(slot, sums);
    }

    /// Adds all events of `other` after the own ones.
    pub fn merge(&mut self, other: &Self) {
        for (op, sums) in &other.by_op {
            let slot = self.slot(op);
            self.by_op[slot].add(*sums);
        }
    }

    /// The figures so far.
    pub fn finish(&self) -> Summary {
        let mut all = Sums::default();
        let by_op = self
            .by_op
            .iter()
            .map(|(op, sums)| {
                all.add(*sums);
                let summary = OpSummary {
                    count: sums.count,
                    time: ms_from_ns(sums.time_ns),
                    bytes: sums.bytes,
                    exposed_time: sums.exposed_ms(),
                };
                (op.clone(), summary)
            })
            .collect();
        let total_comm_time = ms_from_ns(all.time_ns);
        let overlap_time = (all.unplaced == 0).then(|| ms_from_ns(all.overlap_ns));
        Summary {
            num_comm_events: all.count,
            total_comm_time,
            overlap_time,
            overlap_ratio: overlap_time.map(|overlap| overlap_ratio(overlap, total_comm_time)),
            exposed_comm_time: all.exposed_ms(),
            by_op,
        }
    }

    /// The position of `op`, for repeated [`add_at`](Self::add_at).
    pub(crate) fn slot(&mut self, op: &str) -> usize {
        match self.by_op.get_index_of(op) {
            Some(slot) => slot,
            None => self.by_op.insert_full(op.to_string(), Sums::default()).0,
        }
    }

    pub(crate) fn add_at(&mut self, slot: usize, duration_ns: u64, overlap_ns: u64, bytes: Option<u64>) {
        let overlap_ns = overlap_ns.min(duration_ns);
        let (time_ns, overlap_ns) = (duration_ns.into(), overlap_ns.into());
        self.add_sums(slot, Sums { count: 1, time_ns, overlap_ns, unplaced: 0, bytes });
    }

    fn add_sums(&mut self, slot: usize, sums: Sums) {
        if let Some((_, slot)) = self.by_op.get_index_mut(slot) {
            slot.add(sums);
        }
    }
}
