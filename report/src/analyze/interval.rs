//! Unions of intervals and their overlap with others.
//!
//! Intervals are half-open and in nanoseconds. One whose end precedes its start is empty. Lengths are
//! `u64`, which holds the distance between any two `i64`.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Length of `[start_ns, end_ns)`; 0 if the end precedes the start.
pub fn duration_ns(start_ns: i64, end_ns: i64) -> u64 {
    if end_ns > start_ns { end_ns.abs_diff(start_ns) } else { 0 }
}

/// The union of intervals: disjoint segments in ascending order, with the length before each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cover {
    segments: Vec<(i64, i64)>,
    before_ns: Vec<u64>,
    total_ns: u64,
    hint: Hint,
}

/// Where the last search ended. What is looked up mostly comes in order of time, and the next search then
/// begins beside its result, in memory that is at hand; of many covers that take turns, a binary search
/// would find its way through none.
#[derive(Debug, Default)]
pub(super) struct Hint(AtomicUsize);

impl Clone for Hint {
    fn clone(&self) -> Self {
        Self(AtomicUsize::new(self.0.load(Ordering::Relaxed)))
    }
}

/// Where a search begins makes no difference to what it finds.
impl PartialEq for Hint {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Hint {}

impl Cover {
    /// The union of the intervals `starts_ns[i]..ends_ns[i]`, in any order. If the slices differ in
    /// length, the longer one's rest is ignored.
    pub fn new(starts_ns: &[i64], ends_ns: &[i64]) -> Self {
        if starts_ns.is_sorted() {
            // The common case needs no copy of the input.
            let mut merged = Merge::default();
            for (&start, &end) in starts_ns.iter().zip(ends_ns) {
                merged.push(start, end);
            }
            return Self::from_disjoint(merged.segments);
        }
        Self::from_pairs(starts_ns.iter().copied().zip(ends_ns.iter().copied()).collect())
    }

    /// The union of `pairs`, reusing their memory.
    pub fn from_pairs(mut pairs: Vec<(i64, i64)>) -> Self {
        pairs.retain(|&(start, end)| end > start);
        pairs.sort_unstable();
        let mut kept = 0;
        for read in 1..pairs.len() {
            let (start, end) = pairs[read];
            if start <= pairs[kept].1 {
                pairs[kept].1 = pairs[kept].1.max(end);
            } else {
                kept += 1;
                pairs[kept] = (start, end);
            }
        }
        pairs.truncate(kept + 1);
        Self::from_disjoint(pairs)
    }

    fn from_disjoint(segments: Vec<(i64, i64)>) -> Self {
        let mut total_ns = 0_u64;
        let before_ns = segments
            .iter()
            .map(|&(start, end)| {
                let before = total_ns;
                // Disjoint segments within i64 are together shorter than u64::MAX.
                total_ns = total_ns.saturating_add(duration_ns(start, end));
                before
            })
            .collect();
        Self { segments, before_ns, total_ns, hint: Hint::default() }
    }

    /// The disjoint segments, ascending. Touching intervals are one segment.
    pub fn segments(&self) -> &[(i64, i64)] {
        &self.segments
    }

    /// Length of the union.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// Length of the intersection of the union with `[start_ns, end_ns)`.
    pub fn overlap_ns(&self, start_ns: i64, end_ns: i64) -> u64 {
        self.overlap_near(&self.hint, start_ns, end_ns)
    }

    /// As [`overlap_ns`](Self::overlap_ns) with a hint of the caller's own, who looks things up in another
    /// order than others do at the same time.
    pub(super) fn overlap_near(&self, hint: &Hint, start_ns: i64, end_ns: i64) -> u64 {
        if end_ns <= start_ns {
            return 0;
        }
        let before_start = match start_ns {
            i64::MIN => 0,
            _ => self.before_ns(hint, start_ns),
        };
        self.before_ns(hint, end_ns) - before_start
    }

    /// The covered length before `at_ns`.
    fn before_ns(&self, hint: &Hint, at_ns: i64) -> u64 {
        let begun = begun(&self.segments, hint.0.load(Ordering::Relaxed), at_ns);
        hint.0.store(begun, Ordering::Relaxed);
        self.covered_before(at_ns, begun)
    }

    /// The covered lengths of `[start_ns, turn_ns)` and `[turn_ns, end_ns)`, which are in order: with one
    /// search less than two of [`overlap_ns`](Self::overlap_ns) take.
    pub(super) fn overlaps_around_ns(&self, start_ns: i64, turn_ns: i64, end_ns: i64) -> (u64, u64) {
        let before_start = self.before_ns(&self.hint, start_ns);
        let before_turn = if turn_ns > start_ns { self.before_ns(&self.hint, turn_ns) } else { before_start };
        let before_end = if end_ns > turn_ns { self.before_ns(&self.hint, end_ns) } else { before_turn };
        (before_turn - before_start, before_end - before_turn)
    }

    /// Whether the instant just before `at_ns` is covered; `hint` as in
    /// [`overlap_near`](Self::overlap_near).
    pub(super) fn covers_before(&self, hint: &Hint, at_ns: i64) -> bool {
        let begun = begun(&self.segments, hint.0.load(Ordering::Relaxed), at_ns);
        hint.0.store(begun, Ordering::Relaxed);
        let last = begun.checked_sub(1).and_then(|last| self.segments.get(last));
        last.is_some_and(|segment| segment.1 >= at_ns)
    }

    /// Length of the intersection of two unions.
    pub fn intersection_ns(&self, other: &Self) -> u64 {
        intersection_ns(&self.segments, &other.segments)
    }

    /// What is covered here and not by `other`.
    pub fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut others = other.segments.iter().peekable();
        for &(start, end) in &self.segments {
            let mut from = start;
            while let Some(&&(cut_start, cut_end)) = others.peek() {
                if cut_start >= end {
                    break;
                }
                if from < cut_start {
                    left.push((from, cut_start));
                }
                from = from.max(cut_end);
                if cut_end > end {
                    break;
                }
                others.next();
            }
            if from < end {
                left.push((from, end));
            }
        }
        Self::from_disjoint(left)
    }

    /// The covered length before `at_ns`, where `begun` segments start before it.
    fn covered_before(&self, at_ns: i64, begun: usize) -> u64 {
        let Some(last) = begun.checked_sub(1) else { return 0 };
        let (start, end) = self.segments[last];
        self.before_ns[last] + duration_ns(start, end.min(at_ns))
    }
}

/// How many of the ascending `segments` start before `at_ns`, by an exponential search from `near` on (J. L.
/// Bentley, A. C. Yao, An almost optimal algorithm for unbounded searching, Information Processing Letters 5,
/// 1976).
fn begun(segments: &[(i64, i64)], near: usize, at_ns: i64) -> usize {
    let starts_before = |segment: &(i64, i64)| segment.0 < at_ns;
    let near = near.min(segments.len());
    let (below, above) = segments.split_at(near);
    let mut step = 1;
    if below.last().is_none_or(starts_before) {
        while above.get(step - 1).is_some_and(starts_before) {
            step *= 2;
        }
        // The last one looked at before starts before, this one does not or is not there.
        let (from, to) = (step / 2, step.min(above.len()));
        return near + from + above[from..to].partition_point(starts_before);
    }
    while near.checked_sub(step).and_then(|at| below.get(at)).is_some_and(|segment| !starts_before(segment)) {
        step *= 2;
    }
    let (from, to) = (near.saturating_sub(step), near - step / 2);
    from + below[from..to].partition_point(starts_before)
}

/// Length of the intersection of two lists of disjoint ascending segments.
pub(super) fn intersection_ns(left: &[(i64, i64)], right: &[(i64, i64)]) -> u64 {
    let (mut l, mut r, mut total) = (0, 0, 0_u64);
    while let (Some(a), Some(b)) = (left.get(l), right.get(r)) {
        total = total.saturating_add(duration_ns(a.0.max(b.0), a.1.min(b.1)));
        if a.1 <= b.1 {
            l += 1;
        } else {
            r += 1;
        }
    }
    total
}

/// Builds disjoint segments from intervals in ascending order of their start.
#[derive(Debug, Default)]
pub(super) struct Merge {
    pub(super) segments: Vec<(i64, i64)>,
}

impl Merge {
    pub(super) fn push(&mut self, start: i64, end: i64) {
        if end <= start {
            return;
        }
        match self.segments.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => self.segments.push((start, end)),
        }
    }

    /// Length of the segments so far.
    pub(super) fn total_ns(&self) -> u64 {
        self.segments.iter().fold(0, |sum: u64, &(start, end)| sum.saturating_add(duration_ns(start, end)))
    }
}

/// For each interval `starts_ns[i]..ends_ns[i]`, the length of its intersection with `cover`.
///
/// Takes `O(n log n)` time for `n` intervals in any order, linear time if they are sorted by start and
/// each meets few segments.
pub fn overlaps_ns(cover: &Cover, starts_ns: &[i64], ends_ns: &[i64]) -> Vec<u64> {
    let count = starts_ns.len().min(ends_ns.len());
    let mut overlaps = vec![0; count];
    let mut sweep = Sweep { cover, begun: 0 };
    if starts_ns.is_sorted() {
        for (overlap, (&start, &end)) in overlaps.iter_mut().zip(starts_ns.iter().zip(ends_ns)) {
            *overlap = sweep.overlap_ns(start, end);
        }
        return overlaps;
    }
    // Ends travel along: reading their column in another order would miss the cache each time.
    let intervals = starts_ns.iter().zip(ends_ns).zip(0..);
    let mut order: Vec<(i64, i64, usize)> =
        intervals.map(|((&start, &end), index)| (start, end, index)).collect();
    order.sort_unstable();
    for (start, end, index) in order {
        overlaps[index] = sweep.overlap_ns(start, end);
    }
    overlaps
}

/// Overlaps of intervals that come in ascending order of their start.
struct Sweep<'a> {
    cover: &'a Cover,
    /// Segments that start before the last interval's start.
    begun: usize,
}

impl Sweep<'_> {
    fn overlap_ns(&mut self, start: i64, end: i64) -> u64 {
        let segments = &self.cover.segments;
        self.begun = gallop(segments, self.begun, start);
        if end <= start {
            return 0;
        }
        let begun_at_end = gallop(segments, self.begun, end);
        self.cover.covered_before(end, begun_at_end) - self.cover.covered_before(start, self.begun)
    }
}

/// The number of segments that start before `at`, known to be at least `from`: looked for in steps that
/// double, since the answer is usually near.
fn gallop(segments: &[(i64, i64)], from: usize, at: i64) -> usize {
    let mut low = from;
    let mut step = 1;
    loop {
        let probe = low.saturating_add(step);
        match segments.get(probe - 1) {
            Some(segment) if segment.0 < at => {
                low = probe;
                step *= 2;
            }
            _ => {
                let high = (probe - 1).min(segments.len());
                return low + segments[low..high].partition_point(|segment| segment.0 < at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cover(pairs: &[(i64, i64)]) -> Cover {
        Cover::from_pairs(pairs.to_vec())
    }

    #[test]
    fn nested_touching_duplicate_empty_and_reversed_intervals() {
        let union = cover(&[(5, 7), (0, 3), (1, 2), (3, 4), (0, 3), (9, 9), (12, 10)]);
        assert_eq!(union.segments(), [(0, 4), (5, 7)]);
        assert_eq!(union.total_ns(), 6);
        assert_eq!(union.overlap_ns(2, 6), 3);
        assert_eq!(union.overlap_ns(4, 5), 0);
        assert_eq!(union.overlap_ns(6, 2), 0);
        assert_eq!(union.overlap_ns(3, 3), 0);
        assert_eq!(union.overlap_ns(-10, 100), 6);
    }

    #[test]
    fn a_search_finds_the_same_from_wherever_it_begins() {
        for count in 0..40_i64 {
            let segments: Vec<(i64, i64)> = (0..count).map(|at| (at * 10, at * 10 + 5)).collect();
            for at_ns in -5..=count * 10 + 5 {
                let expected = segments.iter().filter(|segment| segment.0 < at_ns).count();
                for near in 0..=segments.len() + 1 {
                    assert_eq!(begun(&segments, near, at_ns), expected, "{count} {at_ns} {near}");
                }
            }
        }
    }

    #[test]
    fn both_sides_of_a_turn_and_single_instants() {
        let union = cover(&[(2, 5), (7, 8), (10, 14)]);
        let hint = Hint::default();
        for start in 0..16 {
            assert_eq!(union.covers_before(&hint, start), union.overlap_ns(start - 1, start) > 0, "{start}");
            for turn in start..16 {
                for end in turn..16 {
                    let expected = (union.overlap_ns(start, turn), union.overlap_ns(turn, end));
                    assert_eq!(union.overlaps_around_ns(start, turn, end), expected, "{start} {turn} {end}");
                }
            }
        }
        assert!(!union.covers_before(&hint, i64::MIN));
        assert_eq!(union.overlaps_around_ns(i64::MIN, i64::MIN, i64::MAX), (0, 8));
    }

    #[test]
    fn no_interval_covers_nothing() {
        assert_eq!(cover(&[]).total_ns(), 0);
        assert_eq!(cover(&[]).overlap_ns(i64::MIN, i64::MAX), 0);
        assert_eq!(overlaps_ns(&cover(&[]), &[3, 1], &[4, 2]), [0, 0]);
    }

    #[test]
    fn the_whole_range_of_i64() {
        let union = cover(&[(i64::MIN, 0), (-1, i64::MAX)]);
        assert_eq!(union.total_ns(), u64::MAX);
        assert_eq!(union.overlap_ns(i64::MIN, i64::MAX), u64::MAX);
        assert_eq!(overlaps_ns(&union, &[i64::MIN, i64::MAX], &[i64::MAX, i64::MIN]), [u64::MAX, 0]);
        assert_eq!(union.intersection_ns(&cover(&[(i64::MIN, i64::MAX)])), u64::MAX);
    }

    #[test]
    fn sorted_and_unsorted_input_give_the_same() {
        let (starts, ends) = ([0, 2, 2, 9], [3, 5, 1, 12]);
        let (mixed_starts, mixed_ends) = ([9, 2, 0, 2], [12, 5, 3, 1]);
        assert_eq!(Cover::new(&starts, &ends), Cover::new(&mixed_starts, &mixed_ends));
        let union = Cover::new(&starts, &ends);
        assert_eq!(overlaps_ns(&union, &starts, &ends), [3, 3, 0, 3]);
        assert_eq!(overlaps_ns(&union, &mixed_starts, &mixed_ends), [3, 3, 3, 0]);
    }
}
