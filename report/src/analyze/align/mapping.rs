//! From a clock's time to the common one and back.

/// One clock against the time scale of its part.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ClockFit {
    /// Number of the connected part.
    pub part: u32,
    /// An instant on the clock, and nearly the same on the time scale. Everything else is small beside
    /// them, so that nothing is lost in an `f64`.
    pub anchor_local_ns: i64,
    pub anchor_common_ns: i64,
    /// By how much the clock is ahead at the anchor, beyond the difference of the two.
    pub ahead_ns: f64,
    /// How much further ahead it gets per unit of its own time.
    pub rate: f64,
    /// Against the time scale's clock.
    pub uncertainty_ns: f64,
}

impl ClockFit {
    /// What the time scale shows when the clock shows `local_ns`.
    #[inline]
    pub fn to_common_ns(self, local_ns: i64) -> i64 {
        if self.is_identity() {
            return local_ns;
        }
        self.fast_common_ns(local_ns).unwrap_or_else(|| self.wide_common_ns(local_ns))
    }

    #[inline]
    fn to_local_ns(self, common_ns: i64) -> i64 {
        if self.is_identity() {
            return common_ns;
        }
        self.fast_local_ns(common_ns).unwrap_or_else(|| self.wide_local_ns(common_ns))
    }

    /// As [`wide_common_ns`](Self::wide_common_ns), unless an intermediate result may be beyond `i64`, which
    /// takes more than a hundred years.
    fn fast_common_ns(self, local_ns: i64) -> Option<i64> {
        let since = local_ns.checked_sub(self.anchor_local_ns)?;
        let ahead = round(self.ahead_ns + self.rate * since as f64)?;
        self.anchor_common_ns.checked_add(since)?.checked_sub(ahead)
    }

    fn fast_local_ns(self, common_ns: i64) -> Option<i64> {
        let since = common_ns.checked_sub(self.anchor_common_ns)?;
        let ahead = round((self.ahead_ns + self.rate * since as f64) / (1.0 - self.rate))?;
        self.anchor_local_ns.checked_add(since)?.checked_add(ahead)
    }

    fn wide_common_ns(self, local_ns: i64) -> i64 {
        let since = i128::from(local_ns) - i128::from(self.anchor_local_ns);
        let ahead = self.ahead_ns + self.rate * since as f64;
        clamp(i128::from(self.anchor_common_ns) + since - ahead.round() as i128)
    }

    fn wide_local_ns(self, common_ns: i64) -> i64 {
        let since = i128::from(common_ns) - i128::from(self.anchor_common_ns);
        let ahead = (self.ahead_ns + self.rate * since as f64) / (1.0 - self.rate);
        clamp(i128::from(self.anchor_local_ns) + since + ahead.round() as i128)
    }

    fn is_identity(self) -> bool {
        self.anchor_local_ns == self.anchor_common_ns && self.ahead_ns == 0.0 && self.rate == 0.0
    }
}

/// The nearest whole number, halves away from zero, as [`f64::round`]: that is a call where the processor's
/// oldest model is compiled for. `None` of what is not a number or not small enough to be exact.
fn round(value: f64) -> Option<i64> {
    /// From here on, an `f64` has no digits behind the point.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    if value.is_nan() || value.abs() >= WHOLE {
        return None;
    }
    let whole = value as i64;
    let rest = value - whole as f64;
    Some(whole + i64::from(rest >= 0.5) - i64::from(rest <= -0.5))
}

fn clamp(ns: i128) -> i64 {
    ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// How clocks relate: the result of [`Aligner`](super::Aligner). Clocks are named by their index; one that
/// does not exist is taken as the time scale itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Alignment {
    fits: Vec<ClockFit>,
    main: u32,
}

impl Alignment {
    /// `clocks` clocks that all show the same time.
    pub fn same(clocks: usize) -> Self {
        Self { fits: vec![ClockFit::default(); clocks], main: 0 }
    }

    /// `clocks` clocks of which nothing is known.
    pub(super) fn apart(clocks: usize) -> Self {
        let fits = (0..clocks).zip(0..).map(|(_, part)| ClockFit { part, ..ClockFit::default() });
        Self { fits: fits.collect(), main: 0 }
    }

    pub(super) fn fits_mut(&mut self) -> &mut [ClockFit] {
        &mut self.fits
    }

    pub(super) fn set_main(&mut self, part: u32) {
        self.main = part;
    }

    /// Number of clocks.
    pub fn clocks(&self) -> usize {
        self.fits.len()
    }

    /// Number of the connected part that the clock belongs to; times of different parts cannot be compared.
    pub fn part(&self, clock: u32) -> u32 {
        self.fit(clock).part
    }

    /// Number of connected parts.
    pub fn parts(&self) -> u32 {
        self.fits.iter().map(|fit| fit.part + 1).max().unwrap_or(0)
    }

    /// Whether the clock belongs to the part with most ranks.
    pub fn is_aligned(&self, clock: u32) -> bool {
        self.fit(clock).part == self.main
    }

    /// The instant at which `clock` shows `local_ns`, on the time scale of its part: the clock of the
    /// part's lowest rank. Saturates at the ends of `i64`.
    pub fn to_common_ns(&self, clock: u32, local_ns: i64) -> i64 {
        self.fit(clock).to_common_ns(local_ns)
    }

    /// What `clock` shows at the instant `common_ns` of its part's time scale: the inverse of
    /// [`to_common_ns`](Self::to_common_ns), to a nanosecond.
    pub fn to_local_ns(&self, clock: u32, common_ns: i64) -> i64 {
        self.fit(clock).to_local_ns(common_ns)
    }

    /// By how much `clock` is ahead of its part's time scale at the instant `common_ns`.
    pub fn offset_ns(&self, clock: u32, common_ns: i64) -> i128 {
        i128::from(self.to_local_ns(clock, common_ns)) - i128::from(common_ns)
    }

    /// By how many millionths `clock` runs faster than its part's time scale.
    pub fn drift_ppm(&self, clock: u32) -> f64 {
        let rate = self.fit(clock).rate;
        rate / (1.0 - rate) * 1e6
    }

    /// How far off [`to_common_ns`](Self::to_common_ns) may be; 0 for the clock of the time scale.
    pub fn uncertainty_ns(&self, clock: u32) -> u64 {
        // Rounded up: a claim must be larger.
        self.fit(clock).uncertainty_ns.ceil() as u64
    }

    /// How far off the difference of an instant on one clock and one on the other may be: 0 on one clock,
    /// else the sum of both uncertainties; `None` if nothing ties the two together.
    pub fn between_ns(&self, one: u32, other: u32) -> Option<u64> {
        if one == other {
            return Some(0);
        }
        let sum = || self.uncertainty_ns(one).saturating_add(self.uncertainty_ns(other));
        (self.part(one) == self.part(other)).then(sum)
    }

    /// Makes the difference of two clocks as uncertain as `ns`. That of the time scale's clock stays 0.
    pub(super) fn widen(&mut self, one: u32, other: u32, ns: f64) {
        let missing = ns - self.fit(one).uncertainty_ns - self.fit(other).uncertainty_ns;
        let uncertain = |clock: &u32| self.fit(*clock).uncertainty_ns > 0.0;
        let clocks: Vec<u32> = [one, other].into_iter().filter(uncertain).collect();
        if missing <= 0.0 {
            return;
        }
        for &clock in &clocks {
            if let Some(fit) = self.fits.get_mut(clock as usize) {
                fit.uncertainty_ns += missing / clocks.len() as f64;
            }
        }
    }

    fn fit(&self, clock: u32) -> ClockFit {
        let missing = ClockFit { part: self.main, ..ClockFit::default() };
        self.fits.get(clock as usize).copied().unwrap_or(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Instants near each other, and anywhere.
    fn instant() -> impl Strategy<Value = i64> {
        prop_oneof![-10_000..10_000_i64, 0..(1_i64 << 60), any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
    }

    proptest! {
        #[test]
        fn in_64_bits_it_is_the_same(
            anchors in (instant(), instant()),
            ahead in prop_oneof![Just(0.0), -9.0..9.0, (-40..40_i32).prop_map(|n| f64::from(n) / 2.0), -1e19..1e19],
            rate in prop_oneof![Just(0.0), -500e-6..500e-6, (-3..3_i32).prop_map(|n| f64::from(n) / 1024.0)],
            at in instant(),
        ) {
            let fit = ClockFit {
                anchor_local_ns: anchors.0,
                anchor_common_ns: anchors.1,
                ahead_ns: ahead,
                rate,
                ..ClockFit::default()
            };
            let near = (anchors.0.wrapping_add(at % 100_000), anchors.1.wrapping_add(at % 100_000));
            for (local, common) in [(at, at), near] {
                if let Some(fast) = fit.fast_common_ns(local) {
                    prop_assert_eq!(fast, fit.wide_common_ns(local));
                }
                if let Some(fast) = fit.fast_local_ns(common) {
                    prop_assert_eq!(fast, fit.wide_local_ns(common));
                }
            }
        }

        #[test]
        fn rounding_is_that_of_the_standard_library(
            value in prop_oneof![any::<f64>(), -1e6..1e6, (-4000..4000_i32).prop_map(|n| f64::from(n) / 4.0)],
        ) {
            if let Some(rounded) = round(value) {
                prop_assert_eq!(rounded as f64, value.round());
            } else {
                prop_assert!(value.abs() >= 1e15);
            }
        }
    }

    #[test]
    fn there_and_back_is_exact_to_a_nanosecond_over_a_year() {
        let fit = ClockFit {
            anchor_local_ns: 1_700_000_000_123_456_789,
            anchor_common_ns: 7_000_000_001,
            ahead_ns: -12_345.6,
            rate: 97.3e-6,
            ..ClockFit::default()
        };
        let year = 365 * 86_400 * 1_000_000_000;
        for since in [-year, -1_000_003, -1, 0, 1, 999_999_937, 86_400_000_000_007, year] {
            let common = fit.anchor_common_ns + since;
            let back = fit.to_common_ns(fit.to_local_ns(common));
            assert!((back - common).abs() <= 1, "{since}: {back} for {common}");
        }
    }

    #[test]
    fn the_ends_of_i64_do_not_overflow() {
        let fit = ClockFit {
            anchor_local_ns: i64::MAX,
            anchor_common_ns: i64::MIN,
            ahead_ns: 1.0,
            rate: -1e-4,
            ..ClockFit::default()
        };
        assert_eq!(fit.to_common_ns(i64::MIN), i64::MIN);
        assert_eq!(fit.to_local_ns(i64::MAX), i64::MAX);
    }

    #[test]
    fn clocks_that_are_the_same_need_no_uncertainty() {
        let same = Alignment::same(3);
        assert_eq!(same.to_common_ns(2, i64::MAX), i64::MAX);
        assert_eq!((same.between_ns(0, 2), same.parts()), (Some(0), 1));
        assert_eq!(Alignment::apart(3).between_ns(0, 2), None);
    }
}
