//! Which ranks are stragglers: the rule.
//!
//! Lateness by chance comes in two kinds. Some is new in every step; any average tells it from a habit. Some
//! lasts: on a shared machine one rank has the worse core for seconds, so that steps in a row are alike and
//! counting them as independent proves far too much. So a claim never rests on the number of steps. It
//! needs an excess that is large next to all variation that the run itself shows:
//!
//! - Steps are joined into ten batches of consecutive steps (nonoverlapping batch means: B. Schmeiser, Batch
//!   size effects in the analysis of simulation output, Operations Research 30, 1982), each with the median of
//!   its steps, so that a single stall counts for nothing. A rank's excess in a step is its lateness minus
//!   the mean lateness of the other ranks: zero on average if all ranks are alike.
//! - **Throughout**: the mean excess is at least [`NOISE_FACTOR`] (more for short runs) times its standard
//!   deviation from batch to batch. The deviation is deliberately not divided by the square root of the
//!   number of batches: the rule holds even if the run has seen only few independent conditions. In each
//!   batch there must be a quarter of it at least, and the rank's usual lateness must be one and a half
//!   times what the other ranks show in one step of twenty.
//! - **Drifting**: a straight line explains 95 % of the excess' variation, and its rise is at least half of
//!   its highest point, which is twice what the other ranks show in one
//!   step of twenty.
//! - **Some steps**: in at least five steps its lateness is [`STANDS_OUT`] times what the others show in
//!   one step of twenty and a tenth of a step, and the others do so a tenth as often at most. Such steps come
//!   in at least eight separate spells in at least seven of the ten batches (of two ranks: in all ten), or are
//!   two fifths of the run in a job of four ranks or more: a single spell is an event and not a habit.
//! - In all cases the excess must cost at least [`LEAST_SHARE`] of the run's time, and there must be at
//!   least [`LEAST_STEPS`] steps.
//!
//! What the rule cannot know: a rank that has bad luck in the same way during the whole recording looks like
//! a rank that is slow. In random jobs whose ranks are alike (see the tests) claims are rarer than one in a
//! hundred where conditions change at least about ten times during the run.

use super::Pattern;

/// Steps below which nothing is claimed.
pub(super) const LEAST_STEPS: usize = 10;
/// Batches of consecutive steps.
pub(super) const BATCHES: usize = 10;
/// Share of the run's time that an excess has to cost.
const LEAST_SHARE: f64 = 0.05;
/// Mean excess over its standard deviation between batches; for runs of S steps, times 1 + 8/S.
const NOISE_FACTOR: f64 = 5.0;
/// Lateness of a late step, over the 95 % quantile of the other ranks' lateness.
const STANDS_OUT: f64 = 5.0;
/// Usual lateness of a rank that is late throughout, over the same quantile.
const USUAL: f64 = 1.5;
/// Ranks that are looked at more closely, at most: those with the largest excess.
const MOST_CANDIDATES: usize = 64;

/// What is said of a straggler.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    /// Its row.
    pub(super) rank: usize,
    pub(super) pattern: Pattern,
    /// Mean excess over its standard deviation; `None` if there is none, and for some steps.
    pub(super) excess_to_noise: Option<f64>,
    /// Places of the steps in which it was late.
    pub(super) late: Vec<usize>,
}

/// The claims, by largest excess. `late` is the lateness per rank and step, `elapsed` the time that the steps
/// took together, in the same unit.
pub(super) fn judge(late: &[Vec<f64>], elapsed: f64) -> Vec<Claim> {
    let steps = late.iter().map(Vec::len).min().unwrap_or(0);
    if late.len() < 2 || steps < LEAST_STEPS || elapsed <= 0.0 {
        return Vec::new();
    }
    let run = Run { late, steps, step: elapsed / steps as f64, totals: totals(late, steps) };
    let mut candidates: Vec<Candidate> = (0..late.len()).filter_map(|rank| run.candidate(rank)).collect();
    candidates.sort_by(|a, b| b.total.total_cmp(&a.total));
    candidates.truncate(MOST_CANDIDATES);
    // A slow host makes several ranks late at once: they are no measure of chance for each other.
    let steady: Vec<usize> = candidates.iter().filter(|one| one.steady).map(|one| one.rank).collect();
    candidates.iter().filter_map(|one| run.claim(one, &steady)).collect()
}

fn totals(late: &[Vec<f64>], steps: usize) -> Vec<f64> {
    let mut totals = vec![0.0; steps];
    for rank in late {
        totals.iter_mut().zip(rank).for_each(|(total, value)| *total += value);
    }
    totals
}

struct Run<'a> {
    late: &'a [Vec<f64>],
    steps: usize,
    /// Mean time of a step.
    step: f64,
    /// Lateness of all ranks together, per step.
    totals: Vec<f64>,
}

/// A rank that costs enough time to be looked at.
struct Candidate {
    rank: usize,
    /// Its excess, over the steps in which it has any.
    total: f64,
    /// Median excess per batch.
    batches: Vec<f64>,
    mean: f64,
    deviation: f64,
    /// Whether the excess is large next to its variation.
    steady: bool,
}

impl Run<'_> {
    fn row(&self, rank: usize) -> &[f64] {
        self.late.get(rank).map_or(&[], Vec::as_slice)
    }

    /// Bounds of the batches, as places of steps.
    fn batches(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let (steps, count) = (self.steps, self.steps.min(BATCHES));
        (0..count).map(move |batch| batch * steps / count..(batch + 1) * steps / count)
    }

    fn candidate(&self, rank: usize) -> Option<Candidate> {
        let others = (self.late.len() - 1) as f64;
        let excess: Vec<f64> = self
            .row(rank)
            .iter()
            .zip(&self.totals)
            .map(|(late, total)| late - (total - late) / others)
            .collect();
        // What others lose in one step does not make up for what they gain in another.
        let total: f64 = excess.iter().filter(|value| **value > 0.0).sum();
        if total < LEAST_SHARE * self.step * self.steps as f64 {
            return None;
        }
        let batches: Vec<f64> =
            self.batches().map(|batch| median(excess.get(batch).unwrap_or_default())).collect();
        let count = batches.len() as f64;
        let mean = batches.iter().sum::<f64>() / count;
        let deviation = deviation(&batches, mean);
        let least = batches.iter().copied().fold(f64::INFINITY, f64::min);
        let steady = mean >= LEAST_SHARE * self.step
            && mean >= NOISE_FACTOR * (1.0 + 8.0 / self.steps as f64) * deviation
            && least >= mean / 4.0;
        Some(Candidate { rank, total, batches, mean, deviation, steady })
    }

    /// What the other ranks show in one step of twenty; those in `steady` are no measure.
    fn noise(&self, rank: usize, steady: &[usize]) -> f64 {
        let mut others: Vec<f64> = Vec::with_capacity(self.late.len().saturating_sub(1) * self.steps);
        for (other, row) in self.late.iter().enumerate() {
            if other != rank && !steady.contains(&other) {
                others.extend(row);
            }
        }
        if others.is_empty() {
            return 0.0;
        }
        let place = others.len() * 95 / 100;
        *others.select_nth_unstable_by(place, f64::total_cmp).1
    }

    fn claim(&self, one: &Candidate, steady: &[usize]) -> Option<Claim> {
        let noise = self.noise(one.rank, steady);
        let late_by = |least: f64| -> Vec<usize> {
            let places = self.row(one.rank).iter().enumerate();
            places.filter(|&(_, &late)| late >= least && late > 0.0).map(|(place, _)| place).collect()
        };
        let excess_to_noise = Some(one.mean / one.deviation).filter(|ratio| ratio.is_finite());
        if self.drifts(one, noise) {
            let late = late_by(one.mean / 2.0);
            return Some(Claim { rank: one.rank, pattern: Pattern::Drifting, excess_to_noise, late });
        }
        if one.steady && median(self.row(one.rank)) >= USUAL * noise {
            let late = late_by(one.mean / 2.0);
            return Some(Claim { rank: one.rank, pattern: Pattern::Throughout, excess_to_noise, late });
        }
        let threshold = (STANDS_OUT * noise).max(self.step / 10.0);
        let late = late_by(threshold);
        self.is_habit(one.rank, &late, threshold, steady).then_some(Claim {
            rank: one.rank,
            pattern: Pattern::SomeSteps,
            excess_to_noise: None,
            late,
        })
    }

    /// Whether the excess grows (or shrinks) along a line.
    fn drifts(&self, one: &Candidate, noise: f64) -> bool {
        let count = one.batches.len();
        if self.steps < 2 * BATCHES || one.mean < LEAST_SHARE * self.step {
            return false;
        }
        let middle = (count as f64 - 1.0) / 2.0;
        let (mut along, mut across, mut all) = (0.0, 0.0, 0.0);
        for (place, value) in one.batches.iter().enumerate() {
            let from_middle = place as f64 - middle;
            along += from_middle * from_middle;
            across += from_middle * (value - one.mean);
            all += (value - one.mean).powi(2);
        }
        let slope = across / along;
        let rise = slope.abs() * (count as f64 - 1.0);
        let highest = one.mean + rise / 2.0;
        slope * across >= 0.95 * all
            && rise >= highest / 2.0
            && rise >= 2.0 * LEAST_SHARE * self.step
            && highest >= 2.0 * noise
    }

    /// Whether the late steps are more than an event, and the rank's own.
    fn is_habit(&self, rank: usize, late: &[usize], threshold: f64, steady: &[usize]) -> bool {
        if late.len() < 5 || self.steps < 2 * BATCHES {
            return false;
        }
        let row = self.row(rank);
        let lost: f64 = late.iter().filter_map(|&place| row.get(place)).sum();
        if lost < LEAST_SHARE * self.step * self.steps as f64 {
            return false;
        }
        let others =
            self.late.iter().enumerate().filter(|(other, _)| *other != rank && !steady.contains(other));
        let often = others.map(|(_, row)| row.iter().filter(|&&value| value >= threshold).count()).max();
        if often.unwrap_or(0) * 10 > late.len() {
            return false;
        }
        let spells = 1 + late.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
        let in_batches =
            self.batches().filter(|batch| late.iter().any(|place| batch.contains(place))).count();
        // Of two ranks one is always the later one, and no third says what is usual.
        let most = if self.late.len() == 2 { BATCHES } else { 7 };
        let again_and_again = spells >= 8 && in_batches >= most;
        let much_of_the_run = late.len() * 5 >= self.steps * 2 && self.late.len() >= 4;
        again_and_again || much_of_the_run
    }
}

/// The standard deviation from batch to batch; a few odd batches on a busy machine count less: it is that of
/// the median absolute deviation (times 1.4826, as for normal noise), but seven tenths of the plain one at least.
fn deviation(batches: &[f64], mean: f64) -> f64 {
    let squares = batches.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let plain = (squares / (batches.len() as f64 - 1.0)).sqrt();
    let middle = median(batches);
    let distances: Vec<f64> = batches.iter().map(|value| (value - middle).abs()).collect();
    plain.min((1.4826 * median(&distances)).max(0.7 * plain))
}

/// The median; of an even number of values the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), middle.checked_sub(1).and_then(|below| sorted.get(below))) {
        (Some(above), Some(below)) if sorted.len().is_multiple_of(2) => f64::midpoint(*above, *below),
        (Some(value), _) => *value,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
