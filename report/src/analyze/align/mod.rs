//! One time scale for clocks that disagree.
//!
//! Hosts' clocks differ by an offset and run at slightly different rates. A collective that synchronizes
//! its ranks ends at nearly the same instant on all of them, whoever came last, so that its ends tie the
//! clocks together: with `L` the end on clock `c` of collective `k`,
//!
//! ```text
//! L(c, k) = E(k) + offset(c) + drift(c) · (E(k) − start) + noise
//! ```
//!
//! where `E(k)` is the common end. [`Aligner`] estimates offset and drift of all clocks in three stages:
//!
//! 1. It keeps a sample of the collectives of each communicator, evenly over the run (`sample`); memory is
//!    bounded however long the run was.
//! 2. Clocks are joined over the graph of communicators, from the clock of the lowest rank outwards: those
//!    that share no communicator are joined through others. Along each edge of that tree a line is fitted
//!    by repeated medians, which up to half of the collectives may contradict (`graph`, `robust`).
//! 3. All clocks of a connected part are then fitted together, by least squares over all collectives kept,
//!    reweighted until collectives that do not fit have no weight (`refine`, `solve`).
//!
//! Parts that share no collective stay apart: [`Alignment::is_aligned`] is false for the clocks of all but
//! the largest. The time scale is the clock of the lowest rank of the part.
//!
//! **Uncertainty** of a clock against that one: the spread of its residuals (their standard deviation
//! without outliers, or the median absolute one scaled to it, whichever is larger), which a rank that always
//! sees the end late cannot be told from, plus twice the standard error of its line at the ends of the run,
//! errors added in squares along the path to the time scale's clock. Where a clock has fewer than 8
//! collectives, whose residuals say little, it is at least the duration of the shortest one: nobody's part
//! ends before the last arrival, so an offset cannot be wrong by more. The difference between two clocks is
//! uncertain by the sum of both ([`Alignment::between_ns`]).
//!
//! Messages check the fit ([`OrderCheck`]): a receive cannot end before its send began.

mod graph;
mod mapping;
mod order;
mod refine;
mod robust;
mod sample;
mod solve;

pub use mapping::Alignment;
pub use order::{OrderCheck, OrderReport};

use graph::{Part, parts};
use mapping::ClockFit;
use refine::refine;
use robust::repeated_median;
use sample::Samples;
use std::collections::HashMap;

/// Collectives that an edge of the tree is fitted to, at most.
const EDGE_SAMPLES: usize = 101;

/// Oscillators of computers are within 100 ppm; a faster drift is an error of the fit.
const MAX_DRIFT: f64 = 500e-6;

/// Part of a rank in a collective, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockedPart {
    /// Which clock, as an index.
    pub clock: u32,
    /// The rank's arrival.
    pub start_ns: i64,
    /// The rank's end.
    pub end_ns: i64,
}

/// Collects synchronizing collectives one by one and aligns the clocks that they tie together.
///
/// ```
/// use commtrace_report::analyze::{Aligner, ClockedPart};
///
/// // Two hosts with a rank each; the second one's clock is 5 ms ahead.
/// let mut aligner = Aligner::new(vec![1, 1]);
/// for k in 0..20_i64 {
///     let part = |clock, ahead_ns: i64| ClockedPart {
///         clock,
///         start_ns: k * 1_000_000 + ahead_ns,
///         end_ns: k * 1_000_000 + 400_000 + ahead_ns,
///     };
///     aligner.add(0, &[part(0, 0), part(1, 5_000_000)]);
/// }
/// let alignment = aligner.finish();
/// assert_eq!(alignment.to_common_ns(1, 12_345_678), 7_345_678);
/// assert!(alignment.is_aligned(1));
/// ```
#[derive(Debug)]
pub struct Aligner {
    /// Number of ranks of each clock.
    ranks: Vec<u32>,
    communicators: HashMap<u64, Samples>,
    /// Ends kept, of all communicators.
    kept: usize,
    max_kept: usize,
}

impl Aligner {
    /// An aligner of `ranks.len()` clocks, which are in order of their lowest rank and have so many ranks
    /// each.
    pub fn new(ranks: Vec<u32>) -> Self {
        Self::with_max_kept(ranks, 1 << 20)
    }

    /// As [`new`](Self::new), keeping at most about `max_kept` ends (8 bytes each) of all collectives. At
    /// most 512 collectives of a communicator are kept anyway.
    pub fn with_max_kept(ranks: Vec<u32>, max_kept: usize) -> Self {
        Self { ranks, communicators: HashMap::new(), kept: 0, max_kept: max_kept.max(1024) }
    }

    /// Adds a synchronizing collective of `communicator` (any number that tells them apart). Collectives of
    /// one communicator should come in order.
    ///
    /// Of several ranks on one clock, the median end counts. Parts on clocks that do not exist are ignored.
    pub fn add(&mut self, communicator: u64, parts: &[ClockedPart]) {
        let Some(first) = parts.first() else { return };
        if parts.iter().all(|part| part.clock == first.clock) {
            return;
        }
        let samples = self.communicators.entry(communicator).or_default();
        let before = samples.kept();
        samples.add(parts, self.ranks.len());
        self.kept = self.kept + samples.kept() - before;
        while self.kept > self.max_kept && self.communicators.values().any(Samples::can_thin) {
            self.communicators.values_mut().for_each(Samples::thin);
            self.kept = self.communicators.values().map(Samples::kept).sum();
        }
    }

    /// Aligns the clocks.
    pub fn finish(self) -> Alignment {
        let mut communicators: Vec<(u64, Samples)> = self.communicators.into_iter().collect();
        // The order of a hash map must not show in the result.
        communicators.sort_unstable_by_key(|one| one.0);
        let samples: Vec<Samples> = communicators.into_iter().map(|one| one.1).collect();
        let parts = parts(&samples, self.ranks.len());
        let mut alignment = Alignment::apart(self.ranks.len());
        for (part, number) in parts.iter().zip(0..) {
            align_part(part, number, &samples, alignment.fits_mut());
        }
        let ranks = |part: &Part| -> u64 {
            part.clocks.iter().filter_map(|&clock| self.ranks.get(clock)).map(|&ranks| u64::from(ranks)).sum()
        };
        // Of equally large parts, the one with the lowest rank.
        let largest = parts.iter().enumerate().rev().max_by_key(|(_, part)| ranks(part));
        alignment.set_main(largest.map_or(0, |largest| largest.0 as u32));
        alignment
    }
}

/// Aligns the clocks of one part with its first one.
fn align_part(part: &Part, number: u32, samples: &[Samples], fits: &mut [ClockFit]) {
    for &clock in &part.clocks {
        if let Some(fit) = fits.get_mut(clock) {
            fit.part = number;
        }
    }
    for edge in &part.edges {
        let Some(samples) = samples.get(edge.communicator) else { continue };
        if let Some(fit) = join(samples, edge.parent, edge.child, fits)
            && let Some(child) = fits.get_mut(edge.child)
        {
            *child = ClockFit { part: number, ..fit };
        }
    }
    refine(part, samples, fits);
}

/// The clock `child` against `parent`, which is aligned already, from the collectives that both have.
fn join(samples: &Samples, parent: usize, child: usize, fits: &[ClockFit]) -> Option<ClockFit> {
    let parent_fit = fits.get(parent)?;
    let both = samples.ends_of(parent, child);
    let first = *both.first()?;
    let mut fit = ClockFit {
        anchor_local_ns: first.1,
        anchor_common_ns: parent_fit.to_common_ns(first.0),
        ..ClockFit::default()
    };
    let every = both.len().div_ceil(EDGE_SAMPLES).max(1);
    let mut points: Vec<(f64, f64)> = both
        .iter()
        .step_by(every)
        .map(|&(parent_end, child_end)| {
            let since = i128::from(child_end) - i128::from(fit.anchor_local_ns);
            let common = i128::from(parent_fit.to_common_ns(parent_end)) - i128::from(fit.anchor_common_ns);
            (since as f64, (since - common) as f64)
        })
        .collect();
    let line = repeated_median(&mut points, MAX_DRIFT);
    fit.ahead_ns = line.at_zero;
    fit.rate = line.slope;
    Some(fit)
}

#[cfg(test)]
mod tests;
