//! Figures per training step.

use super::filter::Selected;
use super::interval::{Merge, intersection_ns};
use super::ms_from_ns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One training step of one rank and device, in milliseconds. Compute and communication are unions of
/// the intervals that belong to the step, wherever in time they ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepFigures {
    /// The step's number.
    pub step: i64,
    /// Its start, counted from the earliest start on the same clock in the whole timeline.
    pub start_ms: f64,
    /// Its recorded length; without a record, from its first interval's start to its last one's end.
    pub span_ms: f64,
    /// Time with compute.
    pub compute_ms: f64,
    /// Time with communication.
    pub comm_ms: f64,
    /// Time with both.
    pub overlap_ms: f64,
    /// Time with communication and no compute.
    pub exposed_ms: f64,
}

/// An interval of a step, ordered by step and start.
type Part = (i64, i64, i64);

/// The figures of every step that was recorded or that an interval belongs to, by ascending number.
/// `base_ns` is the time that `start_ms` counts from.
pub(super) fn step_figures(selected: &Selected<'_>, base_ns: i64) -> Vec<StepFigures> {
    let track = &selected.track;
    let assign = |step, start_ns, end_ns| Some((selected.index.assign(step, start_ns)?, start_ns, end_ns));
    let compute = sorted(track.compute.iter().filter_map(|c| assign(c.step, c.start_ns, c.end_ns)));
    let comm = sorted(track.comm.iter().filter_map(|c| assign(c.step, c.start_ns, c.end_ns)));
    let mut recorded: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for step in &selected.steps {
        let end_ns = step.end_ns.max(step.start_ns);
        let span = recorded.entry(step.step).or_insert((step.start_ns, end_ns));
        *span = (span.0.min(step.start_ns), span.1.max(end_ns));
    }

    let (mut compute, mut comm) = (Groups(&compute), Groups(&comm));
    let mut recorded = recorded.into_iter().peekable();
    let mut figures = Vec::new();
    loop {
        let next = [compute.step(), comm.step(), recorded.peek().map(|&(step, _)| step)];
        let Some(step) = next.into_iter().flatten().min() else { return figures };
        let (compute, comm) = (compute.take(step), comm.take(step));
        let span = recorded.next_if(|&(number, _)| number == step).map(|(_, span)| span);
        figures.push(one_step(step, span, compute, comm, base_ns));
    }
}

fn one_step(
    step: i64,
    recorded: Option<(i64, i64)>,
    compute: &[Part],
    comm: &[Part],
    base_ns: i64,
) -> StepFigures {
    let parts = || compute.iter().chain(comm).map(|&(_, start, end)| (start, end.max(start)));
    let (start, end) = recorded
        .or_else(|| parts().reduce(|(first, last), (start, end)| (first.min(start), last.max(end))))
        .unwrap_or((base_ns, base_ns));
    let (compute, comm) = (merge(compute), merge(comm));
    let overlap_ns = intersection_ns(&compute.segments, &comm.segments);
    let [compute_ns, comm_ns] = [compute.total_ns(), comm.total_ns()];
    StepFigures {
        step,
        start_ms: (i128::from(start) - i128::from(base_ns)) as f64 / 1e6,
        span_ms: ms_from_ns(end.abs_diff(start).into()),
        compute_ms: ms_from_ns(compute_ns.into()),
        comm_ms: ms_from_ns(comm_ns.into()),
        overlap_ms: ms_from_ns(overlap_ns.into()),
        exposed_ms: ms_from_ns((comm_ns - overlap_ns).into()),
    }
}

fn merge(parts: &[Part]) -> Merge {
    let mut merged = Merge::default();
    for &(_, start, end) in parts {
        merged.push(start, end);
    }
    merged
}

fn sorted(parts: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut parts: Vec<Part> = parts.collect();
    if !parts.is_sorted() {
        parts.sort_unstable();
    }
    parts
}

/// The rest of a sorted list, taken step by step.
struct Groups<'a>(&'a [Part]);

impl<'a> Groups<'a> {
    fn step(&self) -> Option<i64> {
        self.0.first().map(|part| part.0)
    }

    /// The parts of `step`, which is the smallest left.
    fn take(&mut self, step: i64) -> &'a [Part] {
        let count = self.0.iter().take_while(|part| part.0 == step).count();
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }
}
