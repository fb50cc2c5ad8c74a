//! Estimates that outliers do not move.

/// Median absolute deviation to standard deviation, for normal errors.
pub(super) const MAD_TO_SIGMA: f64 = 1.4826;

/// A line through points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    /// Its value at 0.
    pub at_zero: f64,
    /// Its slope.
    pub slope: f64,
}

/// The (upper) median; 0 of nothing. Reorders `values`.
pub(super) fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// The line of repeated medians: of each point, the median slope to the others; of these, the median. Up to
/// half of the points may be anywhere (A. F. Siegel, Robust regression using repeated medians, Biometrika
/// 69, 1982). The slope is limited to `±max_slope`. Takes time with the square of the number of points;
/// reorders them.
pub(super) fn repeated_median(points: &mut [(f64, f64)], max_slope: f64) -> Line {
    let mut slopes = Vec::with_capacity(points.len());
    let mut of_one = Vec::with_capacity(points.len());
    for (index, one) in points.iter().enumerate() {
        of_one.clear();
        let others = points.iter().enumerate().filter(|(other, point)| *other != index && point.0 != one.0);
        of_one.extend(others.map(|(_, point)| (point.1 - one.1) / (point.0 - one.0)));
        if !of_one.is_empty() {
            slopes.push(median(&mut of_one));
        }
    }
    // Of two points, the difference may be all noise.
    let slope = if points.len() < 3 { 0.0 } else { median(&mut slopes).clamp(-max_slope, max_slope) };
    let mut at_zero: Vec<f64> = points.iter().map(|point| point.1 - slope * point.0).collect();
    Line { at_zero: median(&mut at_zero), slope }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_through_two_fifths_of_outliers() {
        let mut points: Vec<(f64, f64)> =
            (0..100).map(|x| (f64::from(x), 3.0 + 0.25 * f64::from(x))).collect();
        for (index, point) in points.iter_mut().enumerate() {
            if index % 5 < 2 {
                point.1 += 1e6 * (1.0 + index as f64);
            }
        }
        let line = repeated_median(&mut points, 1.0);
        assert!((line.slope - 0.25).abs() < 1e-9 && (line.at_zero - 3.0).abs() < 1e-6, "{line:?}");
    }

    #[test]
    fn few_points_and_points_at_one_place_have_no_slope() {
        assert_eq!(repeated_median(&mut [], 1.0), Line { at_zero: 0.0, slope: 0.0 });
        assert_eq!(repeated_median(&mut [(5.0, 7.0)], 1.0), Line { at_zero: 7.0, slope: 0.0 });
        assert_eq!(repeated_median(&mut [(5.0, 7.0); 4], 1.0), Line { at_zero: 7.0, slope: 0.0 });
        let steep = &mut [(0.0, 0.0), (1.0, 10.0), (2.0, 20.0)];
        assert_eq!(repeated_median(steep, 0.5).slope, 0.5);
    }
}
