//! The running totals of one rank on one device.

use super::queue::{Interval, Span};
use super::steps::Steps;
use crate::analyze::{RoutingSums, SummaryBuilder, Wall, duration_ns};
use crate::read::lanes::LaneKey;
use crate::timeline::Untimed;
use std::collections::HashMap;

/// The running totals of one rank on one device.
#[derive(Debug)]
pub(super) struct TrackState {
    pub rank: u32,
    pub device: Option<u32>,
    /// The device when the track was made: it tells the tracks of a rank apart, and stays.
    pub first_device: Option<u32>,
    pub summary: SummaryBuilder,
    pub untimed: Untimed,
    pub steps: Steps,
    pub routing: RoutingSums,
    /// Communication intervals in which another of the same lane began.
    pub nested: u64,
    /// First start and last end of all intervals.
    extent: Option<(i64, i64)>,
    at_ns: i64,
    /// Lanes on which compute runs and no communication, and compute of unknown lanes.
    computing: u32,
    /// Communication intervals that run now.
    communicating: u32,
    compute_ns: u64,
    comm_ns: u64,
    overlap_ns: u64,
    /// Those on which something runs.
    lanes: HashMap<LaneKey, LaneState>,
}

/// What runs on a lane.
#[derive(Debug, Default)]
struct LaneState {
    /// Communication, and whether another began within it, in order of begin.
    comm: Vec<(u32, bool)>,
    compute: u32,
    /// How much of the compute is of which step.
    steps: Vec<(i64, u32)>,
    /// Time with communication while there was compute, and since when there is communication now.
    cut_ns: u64,
    cut_since_ns: i64,
}

impl LaneState {
    fn cut_until(&self, at_ns: i64) -> u64 {
        let now = if self.comm.is_empty() { 0 } else { duration_ns(self.cut_since_ns, at_ns) };
        self.cut_ns + now
    }
}

impl TrackState {
    pub fn new(rank: u32, device: Option<u32>) -> Self {
        Self {
            rank,
            device,
            first_device: device,
            summary: SummaryBuilder::default(),
            untimed: Untimed::default(),
            steps: Steps::default(),
            routing: RoutingSums::default(),
            nested: 0,
            extent: None,
            at_ns: i64::MIN,
            computing: 0,
            communicating: 0,
            compute_ns: 0,
            comm_ns: 0,
            overlap_ns: 0,
            lanes: HashMap::new(),
        }
    }

    /// Whether the track has any interval or record.
    pub fn is_empty(&self) -> bool {
        self.extent.is_none() && self.untimed.count == 0
    }

    /// Notes the time of an interval; one that ends before it starts has a wrong one.
    pub fn see(&mut self, start_ns: i64, end_ns: i64) {
        if start_ns <= end_ns {
            let (first, last) = self.extent.unwrap_or((start_ns, end_ns));
            self.extent = Some((first.min(start_ns), last.max(end_ns)));
        }
    }

    /// Unions over time.
    pub fn wall(&self) -> Wall {
        let span_ns = self.extent.map_or(0, |(first, last)| last.abs_diff(first));
        Wall::from_ns(self.comm_ns, self.compute_ns, self.overlap_ns, span_ns)
    }

    /// Compute time up to where the sweep is.
    pub fn compute_ns(&self) -> u64 {
        self.compute_ns
    }

    /// Time up to where the sweep is that was spent in exposed communication, and all other.
    pub fn away_and_busy_ns(&self) -> (i64, i64) {
        let away_ns = i64::try_from(self.comm_ns.saturating_sub(self.overlap_ns)).unwrap_or(i64::MAX);
        (away_ns, self.at_ns.saturating_sub(away_ns))
    }

    /// Whether there is compute now.
    pub fn computes(&self) -> bool {
        self.computing > 0
    }

    /// Time that the compute interval `interval`, which ends now, did not spend in communication of its lane.
    pub fn span_ns(&self, interval: &Interval, span: &Span) -> u64 {
        let lane = interval.lane.and_then(|lane| self.lanes.get(&lane));
        let cut = lane.map_or(0, |lane| lane.cut_until(self.at_ns).saturating_sub(span.cut_at_start_ns));
        duration_ns(interval.start_ns, interval.end_ns).saturating_sub(cut)
    }

    /// Moves on to `at_ns`.
    pub fn advance(&mut self, at_ns: i64) {
        if at_ns <= self.at_ns {
            return;
        }
        let passed = at_ns.abs_diff(self.at_ns);
        self.at_ns = at_ns;
        let (computes, communicates) = (self.computing > 0, self.communicating > 0);
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

    /// `interval` begins.
    pub fn begin(&mut self, at_ns: i64, id: u32, interval: &mut Interval) {
        interval.step = self.steps.assign(interval.step, interval.start_ns);
        if let Some(step) = interval.step
            && (interval.call.is_some() || interval.end_ns <= interval.start_ns)
        {
            self.steps.extend(step, interval.start_ns, interval.end_ns);
        }
        if let Some(call) = &mut interval.call {
            call.covered_at_start_ns = self.compute_ns;
        }
        if interval.is_empty() {
            return;
        }
        let step = interval.step;
        match (&interval.call, interval.lane) {
            (Some(_), lane) => {
                self.communicating += 1;
                if let Some(step) = step {
                    self.steps.comm(step, at_ns, true);
                }
                let Some(lane) = lane else { return };
                let lane = self.lanes.entry(lane).or_default();
                match lane.comm.last_mut() {
                    Some((_, nested)) => self.nested += u64::from(!std::mem::replace(nested, true)),
                    None if lane.compute > 0 => {
                        self.computing -= 1;
                        lane.steps.iter().for_each(|&(step, _)| self.steps.compute(step, at_ns, false));
                    }
                    None => {}
                }
                if lane.comm.is_empty() {
                    lane.cut_since_ns = at_ns;
                }
                lane.comm.push((id, false));
            }
            (None, None) => {
                self.computing += 1;
                if let Some(step) = step {
                    self.steps.compute(step, at_ns, true);
                }
            }
            (None, Some(lane)) => {
                let lane = self.lanes.entry(lane).or_default();
                if let Some(span) = &mut interval.span {
                    span.cut_at_start_ns = lane.cut_until(at_ns);
                }
                lane.compute += 1;
                let counts = lane.comm.is_empty();
                self.computing += u32::from(counts && lane.compute == 1);
                if let Some(step) = step {
                    match lane.steps.iter_mut().find(|(number, _)| *number == step) {
                        Some((_, count)) => *count += 1,
                        None => {
                            lane.steps.push((step, 1));
                            if counts {
                                self.steps.compute(step, at_ns, true);
                            }
                        }
                    }
                }
            }
        }
    }

    /// `interval` ends.
    pub fn end(&mut self, at_ns: i64, id: u32, interval: &Interval) {
        if let Some(call) = &interval.call {
            let overlap_ns = self.compute_ns - call.covered_at_start_ns;
            let duration_ns = duration_ns(interval.start_ns, interval.end_ns);
            self.summary.add_at(call.slot, duration_ns, overlap_ns, call.bytes);
        }
        if interval.is_empty() {
            return;
        }
        let step = interval.step;
        match (&interval.call, interval.lane) {
            (Some(_), lane) => {
                self.communicating -= 1;
                if let Some(step) = step {
                    self.steps.comm(step, at_ns, false);
                }
                let Some(key) = lane else { return };
                let Some(lane) = self.lanes.get_mut(&key) else { return };
                lane.cut_ns = lane.cut_until(at_ns);
                lane.cut_since_ns = at_ns;
                lane.comm.retain(|&(other, _)| other != id);
                if !lane.comm.is_empty() {
                    return;
                }
                if lane.compute == 0 {
                    self.lanes.remove(&key);
                    return;
                }
                self.computing += 1;
                lane.steps.iter().for_each(|&(step, _)| self.steps.compute(step, at_ns, true));
            }
            (None, None) => {
                self.computing -= 1;
                if let Some(step) = step {
                    self.steps.compute(step, at_ns, false);
                }
            }
            (None, Some(key)) => {
                let Some(lane) = self.lanes.get_mut(&key) else { return };
                lane.compute -= 1;
                let counted = lane.comm.is_empty();
                self.computing -= u32::from(counted && lane.compute == 0);
                if let Some(step) = step
                    && let Some(at) = lane.steps.iter().position(|&(number, _)| number == step)
                {
                    lane.steps[at].1 -= 1;
                    if lane.steps[at].1 == 0 {
                        lane.steps.swap_remove(at);
                        if counted {
                            self.steps.compute(step, at_ns, false);
                        }
                    }
                }
                if counted && lane.compute == 0 {
                    self.lanes.remove(&key);
                }
            }
        }
    }
}
