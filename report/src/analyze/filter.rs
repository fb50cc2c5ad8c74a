//! What to analyze, and which step an interval belongs to.

use crate::advise::Thresholds;
use crate::timeline::{ProcessRows, Step, Timeline, Track};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::str::FromStr;

/// What to analyze, and the limits of the advice.
#[derive(Debug, Clone, PartialEq)]
pub struct AnalyzeOptions {
    /// Only intervals of these steps; intervals without a step are then left out.
    pub steps: Option<StepRange>,
    /// Only these ranks.
    pub ranks: Option<BTreeSet<u32>>,
    /// Align clocks that differ or of which nothing is known (the default). Without it, all times are taken
    /// as those of one clock, whatever the inputs say.
    pub align: bool,
    /// Limits of the advice.
    pub thresholds: Thresholds,
}

impl Default for AnalyzeOptions {
    fn default() -> Self {
        Self { steps: None, ranks: None, align: true, thresholds: Thresholds::default() }
    }
}

/// A half-open range of step numbers, either side of which may be open: `10..20`, `10..`, `..20`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepRange {
    /// The first step.
    pub start: Option<i64>,
    /// The step after the last.
    pub end: Option<i64>,
}

impl StepRange {
    /// Whether `step` is in the range.
    pub fn contains(&self, step: i64) -> bool {
        self.start.is_none_or(|start| step >= start) && self.end.is_none_or(|end| step < end)
    }
}

/// A range of steps that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of steps: write FIRST..END (END not included), FIRST.. or ..END")]
pub struct StepRangeError(String);

impl FromStr for StepRange {
    type Err = StepRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || StepRangeError(text.to_string());
        let number = |side: &str| match side.trim() {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| error()),
        };
        let (start, end) = text.split_once("..").ok_or_else(error)?;
        let range = Self { start: number(start)?, end: number(end)? };
        match range {
            Self { start: Some(start), end: Some(end) } if start >= end => Err(error()),
            _ => Ok(range),
        }
    }
}

/// The steps of one rank in time, to find the step of an interval that does not name one.
#[derive(Debug, Default)]
pub(crate) struct StepIndex {
    /// Ascending by start.
    steps: Vec<Step>,
}

impl StepIndex {
    pub(crate) fn new(mut steps: Vec<Step>) -> Self {
        steps.retain(|step| step.end_ns > step.start_ns);
        steps.sort_unstable_by_key(|step| (step.start_ns, step.end_ns));
        Self { steps }
    }

    /// `step` if there is one, else the last begun step in which `start_ns` lies.
    pub(crate) fn assign(&self, step: Option<i64>, start_ns: i64) -> Option<i64> {
        if step.is_some() {
            return step;
        }
        let begun = self.steps.partition_point(|step| step.start_ns <= start_ns);
        let last = self.steps.get(begun.checked_sub(1)?)?;
        (start_ns < last.end_ns).then_some(last.step)
    }
}

/// A track that passed the filter, with the steps of its rank.
#[derive(Debug)]
pub(crate) struct Selected<'a> {
    pub(crate) track: Cow<'a, Track>,
    pub(crate) index: StepIndex,
    /// Step rows of the rank, those out of range left out.
    pub(crate) steps: Vec<Step>,
}

/// The tracks that `options` ask for.
///
/// A rank's steps may stand on another of its tracks (the host's, while the work is on a device): each
/// track without own steps uses those of its rank on the same clock, and a track that holds nothing but
/// steps which others use is not a track of its own.
pub(crate) fn select<'a>(timeline: &'a Timeline, options: &AnalyzeOptions) -> Vec<Selected<'a>> {
    let wanted = |track: &&Track| options.ranks.as_ref().is_none_or(|ranks| ranks.contains(&track.rank));
    let only_steps = |track: &Track| {
        track.compute.is_empty()
            && track.comm.is_empty()
            && track.unplaced.is_empty()
            && track.untimed.count == 0
            && !track.steps.is_empty()
    };
    let mut of_rank: HashMap<u32, Vec<&Track>> = HashMap::new();
    for track in &timeline.tracks {
        of_rank.entry(track.rank).or_default().push(track);
    }
    let mut selected = Vec::new();
    for track in timeline.tracks.iter().filter(wanted) {
        let siblings =
            || of_rank.get(&track.rank).into_iter().flatten().filter(|other| other.clock == track.clock);
        if only_steps(track) && siblings().any(|other| !only_steps(other)) {
            continue;
        }
        let mut steps = track.steps.clone();
        if steps.is_empty() {
            steps = siblings().flat_map(|other| other.steps.iter().copied()).collect();
        }
        let index = StepIndex::new(steps.clone());
        let track = match options.steps {
            None => Cow::Borrowed(track),
            Some(range) => {
                steps.retain(|step| range.contains(step.step));
                Cow::Owned(in_range(track, &index, range))
            }
        };
        selected.push(Selected { track, index, steps });
    }
    selected.sort_by_key(|selected| (selected.track.rank, selected.track.device));
    selected
}

/// The intervals of `track` whose step is in `range`. Records without a time have no step and stay.
fn in_range(track: &Track, index: &StepIndex, range: StepRange) -> Track {
    let mut kept =
        Track { clock: track.clock, untimed: track.untimed.clone(), ..Track::new(track.rank, track.device) };
    let keep = |step, start_ns| index.assign(step, start_ns).filter(|&step| range.contains(step));
    for (mut interval, label) in track.compute.iter_labelled() {
        interval.step = keep(interval.step, interval.start_ns);
        if interval.step.is_some() {
            kept.compute.push_labelled(interval, label);
        }
    }
    for (row, (mut interval, exchange)) in track.comm.iter_exchanges().enumerate() {
        interval.step = keep(interval.step, interval.start_ns);
        if interval.step.is_some() {
            let generation = track.generation(row);
            if kept.processes.last().map_or(0, |process| process.generation) != generation {
                kept.processes.push(ProcessRows { first: kept.comm.len(), generation });
            }
            kept.comm.push_exchange(interval, exchange);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Compute;

    #[test]
    fn ranges_of_steps() -> Result<(), StepRangeError> {
        let range: StepRange = "10..20".parse()?;
        assert!(range.contains(10) && range.contains(19) && !range.contains(20) && !range.contains(9));
        assert!("10..".parse::<StepRange>()?.contains(i64::MAX));
        assert!("..3".parse::<StepRange>()?.contains(i64::MIN));
        for bad in ["", "3", "a..b", "5..5", "9..1", "1..2..3"] {
            let error = bad.parse::<StepRange>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{bad}`")), "{error}");
        }
        Ok(())
    }

    #[test]
    fn an_interval_without_a_step_belongs_to_the_step_it_starts_in() {
        let step = |step, start_ns, end_ns| Step { step, start_ns, end_ns };
        let index = StepIndex::new(vec![step(2, 20, 30), step(1, 10, 20), step(3, 35, 30)]);
        assert_eq!(index.assign(None, 9), None);
        assert_eq!(index.assign(None, 10), Some(1));
        assert_eq!(index.assign(None, 19), Some(1));
        assert_eq!(index.assign(None, 20), Some(2));
        assert_eq!(index.assign(None, 30), None);
        assert_eq!(index.assign(Some(7), 10), Some(7));
    }

    #[test]
    fn a_track_uses_the_steps_of_its_own_rank() {
        let mut timeline = Timeline::default();
        let name = timeline.names.intern("forward");
        for rank in [4, 1] {
            let mut host = Track::new(rank, None);
            host.steps.push(Step { step: rank.into(), start_ns: 0, end_ns: 9 });
            let mut device = Track::new(rank, Some(0));
            device.compute.push(Compute { name, start_ns: 1, end_ns: 2, step: None });
            timeline.tracks.extend([host, device]);
        }
        let selected = select(&timeline, &AnalyzeOptions::default());
        let found: Vec<_> =
            selected.iter().map(|one| (one.track.rank, one.track.device, one.steps[0].step)).collect();
        assert_eq!(found, [(1, Some(0), 1), (4, Some(0), 4)]);
    }
}
