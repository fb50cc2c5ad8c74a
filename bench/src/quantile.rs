//! Quantiles of a few samples.

/// The `q`-quantile of `samples`, 0.5 being the median: linear between the two nearest samples, as NumPy's and PyTorch's
/// `quantile` by default. In the samples' unit.
///
/// `None` if there are no samples, if one of them is not finite, or if `q` is not from 0 to 1.
///
/// ```
/// use commtrace_bench::quantile;
/// assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.5), Some(2.5));
/// assert_eq!(quantile(&[], 0.5), None);
/// ```
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) || samples.iter().any(|sample| !sample.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q * sorted.len().checked_sub(1)? as f64;
    let below = *sorted.get(at.floor() as usize)?;
    let above = *sorted.get(at.ceil() as usize)?;
    Some(below + (above - below) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of `numpy.quantile`.
    #[test]
    fn samples_made_by_hand() {
        let twenty: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(quantile(&twenty, 0.5), Some(10.5));
        assert!((quantile(&twenty, 0.95).unwrap() - 19.05).abs() < 1e-12);
        assert_eq!(quantile(&twenty, 0.0), Some(1.0));
        assert_eq!(quantile(&twenty, 1.0), Some(20.0));
        assert_eq!(quantile(&[7.0], 0.95), Some(7.0));
    }

    #[test]
    fn what_has_no_quantile() {
        assert_eq!(quantile(&[1.0, f64::NAN], 0.5), None);
        assert_eq!(quantile(&[1.0, f64::INFINITY], 0.5), None);
        for q in [-0.1, 1.1, f64::NAN] {
            assert_eq!(quantile(&[1.0], q), None);
        }
    }
}
