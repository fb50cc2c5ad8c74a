//! A lower confidence bound for the imbalance between ranks.

/// Resamples drawn.
const RESAMPLES: usize = 1000;
/// At most this many numbers are added up per resample; adjacent blocks are joined until that holds.
const MAX_CELLS: usize = 1 << 18;
const SEED: u64 = 0x636f_6d6d_7472_6163;

/// What one block of steps contributes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Block {
    /// Sum of the longest rank's durations.
    pub(super) longest: f64,
    /// Sum of waits per member.
    pub(super) waits: Vec<f64>,
}

impl Block {
    /// Adds a wait of the member with this number.
    pub(super) fn add_wait(&mut self, member: usize, wait: f64) {
        if self.waits.len() <= member {
            self.waits.resize(member + 1, 0.0);
        }
        self.waits[member] += wait;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.longest += other.longest;
        if self.waits.len() < other.waits.len() {
            self.waits.resize(other.waits.len(), 0.0);
        }
        for (sum, wait) in self.waits.iter_mut().zip(&other.waits) {
            *sum += wait;
        }
    }

    /// What is left if `other`, which is part of it, is taken away.
    fn without(&self, other: &Self) -> Self {
        let others = other.waits.iter().copied().chain(std::iter::repeat(0.0));
        Self {
            longest: self.longest - other.longest,
            waits: self.waits.iter().zip(others).map(|(sum, wait)| sum - wait).collect(),
        }
    }

    /// (largest − smallest sum of waits) / sum of the longest durations, 0 to 1.
    pub(super) fn imbalance(&self) -> f64 {
        let largest = self.waits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let smallest = self.waits.iter().copied().fold(f64::INFINITY, f64::min);
        if self.longest > 0.0 && largest > smallest {
            ((largest - smallest) / self.longest).min(1.0)
        } else {
            0.0
        }
    }
}

/// Joins `count` adjacent blocks each.
pub(super) fn join(blocks: &[Block], count: usize) -> Vec<Block> {
    blocks
        .chunks(count.max(1))
        .map(|chunk| {
            let mut joined = Block::default();
            chunk.iter().for_each(|block| joined.add(block));
            joined
        })
        .collect()
}

/// Lower 95 % bound of the imbalance over `blocks` of `members` ranks; `None` for fewer than two blocks.
///
/// The lower end of a 95 % interval by the basic ("reverse percentile") bootstrap: with θ̂ the imbalance
/// of all blocks and θ* that of blocks drawn with replacement, 2θ̂ − q97.5(θ*). A largest-minus-smallest
/// is biased upward, since noise alone makes one rank the latest; drawing again adds that bias once more,
/// and the reflection takes it off. The plain percentile q2.5(θ*) would carry it twice and claim
/// imbalance where there is only noise (A. C. Davison, D. V. Hinkley, Bootstrap Methods and their
/// Application, 1997, section 5.2). Two corrections keep few or odd steps from claiming too much:
///
/// - for n blocks the distance from θ̂ is stretched by √(n/(n−1)) and by Student's quantile over the
///   normal one, without which intervals of small samples are too narrow (T. C. Hesterberg, What Teachers
///   Should Know About the Bootstrap, The American Statistician 69, 2015);
/// - the bound is at most the imbalance that is left without any one block: a single stall, which
///   resampling cannot tell from a habit, is not "the same rank being late".
///
/// The result is clamped to 0..1. The draws are the same each time, so that a report can be reproduced.
pub(super) fn lower_bound(blocks: &[Block], members: usize) -> Option<f64> {
    let most = (MAX_CELLS / members.max(1)).max(16);
    let joined = join(blocks, blocks.len().div_ceil(most));
    if joined.len() < 2 {
        return None;
    }
    let mut all = Block::default();
    joined.iter().for_each(|block| all.add(block));
    let estimate = all.imbalance();

    let mut random = SplitMix64(SEED);
    let mut drawn = Block::default();
    let mut estimates: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.longest = 0.0;
            drawn.waits.clear();
            drawn.waits.resize(all.waits.len(), 0.0);
            for _ in 0..joined.len() {
                drawn.add(&joined[random.below(joined.len())]);
            }
            drawn.imbalance()
        })
        .collect();
    estimates.sort_unstable_by(f64::total_cmp);
    let distance = estimates[RESAMPLES * 975 / 1000 - 1] - estimate;
    let bound = estimate - distance * small_sample_stretch(joined.len());
    let without_one = joined.iter().map(|block| all.without(block).imbalance()).fold(f64::INFINITY, f64::min);
    Some(bound.min(without_one).clamp(0.0, 1.0))
}

/// √(n/(n−1)) · t/z, with t and z the 97.5 % quantiles of Student's distribution with n−1 degrees of
/// freedom and of the normal one. t by its expansion in 1/(n−1) (Abramowitz and Stegun, 26.7.5).
fn small_sample_stretch(blocks: usize) -> f64 {
    const Z: f64 = 1.959_964;
    let count = blocks as f64;
    let freedom = count - 1.0;
    let terms = [
        (Z.powi(3) + Z) / 4.0,
        (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0,
        (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0,
    ];
    let t = Z + terms[0] / freedom + terms[1] / freedom.powi(2) + terms[2] / freedom.powi(3);
    (count / freedom).sqrt() * t / Z
}

/// S. Vigna's SplitMix64: small, and good enough to draw blocks.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, by the multiply-shift method.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks in which a rank drawn at random (never the planted one) comes late by about `noise`, and
    /// rank 0 by `lag` more: everyone else waits for the latest.
    fn blocks(count: usize, ranks: usize, noise: f64, lag: f64, seed: u64) -> Vec<Block> {
        let mut random = SplitMix64(seed);
        let mut unit = || random.next() as f64 / u64::MAX as f64;
        (0..count)
            .map(|_| {
                // Exponential delays: scheduling noise has a long tail.
                let arrivals: Vec<f64> = (0..ranks)
                    .map(|rank| -noise * (1.0 - unit()).max(1e-12).ln() + if rank == 0 { lag } else { 0.0 })
                    .collect();
                let last = arrivals.iter().copied().fold(0.0, f64::max);
                let waits: Vec<f64> = arrivals.iter().map(|arrival| last - arrival).collect();
                let longest = 1.0 + waits.iter().copied().fold(0.0, f64::max);
                Block { longest, waits }
            })
            .collect()
    }

    #[test]
    fn noise_alone_is_not_imbalance() {
        let (mut above, mut ratios_above, mut cases) = (0, 0, 0);
        for seed in 0..100 {
            for (count, ranks) in [(5, 4), (5, 8), (10, 2), (20, 4), (100, 8)] {
                let blocks = blocks(count, ranks, 1.0, 0.0, seed * 7 + count as u64);
                ratios_above += usize::from(join(&blocks, count)[0].imbalance() > 0.20);
                above += usize::from(lower_bound(&blocks, ranks).is_some_and(|bound| bound > 0.20));
                cases += 1;
            }
        }
        // A 95 % bound may fail in 5 % of the cases; the ratio itself does in every second.
        assert!(above * 20 <= cases, "{above} of {cases} above 0.20");
        assert!(ratios_above * 3 > cases, "{ratios_above} of {cases}: too little noise for a test");
    }

    #[test]
    fn a_single_stall_is_not_a_habit() {
        let mut blocks = vec![Block { longest: 2.0, waits: vec![0.5, 0.5, 0.5] }; 20];
        blocks[7] = Block { longest: 300.0, waits: vec![290.0, 0.0, 290.0] };
        assert!(join(&blocks, 20)[0].imbalance() > 0.8);
        assert_eq!(lower_bound(&blocks, 3), Some(0.0));
    }

    #[test]
    fn students_quantile() {
        // t tables: 2.776 for 4 degrees of freedom, 2.045 for 29.
        assert!((small_sample_stretch(5) - 1.25_f64.sqrt() * 2.776 / 1.960).abs() < 0.01);
        assert!((small_sample_stretch(30) - (30.0_f64 / 29.0).sqrt() * 2.045 / 1.960).abs() < 0.001);
    }

    #[test]
    fn a_planted_lag_is_found() {
        for seed in 0..50 {
            let blocks = blocks(30, 4, 0.2, 2.0, seed);
            let bound = lower_bound(&blocks, 4).unwrap_or_default();
            assert!(bound > 0.20, "seed {seed}: {bound}");
        }
    }

    #[test]
    fn the_bound_is_below_the_estimate_and_reproducible() {
        let blocks = blocks(30, 4, 0.2, 2.0, 1);
        let estimate = join(&blocks, blocks.len())[0].imbalance();
        let bound = lower_bound(&blocks, 4);
        assert!(bound.is_some_and(|bound| bound < estimate && bound > 0.0));
        assert_eq!(bound, lower_bound(&blocks, 4));
    }

    #[test]
    fn equal_blocks_leave_no_doubt() {
        let block = Block { longest: 10.0, waits: vec![4.0, 0.0] };
        let bound = lower_bound(&vec![block.clone(); 10], 2).unwrap_or_default();
        assert!((bound - 0.4).abs() < 1e-12, "{bound}");
        assert_eq!(lower_bound(&[block], 2), None);
        assert_eq!(lower_bound(&[], 2), None);
    }
}
