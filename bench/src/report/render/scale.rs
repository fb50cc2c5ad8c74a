//! A logarithmic axis.

/// From values to positions, logarithmically.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Log {
    /// An axis that holds all `values`, with some room around them, from position `from` to `to`. `None` if no value is
    /// a positive finite number.
    pub fn around(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let logs = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
        let (low, high) =
            logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
        if low > high {
            return None;
        }
        let room = ((high - low) * 0.06).max(0.08);
        Some(Self { low: low - room, high: high + room, from, to })
    }

    /// Where `value` lies; `None` beyond the axis.
    pub fn at(&self, value: f64) -> Option<f64> {
        let share = (value.log10() - self.low) / (self.high - self.low);
        (0.0..=1.0).contains(&share).then_some(self.from + share * (self.to - self.from))
    }

    /// Values for marks, few enough to be written out: steps of `base`, or of its powers.
    pub fn ticks(&self, base: f64, most: usize) -> Vec<f64> {
        let step = base.log10();
        let (first, last) = ((self.low / step).ceil() as i32, (self.high / step).floor() as i32);
        let count = usize::try_from(last - first + 1).unwrap_or(0);
        let stride = count.div_ceil(most.max(1)).max(1);
        let ticks: Vec<f64> = (first..=last).step_by(stride).map(|power| base.powi(power)).collect();
        if ticks.len() >= 2 || base < 2.0 {
            return ticks;
        }
        // Within one power: 1, 2 and 5 of each.
        let decade = |power: i32| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power));
        let powers = self.low.floor() as i32..=self.high.ceil() as i32;
        powers.flat_map(decade).filter(|value| self.at(*value).is_some()).take(most).collect()
    }

    /// `count` values from the least to the greatest of the axis.
    pub fn along(&self, count: u32) -> impl Iterator<Item = f64> + use<> {
        let (low, step) = (self.low, (self.high - self.low) / f64::from(count.max(2) - 1));
        (0..count).map(move |at| 10_f64.powf(low + step * f64::from(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decade_is_as_long_as_any_other() {
        let axis = Log::around([1.0, 10.0, 100.0, f64::NAN, 0.0].into_iter(), 0.0, 112.0).unwrap();
        let at: Vec<f64> = [1.0, 10.0, 100.0].iter().map(|value| axis.at(*value).unwrap()).collect();
        assert!((at[1] - at[0] - 50.0).abs() < 1e-9 && (at[2] - at[1] - 50.0).abs() < 1e-9, "{at:?}");
        assert_eq!((axis.at(0.0), axis.at(1e4)), (None, None));
        assert_eq!(axis.ticks(10.0, 8), [1.0, 10.0, 100.0]);
    }

    #[test]
    fn one_value_has_an_axis_and_none_has_not() {
        let axis = Log::around([3.0].into_iter(), 0.0, 100.0).unwrap();
        assert!((axis.at(3.0).unwrap() - 50.0).abs() < 1e-9);
        assert_eq!(axis.ticks(10.0, 8), Vec::<f64>::new());
        assert!(Log::around([0.0, f64::INFINITY].into_iter(), 0.0, 1.0).is_none());
        let wide = Log::around([1.0, 1e12].into_iter(), 0.0, 1.0).unwrap();
        assert!(wide.ticks(2.0, 6).len() <= 6);
    }
}
