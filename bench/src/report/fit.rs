//! The latency-bandwidth model, fitted to measured times.
//!
//! Source of the model: chapter 47, `single_collective_time = startup_latency + payload_bytes /
//! effective_bandwidth`.

use serde::{Deserialize, Serialize};

/// One measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Payload in bytes; more than 0.
    pub bytes: f64,
    /// Time in milliseconds; more than 0.
    pub ms: f64,
}

/// Startup latency and bandwidth that explain measured times best.
///
/// Neither is negative. A fit of two payloads goes through both, and says nothing of how well the model holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fit {
    /// Startup latency in milliseconds: the time of a payload of no bytes.
    pub latency_ms: f64,
    /// Bandwidth in 10^9 bytes of payload per second; `None` if times do not grow with the payload.
    pub bandwidth_gbps: Option<f64>,
    /// Number of payloads that it rests on.
    pub points: u32,
    /// Largest distance between a measured time and the fit's, as a share of the measured one. `None` with two
    /// payloads, which the fit always meets.
    pub max_relative_error: Option<f64>,
    /// The payload in bytes where that is.
    pub max_relative_error_at_bytes: Option<u64>,
    /// Least and greatest startup latency in milliseconds when any one payload is left out. `None` with two payloads.
    pub latency_range_ms: Option<[f64; 2]>,
    /// The same of the bandwidth; `None` also if a fit without one of the payloads has none.
    pub bandwidth_range_gbps: Option<[f64; 2]>,
}

impl Fit {
    /// The time of `bytes` in milliseconds.
    pub fn ms(&self, bytes: f64) -> f64 {
        self.latency_ms + self.bandwidth_gbps.map_or(0.0, |gbps| bytes / (gbps * 1e6))
    }

    /// The knee in bytes: the payload that takes as long to move as to start, so that half of the bandwidth is
    /// reached. `None` without a bandwidth.
    pub fn knee_bytes(&self) -> Option<f64> {
        self.bandwidth_gbps.map(|gbps| self.latency_ms * gbps * 1e6).filter(|knee| knee.is_finite())
    }
}

/// Fits the model to `samples`: their relative errors, squared up to a few times their usual size and linear
/// beyond (Huber), so that one odd time does not decide and short times count as much as long ones.
///
/// `None` with fewer than two different payloads. Samples that are no positive finite numbers are left out.
pub fn fit(samples: &[Sample]) -> Option<Fit> {
    let usable = |value: f64| value.is_finite() && value > 0.0;
    let samples: Vec<Sample> =
        samples.iter().copied().filter(|sample| usable(sample.bytes) && usable(sample.ms)).collect();
    let line = line(&samples)?;
    let points = payloads(&samples);
    let mut fit = Fit {
        latency_ms: line.latency,
        bandwidth_gbps: gbps(line),
        points: u32::try_from(points).unwrap_or(u32::MAX),
        max_relative_error: None,
        max_relative_error_at_bytes: None,
        latency_range_ms: None,
        bandwidth_range_gbps: None,
    };
    if points > 2 {
        let error = |sample: &Sample| line.relative_error(*sample).abs();
        let worst = samples.iter().max_by(|a, b| error(a).total_cmp(&error(b)));
        fit.max_relative_error = worst.map(error).filter(|error| error.is_finite());
        fit.max_relative_error_at_bytes = worst.map(|sample| sample.bytes as u64);
        let without = leave_one_out(&samples);
        fit.latency_range_ms = range(without.iter().map(|line| Some(line.latency)));
        fit.bandwidth_range_gbps = range(without.iter().map(|line| gbps(*line)));
    }
    Some(fit)
}

/// Time over payload: `latency + slope * bytes`, in milliseconds and milliseconds per byte.
#[derive(Debug, Clone, Copy)]
struct Line {
    latency: f64,
    slope: f64,
}

impl Line {
    fn relative_error(self, sample: Sample) -> f64 {
        (self.latency + self.slope * sample.bytes) / sample.ms - 1.0
    }
}

fn gbps(line: Line) -> Option<f64> {
    let gbps = 1e-6 / line.slope;
    gbps.is_finite().then_some(gbps)
}

/// How many different payloads there are.
fn payloads(samples: &[Sample]) -> usize {
    let mut bytes: Vec<f64> = samples.iter().map(|sample| sample.bytes).collect();
    bytes.sort_by(f64::total_cmp);
    bytes.dedup();
    bytes.len()
}

/// Errors up to this many times their usual size count in full: what is usual for Huber's weights.
const HUBER: f64 = 1.345;
/// From the median of absolute errors to the standard deviation of normally distributed ones.
const NORMAL: f64 = 1.4826;
const ROUNDS: usize = 50;

fn line(samples: &[Sample]) -> Option<Line> {
    if payloads(samples) < 2 {
        return None;
    }
    let mut weights = vec![1.0; samples.len()];
    let mut line = least_squares(samples, &weights)?;
    if samples.len() < 3 {
        return Some(line);
    }
    for _ in 0..ROUNDS {
        let errors: Vec<f64> = samples.iter().map(|sample| line.relative_error(*sample).abs()).collect();
        let usual = NORMAL * crate::quantile(&errors, 0.5)?;
        // With a perfect fit of most samples every other would be an outlier, rounding included.
        let most = HUBER * usual.max(1e-9);
        for (weight, error) in weights.iter_mut().zip(&errors) {
            *weight = if *error <= most { 1.0 } else { most / error };
        }
        let next = least_squares(samples, &weights)?;
        let moved = samples.iter().map(|sample| {
            let (a, b) = (next.relative_error(*sample), line.relative_error(*sample));
            (a - b).abs()
        });
        let settled = moved.fold(0.0, f64::max) < 1e-9;
        line = next;
        if settled {
            break;
        }
    }
    Some(line)
}

/// Least squares of the weighted relative errors with neither latency nor slope below 0.
fn least_squares(samples: &[Sample], weights: &[f64]) -> Option<Line> {
    // In units of the largest payload and with the model divided by the measured time, all numbers are near 1:
    // latency * (1 / ms) + slope * (bytes / ms) = 1.
    let largest = samples.iter().map(|sample| sample.bytes).fold(0.0, f64::max);
    let longest = samples.iter().map(|sample| sample.ms).fold(0.0, f64::max);
    let (mut aa, mut ab, mut bb, mut a, mut b) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (sample, weight) in samples.iter().zip(weights) {
        let x = longest / sample.ms;
        let y = sample.bytes / largest * x;
        aa += weight * x * x;
        ab += weight * x * y;
        bb += weight * y * y;
        a += weight * x;
        b += weight * y;
    }
    let determinant = aa * bb - ab * ab;
    let (mut latency, mut slope) = ((a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant);
    let line = |latency: f64, slope: f64| {
        let line = Line { latency: latency * longest, slope: slope * longest / largest };
        (line.latency.is_finite() && line.slope.is_finite()).then_some(line)
    };
    if !(latency.is_finite() && slope.is_finite() && determinant > 0.0) || latency < 0.0 {
        (latency, slope) = (0.0, b / bb);
    } else if slope < 0.0 {
        (latency, slope) = (a / aa, 0.0);
    }
    line(latency, slope)
}

/// The lines without each payload in turn.
fn leave_one_out(samples: &[Sample]) -> Vec<Line> {
    let mut left_out: Vec<f64> = samples.iter().map(|sample| sample.bytes).collect();
    left_out.sort_by(f64::total_cmp);
    left_out.dedup();
    left_out
        .iter()
        .filter_map(|bytes| {
            let rest: Vec<Sample> = samples.iter().copied().filter(|sample| sample.bytes != *bytes).collect();
            line(&rest)
        })
        .collect()
}

/// Least and greatest; `None` if there is none, or one is not known.
fn range(values: impl Iterator<Item = Option<f64>>) -> Option<[f64; 2]> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let greatest = values.iter().copied().max_by(f64::total_cmp)?;
    Some([least, greatest])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples(pairs: &[(f64, f64)]) -> Vec<Sample> {
        pairs.iter().map(|&(bytes, ms)| Sample { bytes, ms }).collect()
    }

    fn near(a: f64, b: f64, relative: f64) -> bool {
        (a - b).abs() <= relative * b.abs()
    }

    #[test]
    fn one_payload_has_no_fit_and_two_an_exact_one() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&samples(&[(1e6, 1.0)])), None);
        assert_eq!(fit(&samples(&[(1e6, 1.0), (1e6, 1.1), (1e6, f64::NAN)])), None);
        // 0.5 ms + 1 GB/s.
        let fit = fit(&samples(&[(1e6, 1.5), (4e6, 4.5)])).unwrap();
        assert!(near(fit.latency_ms, 0.5, 1e-9) && near(fit.bandwidth_gbps.unwrap(), 1.0, 1e-9), "{fit:?}");
        assert!(near(fit.knee_bytes().unwrap(), 0.5e6, 1e-9));
        assert_eq!((fit.points, fit.max_relative_error, fit.latency_range_ms), (2, None, None));
    }

    #[test]
    fn times_that_do_not_grow_have_no_bandwidth_and_those_from_zero_no_latency() {
        let flat = fit(&samples(&[(1e3, 0.02), (2e3, 0.019), (4e3, 0.018)])).unwrap();
        assert_eq!((flat.bandwidth_gbps, flat.knee_bytes()), (None, None));
        assert!(near(flat.latency_ms, 0.019, 0.1), "{flat:?}");
        let steep = fit(&samples(&[(1e6, 0.9), (2e6, 2.0), (4e6, 4.4)])).unwrap();
        assert_eq!(steep.latency_ms, 0.0);
        assert_eq!(steep.knee_bytes(), Some(0.0));
        assert!(near(steep.bandwidth_gbps.unwrap(), 1.0, 0.15), "{steep:?}");
    }

    #[test]
    fn one_odd_time_among_many_does_not_decide() {
        let mut all: Vec<Sample> = (0..12)
            .map(|power| 1024.0 * f64::from(1 << (2 * power)))
            .map(|bytes| Sample { bytes, ms: 0.02 + bytes / 10e6 })
            .collect();
        all[6].ms *= 3.0;
        let fit = fit(&all).unwrap();
        assert!(near(fit.latency_ms, 0.02, 0.02) && near(fit.bandwidth_gbps.unwrap(), 10.0, 0.02), "{fit:?}");
        assert!(fit.max_relative_error.unwrap() > 0.6);
        assert_eq!(fit.max_relative_error_at_bytes, Some(all[6].bytes as u64));
    }

    /// Sum of squared relative errors, the obvious way.
    fn cost(samples: &[Sample], latency: f64, slope: f64) -> f64 {
        samples.iter().map(|s| ((latency + slope * s.bytes - s.ms) / s.ms).powi(2)).sum()
    }

    proptest! {
        /// Sizes from far below to far above the knee, noise of up to 2 %: the parameters come back within 8 %.
        #[test]
        fn latency_and_bandwidth_come_back(
            latency_us in 1.0..500.0_f64,
            gbps in 0.1..500.0_f64,
            noise in prop::collection::vec(-0.02..0.02_f64, 15),
        ) {
            let knee = latency_us * gbps * 1e3;
            let samples: Vec<Sample> = noise.iter().enumerate().map(|(at, noise)| {
                let bytes = knee * 2_f64.powi(at as i32 - 7);
                Sample { bytes, ms: (latency_us / 1e3 + bytes / (gbps * 1e6)) * (1.0 + noise) }
            }).collect();
            let fit = fit(&samples).unwrap();
            prop_assert!(near(fit.latency_ms * 1e3, latency_us, 0.08), "{:?}", fit);
            prop_assert!(near(fit.bandwidth_gbps.unwrap(), gbps, 0.08), "{:?}", fit);
            prop_assert!(fit.max_relative_error.unwrap() < 0.08);
            let [least, greatest] = fit.latency_range_ms.unwrap();
            prop_assert!(least <= fit.latency_ms * 1.02 && fit.latency_ms * 0.98 <= greatest);
        }

        /// No grid point around the solution has a smaller cost than the least squares have.
        #[test]
        fn least_squares_are_least(
            times in prop::collection::vec(0.001..1000.0_f64, 2..8),
            down in 0.5..1.0_f64,
        ) {
            let samples: Vec<Sample> =
                times.iter().enumerate().map(|(at, &ms)| Sample { bytes: 1e3 * 8_f64.powi(at as i32), ms }).collect();
            let line = least_squares(&samples, &vec![1.0; samples.len()]).unwrap();
            prop_assert!(line.latency >= 0.0 && line.slope >= 0.0);
            let best = cost(&samples, line.latency, line.slope);
            let shift_latency = if line.latency == 0.0 { 1e-6 } else { line.latency * 1e-3 };
            let shift_slope = if line.slope == 0.0 { 1e-12 } else { line.slope * 1e-3 };
            for latency in [0.0, line.latency * down, line.latency, line.latency + shift_latency] {
                for slope in [0.0, line.slope * down, line.slope, line.slope + shift_slope] {
                    prop_assert!(cost(&samples, latency, slope) >= best * (1.0 - 1e-6), "{} {}", latency, slope);
                }
            }
        }

        /// Whatever the samples are, no figure is infinite or negative.
        #[test]
        fn any_samples(pairs in prop::collection::vec((any::<f64>(), any::<f64>()), 0..6)) {
            if let Some(fit) = fit(&samples(&pairs)) {
                let fits = |value: f64| value.is_finite() && value >= 0.0;
                prop_assert!(fits(fit.latency_ms) && fit.bandwidth_gbps.is_none_or(fits), "{:?}", fit);
            }
        }
    }
}
