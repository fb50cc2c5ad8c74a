//! Figures per step, from intervals that begin and end in the order of time.

use crate::analyze::StepFigures;
use crate::timeline::Step;
use std::collections::BTreeMap;

/// Steps whose figures are kept; later ones are only in the totals.
pub(super) const MAX_STEPS: usize = 10_000;

/// Step intervals that are kept to find the step of an interval that does not name one.
const RECENT: usize = 256;

/// One rank's steps on one device.
#[derive(Debug, Default)]
pub(super) struct Steps {
    by_number: BTreeMap<i64, StepState>,
    /// The last steps, ascending by start.
    recent: Vec<Step>,
    left_out: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct StepState {
    /// From the step's own row.
    recorded: Option<(i64, i64)>,
    /// First start and last end of its intervals.
    extent: Option<(i64, i64)>,
    /// Lanes on which its compute runs now, and since when any.
    compute: u32,
    compute_since_ns: i64,
    /// Communication that runs now.
    comm: u32,
    at_ns: i64,
    compute_ns: u64,
    comm_ns: u64,
    overlap_ns: u64,
}

impl StepState {
    fn advance(&mut self, at_ns: i64) {
        if at_ns <= self.at_ns {
            return;
        }
        let passed = at_ns.abs_diff(self.at_ns);
        self.at_ns = at_ns;
        let (computes, communicates) = (self.compute > 0, self.comm > 0);
        if computes {
            self.compute_ns += passed;
        }
        if communicates {
            self.comm_ns += passed;
        }
        if computes && communicates {
            self.overlap_ns += passed;
        }
    }

    fn figures(&self, step: i64, base_ns: i64) -> StepFigures {
        let (start, end) = self.recorded.or(self.extent).unwrap_or((base_ns, base_ns));
        let ms = |ns: u64| ns as f64 / 1e6;
        StepFigures {
            step,
            start_ms: (i128::from(start) - i128::from(base_ns)) as f64 / 1e6,
            span_ms: ms(end.abs_diff(start)),
            compute_ms: ms(self.compute_ns),
            comm_ms: ms(self.comm_ns),
            overlap_ms: ms(self.overlap_ns),
            exposed_ms: ms(self.comm_ns.saturating_sub(self.overlap_ns)),
        }
    }
}

fn widen(span: &mut Option<(i64, i64)>, start_ns: i64, end_ns: i64) {
    let end_ns = end_ns.max(start_ns);
    *span = Some(span.map_or((start_ns, end_ns), |(first, last)| (first.min(start_ns), last.max(end_ns))));
}

impl Steps {
    /// The rows of steps so far, for another device of the rank.
    pub fn recorded_only(&self) -> Self {
        let by_number = self.by_number.iter().filter(|(_, state)| state.recorded.is_some());
        Self {
            by_number: by_number
                .map(|(&step, state)| (step, StepState { recorded: state.recorded, ..StepState::default() }))
                .collect(),
            recent: self.recent.clone(),
            left_out: self.left_out,
        }
    }

    /// Steps that have a row and are not among those kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds a step's row.
    pub fn record(&mut self, step: i64, start_ns: i64, end_ns: i64) {
        match self.state(step) {
            Some(state) => widen(&mut state.recorded, start_ns, end_ns),
            None => self.left_out += 1,
        }
        if start_ns < end_ns {
            let at = self.recent.partition_point(|one| (one.start_ns, one.end_ns) <= (start_ns, end_ns));
            self.recent.insert(at, Step { step, start_ns, end_ns });
            if self.recent.len() > RECENT {
                self.recent.remove(0);
            }
        }
    }

    /// `step` if there is one, else the last begun step in which `start_ns` lies.
    pub fn assign(&self, step: Option<i64>, start_ns: i64) -> Option<i64> {
        if step.is_some() {
            return step;
        }
        let begun = self.recent.partition_point(|step| step.start_ns <= start_ns);
        let last = self.recent.get(begun.checked_sub(1)?)?;
        (start_ns < last.end_ns).then_some(last.step)
    }

    /// Notes the time of communication, or of compute without length, of `step`.
    pub fn extend(&mut self, step: i64, start_ns: i64, end_ns: i64) {
        if let Some(state) = self.state(step) {
            widen(&mut state.extent, start_ns, end_ns);
        }
    }

    /// Compute of `step` begins to count (or ceases to) on a lane.
    pub fn compute(&mut self, step: i64, at_ns: i64, begins: bool) {
        if let Some(state) = self.state(step) {
            state.advance(at_ns);
            if begins {
                if state.compute == 0 {
                    state.compute_since_ns = at_ns;
                }
                state.compute += 1;
                return;
            }
            state.compute = state.compute.saturating_sub(1);
            if state.compute == 0 && state.compute_since_ns < at_ns {
                widen(&mut state.extent, state.compute_since_ns, at_ns);
            }
        }
    }

    /// Communication of `step` begins or ends.
    pub fn comm(&mut self, step: i64, at_ns: i64, begins: bool) {
        if let Some(state) = self.state(step) {
            state.advance(at_ns);
            state.comm = if begins { state.comm + 1 } else { state.comm.saturating_sub(1) };
        }
    }

    /// The figures, by ascending number. `base_ns` is the time that starts are counted from.
    pub fn figures(&self, base_ns: i64) -> Vec<StepFigures> {
        // Compute that communication covers from its first instant leaves a step without anything.
        let present = |state: &StepState| state.recorded.is_some() || state.extent.is_some();
        let steps = self.by_number.iter().filter(|(_, state)| present(state));
        steps.map(|(&step, state)| state.figures(step, base_ns)).collect()
    }

    fn state(&mut self, step: i64) -> Option<&mut StepState> {
        if self.by_number.len() >= MAX_STEPS && !self.by_number.contains_key(&step) {
            return None;
        }
        Some(self.by_number.entry(step).or_insert(StepState { at_ns: i64::MIN, ..StepState::default() }))
    }
}
