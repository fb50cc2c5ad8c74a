//! A step in the times: two lines where one does not fit.

use super::curve::ONE_LINE_BOUND;
use super::fit::{Fit, Sample, fit};
use serde::{Deserialize, Serialize};

/// Payloads on each side of a step: two would make any line fit.
const LEAST_PER_SIDE: usize = 3;

/// Where the times change from one line to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// The last payload of the first line, in bytes.
    pub below_bytes: u64,
    /// The first payload of the second line, in bytes.
    pub above_bytes: u64,
    /// The fit up to there.
    pub below: Fit,
    /// The fit from there on.
    pub above: Fit,
}

/// The step after which two lines have the least of largest errors; `None` if two lines do not fit either.
///
/// `samples` are in ascending order of payload.
pub(super) fn find(samples: &[Sample]) -> Option<Step> {
    let mut best: Option<(f64, Step)> = None;
    for at in LEAST_PER_SIDE..samples.len() {
        let (low, high) = samples.split_at(at);
        let (Some(last), Some(first)) = (low.last(), high.first()) else { continue };
        // Several records of one payload stay on one side.
        if last.bytes == first.bytes {
            continue;
        }
        let (Some(below), Some(above)) = (fit(low), fit(high)) else { continue };
        let errors = below.max_relative_error.zip(above.max_relative_error);
        let Some(error) = errors.map(|(below, above)| below.max(above)) else { continue };
        if error <= ONE_LINE_BOUND && best.as_ref().is_none_or(|(least, _)| error < *least) {
            let (below_bytes, above_bytes) = (last.bytes as u64, first.bytes as u64);
            best = Some((error, Step { below_bytes, above_bytes, below, above }));
        }
    }
    best.map(|(_, step)| step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(count: u32, ms: impl Fn(f64) -> f64) -> Vec<Sample> {
        (0..count)
            .map(|power| 1024.0 * 4_f64.powi(power as i32))
            .map(|bytes| Sample { bytes, ms: ms(bytes) })
            .collect()
    }

    #[test]
    fn a_change_of_protocol_is_found_where_it_is() {
        let switched = |bytes: f64| {
            if bytes < 200_000.0 { 0.010 + bytes / 2e6 } else { 0.5 + bytes / 50e6 }
        };
        let samples = times(10, switched);
        let one = fit(&samples).unwrap();
        assert!(one.max_relative_error.unwrap() > ONE_LINE_BOUND, "{one:?}");
        let step = find(&samples).unwrap();
        assert_eq!((step.below_bytes, step.above_bytes), (65_536, 262_144));
        assert!((step.below.latency_ms - 0.010).abs() < 1e-6, "{step:?}");
        assert!((step.above.bandwidth_gbps.unwrap() - 50.0).abs() < 1e-3, "{step:?}");
    }

    #[test]
    fn few_payloads_and_disorder_have_no_step() {
        assert_eq!(find(&times(5, |bytes| if bytes < 10_000.0 { 0.01 } else { 1.0 })), None);
        let mut disorder = times(12, |_| 1.0);
        for (at, sample) in disorder.iter_mut().enumerate() {
            sample.ms = if at % 2 == 0 { 1.0 } else { 10.0 };
        }
        assert_eq!(find(&disorder), None);
    }
}
