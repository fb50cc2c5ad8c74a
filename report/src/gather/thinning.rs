//! Which steps a sample keeps: by a hash of the step's number, so that all ranks keep the same ones.

/// Keeps one in `stride` steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thinning {
    /// A power of two.
    stride: u64,
}

impl Thinning {
    /// Keeps every step.
    pub(crate) const NONE: Self = Self { stride: 1 };

    /// Keeps one step in `stride`, or in the next power of two.
    pub(crate) fn new(stride: u64) -> Self {
        Self { stride: stride.clamp(1, 1 << 62).next_power_of_two() }
    }

    /// One in how many steps is kept.
    pub(crate) fn stride(self) -> u64 {
        self.stride
    }

    /// Half of what this keeps.
    pub(crate) fn doubled(self) -> Self {
        Self::new(self.stride.saturating_mul(2))
    }

    /// Whether `step` is kept. What a larger stride keeps, a smaller one keeps as well.
    pub(crate) fn keeps(self, step: i64) -> bool {
        mix(step as u64) & (self.stride - 1) == 0
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators,
/// 2014): neighbouring numbers get independent low bits, so that no period of the training (an evaluation
/// every tenth step, say) is preferred.
fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_doubling_keeps_about_half_of_the_same_steps() {
        let mut thinning = Thinning::NONE;
        assert!((-5..5).all(|step| thinning.keeps(step)));
        let mut kept: Vec<i64> = (0..100_000).collect();
        for _ in 0..6 {
            thinning = thinning.doubled();
            let fewer: Vec<i64> = (0..100_000).filter(|&step| thinning.keeps(step)).collect();
            assert!(fewer.iter().all(|step| kept.binary_search(step).is_ok()));
            let share = fewer.len() as f64 / kept.len() as f64;
            assert!((0.45..0.55).contains(&share), "stride {}: {share}", thinning.stride());
            // Steps that are a multiple of ten are not preferred.
            let tenth = fewer.iter().filter(|&step| step % 10 == 0).count() as f64 / fewer.len() as f64;
            assert!((0.07..0.13).contains(&tenth), "stride {}: {tenth}", thinning.stride());
            kept = fewer;
        }
    }
}
