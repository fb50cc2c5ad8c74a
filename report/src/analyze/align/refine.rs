//! All clocks of a part fitted together.
//!
//! The corrections `p + q·s` of all clocks (`s` from −1 at the start to 1 at the end of the run) minimize
//! the weighted squares of what is left of the collectives' ends around each collective's weighted mean.
//! Weights are those of Huber first, under which a clock whose first fit was bad still finds its place,
//! then Tukey's biweight, which gives none to collectives that do not fit (P. W. Holland, R. E. Welsch,
//! Robust regression using iteratively reweighted least-squares, Communications in Statistics A6, 1977;
//! constants for 95 % efficiency). Each communicator has a scale of its own: ends of some coincide better
//! than those of others.
//!
//! The normal equations are solved by conjugate gradients and never stored, so that a round costs a few
//! passes over the ends that were kept.

use super::graph::Part;
use super::mapping::ClockFit;
use super::robust::{MAD_TO_SIGMA, median};
use super::sample::Samples;
use super::solve::{Weighted, solve};

const HUBER_ROUNDS: usize = 4;
const ROUNDS: usize = 10;
const HUBER: f64 = 1.345;
const BIWEIGHT: f64 = 4.685;

/// Corrections smaller than this are not worth another round.
const SETTLED_NS: f64 = 0.25;

/// Times are whole nanoseconds: no scale is smaller.
const LEAST_SCALE_NS: f64 = 1.0;

/// With fewer collectives than this, residuals do not tell how far off a fit may be.
const FEW: u64 = 8;

/// The ends of one collective among those of its part.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub from: usize,
    pub to: usize,
    /// When, from −1 to 1.
    pub s: f64,
    communicator: usize,
}

/// The ends of all collectives of a part.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// In order of communicator.
    pub rows: Vec<Row>,
    /// Per end: the clock, as an index into the part.
    pub clock: Vec<u32>,
    /// Per end: how long after the collective's median end, by the first fit.
    pub after_ns: Vec<f64>,
    /// Start and half of the length of the run on the common time scale.
    start_ns: i64,
    half_ns: f64,
}

/// Improves the fits of the part's clocks and fills in their uncertainty. The first clock stays as it is.
pub(super) fn refine(part: &Part, samples: &[Samples], fits: &mut [ClockFit]) {
    let ends = Ends::collect(part, samples, fits);
    if ends.rows.is_empty() {
        return;
    }
    let count = part.clocks.len();
    let rates: Vec<f64> =
        part.clocks.iter().map(|&clock| fits.get(clock).map_or(0.0, |fit| fit.rate)).collect();
    let mut corrections = vec![0.0; 2 * count];
    let mut residuals = ends.residuals(&corrections, None);
    for round in 0..ROUNDS {
        let weights = ends.weights(&residuals, round < HUBER_ROUNDS);
        let before = corrections.clone();
        let problem = Weighted { ends: &ends, weights: &weights, half_ns: ends.half_ns, rates: &rates };
        solve(&problem, &mut corrections);
        residuals = ends.residuals(&corrections, Some(&weights));
        let moved = corrections.iter().zip(&before).map(|(now, then)| (now - then).abs()).fold(0.0, f64::max);
        if moved < SETTLED_NS && round >= HUBER_ROUNDS {
            break;
        }
    }
    let middle_ns = i128::from(ends.start_ns) + ends.half_ns as i128;
    for (&clock, correction) in part.clocks.iter().zip(corrections.chunks_exact(2)).skip(1) {
        let (Some(fit), &[offset, slope]) = (fits.get_mut(clock), correction) else { continue };
        let anchor = (i128::from(fit.anchor_common_ns) - middle_ns) as f64 / ends.half_ns;
        fit.ahead_ns += offset + slope * anchor;
        fit.rate += slope / ends.half_ns;
    }
    let weights = ends.weights(&residuals, false);
    uncertainties(part, samples, &ends, &residuals, &weights, fits);
}

impl Ends {
    fn collect(part: &Part, samples: &[Samples], fits: &[ClockFit]) -> Self {
        let mut index = vec![u32::MAX; fits.len()];
        for (&clock, number) in part.clocks.iter().zip(0..) {
            if let Some(entry) = index.get_mut(clock) {
                *entry = number;
            }
        }
        let index = |clock: usize| index.get(clock).copied().filter(|&number| number != u32::MAX);
        let mut ends = Self::default();
        let mut instants_ns = Vec::new();
        let mut row = Vec::new();
        for (communicator, samples) in samples.iter().enumerate() {
            for collective in samples.collectives() {
                row.clear();
                row.extend(
                    collective
                        .filter_map(|(clock, end)| Some((fits.get(clock)?.to_common_ns(end), index(clock)?))),
                );
                if row.len() < 2 {
                    continue;
                }
                row.sort_unstable();
                let Some(&(middle, _)) = row.get(row.len() / 2) else { continue };
                let from = ends.clock.len();
                for &(end, clock) in &row {
                    ends.clock.push(clock);
                    ends.after_ns.push((i128::from(end) - i128::from(middle)) as f64);
                }
                ends.rows.push(Row { from, to: ends.clock.len(), s: 0.0, communicator });
                instants_ns.push(middle);
            }
        }
        ends.start_ns = instants_ns.iter().copied().min().unwrap_or(0);
        let length = instants_ns.iter().map(|instant| instant.abs_diff(ends.start_ns)).max().unwrap_or(0);
        ends.half_ns = (length as f64 / 2.0).max(1.0);
        for (row, instant) in ends.rows.iter_mut().zip(instants_ns) {
            row.s = instant.abs_diff(ends.start_ns) as f64 / ends.half_ns - 1.0;
        }
        ends
    }

    /// What is left of each end around the collective's mean, or without weights around its median.
    fn residuals(&self, corrections: &[f64], weights: Option<&[f64]>) -> Vec<f64> {
        let mut residuals = Vec::with_capacity(self.clock.len());
        let mut sorted = Vec::new();
        for row in &self.rows {
            let (clocks, after) = (&self.clock[row.from..row.to], &self.after_ns[row.from..row.to]);
            residuals.extend(clocks.iter().zip(after).map(|(&clock, after)| {
                let at = 2 * clock as usize;
                after - corrections[at] - corrections[at + 1] * row.s
            }));
            let of_row = &mut residuals[row.from..];
            let mean = weights.and_then(|weights| {
                let weights = &weights[row.from..row.to];
                let total: f64 = weights.iter().sum();
                let sum: f64 = weights.iter().zip(&*of_row).map(|(weight, left)| weight * left).sum();
                (total > 0.0).then(|| sum / total)
            });
            let middle = mean.unwrap_or_else(|| {
                sorted.clear();
                sorted.extend_from_slice(of_row);
                center(&mut sorted)
            });
            of_row.iter_mut().for_each(|left| *left -= middle);
        }
        residuals
    }

    /// The weight of each end, from its residual.
    fn weights(&self, residuals: &[f64], huber: bool) -> Vec<f64> {
        let mut sizes = Vec::with_capacity(residuals.len());
        for row in &self.rows {
            sizes.extend(residuals[row.from..row.to].iter().map(|left| left.abs() * row.stretch()));
        }
        let pooled = (MAD_TO_SIGMA * median(&mut sizes.clone())).max(LEAST_SCALE_NS);
        let mut weights = Vec::with_capacity(residuals.len());
        for group in self.rows.chunk_by(|a, b| a.communicator == b.communicator) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let scale = if group.len() < FEW as usize {
                pooled
            } else {
                // Not so small that all others lose their say.
                (MAD_TO_SIGMA * median(&mut sizes[first.from..last.to])).max(pooled / 10.0)
            };
            weights.extend(residuals[first.from..last.to].iter().map(|left| {
                let size = left.abs() / scale;
                let weight = match huber {
                    true => (HUBER / size).min(1.0),
                    false if size < BIWEIGHT => (1.0 - (size / BIWEIGHT).powi(2)).powi(2),
                    false => 0.0,
                };
                weight / (scale * scale)
            }));
        }
        weights
    }
}

impl Row {
    /// A residual around the mean of few is smaller than the error itself.
    fn stretch(&self) -> f64 {
        let count = (self.to - self.from) as f64;
        (count / (count - 1.0)).sqrt()
    }
}

/// The median; of an even number, the mean of the two in the middle.
fn center(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        even if even % 2 == 0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

/// See the documentation of [`super`].
fn uncertainties(
    part: &Part,
    samples: &[Samples],
    ends: &Ends,
    residuals: &[f64],
    weights: &[f64],
    fits: &mut [ClockFit],
) {
    let mut residuals_of: Vec<Residuals> = vec![Residuals::default(); part.clocks.len()];
    for row in &ends.rows {
        for end in row.from..row.to {
            let size = residuals[end].abs() * row.stretch();
            residuals_of[ends.clock[end] as usize].add(size, weights[end] > 0.0);
        }
    }
    // Along the path from the first clock: squared standard error, and what few collectives leave open.
    let mut along = vec![(0.0, 0.0); fits.len()];
    // The edges' children are the clocks behind the first, in the same order.
    for (edge, own) in part.edges.iter().zip(residuals_of.iter_mut().skip(1)) {
        let spread = own.spread();
        // The line is through differences of two ends. Its variance at the ends of evenly spread points is
        // four times that of their mean.
        let variance = 4.0 * 2.0 * spread * spread / own.agreeing.max(1) as f64;
        let open = match (own.agreeing < FEW, samples.get(edge.communicator)) {
            (true, Some(samples)) => samples.shortest_ns() as f64,
            _ => 0.0,
        };
        let (before, open_before) = along.get(edge.parent).copied().unwrap_or_default();
        let here = (before + variance, open_before + open);
        if let (Some(entry), Some(fit)) = (along.get_mut(edge.child), fits.get_mut(edge.child)) {
            *entry = here;
            fit.uncertainty_ns = (spread + 2.0 * here.0.sqrt()).max(here.1);
        }
    }
}

/// Residuals of one clock.
#[derive(Debug, Clone, Default)]
struct Residuals {
    sizes: Vec<f64>,
    /// How many are not outliers, and the sum of their squares.
    agreeing: u64,
    squares: f64,
}

impl Residuals {
    fn add(&mut self, size: f64, agrees: bool) {
        self.sizes.push(size);
        if agrees {
            self.agreeing += 1;
            self.squares += size * size;
        }
    }

    /// By the median and by the root of the mean square without outliers: the larger, since the median is
    /// blind to heavy tails.
    fn spread(&mut self) -> f64 {
        let root_mean_square = (self.squares / self.agreeing.max(1) as f64).sqrt();
        (MAD_TO_SIGMA * median(&mut self.sizes)).max(root_mean_square).max(LEAST_SCALE_NS)
    }
}
