//! Times that cannot be true.

use super::collect::Times;

/// A profiler's trace of kernels or operators spans minutes; what lies a day off was never written as a
/// time (zero, or a counter that was not initialized).
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
/// An instant of exactly zero stands for "none" where the others are at least this far from it.
const HOUR_NS: i64 = 3600 * 1_000_000_000;

/// The time around the middle one of a trace's events.
#[derive(Debug, Clone, Copy)]
pub(in crate::read) struct Plausible {
    middle_ns: Option<i64>,
}

impl Plausible {
    /// Around the median of `starts`.
    pub fn around(mut starts: Vec<i64>) -> Self {
        let half = starts.len() / 2;
        let middle_ns = (!starts.is_empty()).then(|| *starts.select_nth_unstable(half).1);
        Self { middle_ns }
    }

    pub fn contains(self, times: Times) -> bool {
        let Some(middle) = self.middle_ns else { return true };
        let near = |instant: i64| (i128::from(instant) - i128::from(middle)).abs() <= DAY_NS.into();
        let none = times.start_ns == 0 && middle.unsigned_abs() > HOUR_NS as u64;
        near(times.start_ns) && near(times.end_ns) && !none
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_far_off() {
        let middle = 1_682_725_898_236_567_000;
        let plausible = Plausible::around(vec![0, middle, middle - 5, middle + 7, i64::MAX]);
        let contains = |start_ns, end_ns| plausible.contains(Times { start_ns, end_ns });
        assert!(contains(middle, middle + 10));
        assert!(contains(middle + HOUR_NS, middle + HOUR_NS));
        assert!(contains(middle, middle - 10));
        assert!(!contains(0, 10));
        assert!(!contains(middle, i64::MAX));
        assert!(!contains(i64::MIN, middle));
        assert!(Plausible::around(vec![]).contains(Times { start_ns: 0, end_ns: i64::MAX }));
        assert!(Plausible::around(vec![0, 10, 20]).contains(Times { start_ns: 0, end_ns: 5 }));
        assert!(
            !Plausible::around(vec![0, HOUR_NS * 2, HOUR_NS * 2]).contains(Times { start_ns: 0, end_ns: 5 })
        );
    }
}
