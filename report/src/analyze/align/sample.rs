//! Which collectives of a communicator are kept.

use super::ClockedPart;

/// Collectives of one communicator that are kept, at most: their fit is then uncertain by a tenth of the
/// noise of one.
const MAX_ROWS: usize = 512;

/// Below this, a communicator is not thinned further.
const MIN_ROWS: usize = 16;

/// Stands for the end of a clock that took no part.
const NO_END: i64 = i64::MIN;

/// Every `stride`th collective of a communicator whose members are on several clocks. When there are too
/// many, every second one goes and the stride doubles, so that what is kept is spread over the run evenly.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Clocks that took part, ascending.
    clocks: Vec<u32>,
    /// Rows of one end per clock.
    ends_ns: Vec<i64>,
    seen: u64,
    /// The logarithm of the stride.
    doublings: u32,
    /// Duration of the longest part of the collective where that is shortest.
    shortest_ns: u64,
    scratch: Vec<(u32, i64)>,
}

impl Samples {
    /// Adds a collective with parts on at least two of the first `clocks` clocks.
    pub fn add(&mut self, parts: &[ClockedPart], clocks: usize) {
        let duration = |part: &ClockedPart| part.end_ns.abs_diff(part.start_ns.min(part.end_ns));
        let longest = parts.iter().map(duration).max().unwrap_or(0);
        self.shortest_ns = if self.seen == 0 { longest } else { self.shortest_ns.min(longest) };
        let number = self.seen;
        self.seen += 1;
        if !number.is_multiple_of(1 << self.doublings) {
            return;
        }
        let mut ends = std::mem::take(&mut self.scratch);
        ends.clear();
        let known = parts.iter().filter(|part| (part.clock as usize) < clocks && part.end_ns != NO_END);
        ends.extend(known.map(|part| (part.clock, part.end_ns)));
        ends.sort_unstable();
        self.add_clocks(&ends);
        let row = self.ends_ns.len();
        self.ends_ns.resize(row + self.clocks.len(), NO_END);
        for group in ends.chunk_by(|a, b| a.0 == b.0) {
            // Sorted by end within the clock: the (lower) median.
            let Some(&(clock, median)) = group.get((group.len() - 1) / 2) else { continue };
            if let Ok(column) = self.clocks.binary_search(&clock)
                && let Some(end) = self.ends_ns.get_mut(row + column)
            {
                *end = median;
            }
        }
        self.scratch = ends;
        if self.rows() > MAX_ROWS {
            self.thin();
        }
    }

    /// Clocks with parts in these collectives, ascending.
    pub fn clocks(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.clocks.iter().map(|&clock| clock as usize)
    }

    /// Number of collectives kept.
    pub fn rows(&self) -> usize {
        self.ends_ns.len() / self.clocks.len().max(1)
    }

    /// Number of ends kept, missing ones included.
    pub fn kept(&self) -> usize {
        self.ends_ns.len()
    }

    /// Duration of the longest part of the collective where that is shortest.
    pub fn shortest_ns(&self) -> u64 {
        self.shortest_ns
    }

    /// The collectives kept: clock and end of each part.
    pub fn collectives(&self) -> impl Iterator<Item = impl Iterator<Item = (usize, i64)> + '_> + '_ {
        self.ends_ns.chunks_exact(self.clocks.len().max(1)).map(|row| {
            let ends = self.clocks().zip(row.iter().copied());
            ends.filter(|end| end.1 != NO_END)
        })
    }

    /// Ends of the collectives that both clocks have.
    pub fn ends_of(&self, one: usize, other: usize) -> Vec<(i64, i64)> {
        let column = |clock: usize| self.clocks().position(|known| known == clock);
        let (Some(one), Some(other)) = (column(one), column(other)) else { return Vec::new() };
        let rows = self.ends_ns.chunks_exact(self.clocks.len().max(1));
        rows.filter_map(|row| Some((*row.get(one)?, *row.get(other)?)))
            .filter(|&(one, other)| one != NO_END && other != NO_END)
            .collect()
    }

    /// Whether [`thin`](Self::thin) would do something.
    pub fn can_thin(&self) -> bool {
        self.rows() > MIN_ROWS
    }

    /// Leaves every second collective, unless there are few.
    pub fn thin(&mut self) {
        if !self.can_thin() {
            return;
        }
        let width = self.clocks.len().max(1);
        let rows = self.rows().div_ceil(2);
        for row in 1..rows {
            self.ends_ns.copy_within(2 * row * width..(2 * row + 1) * width, row * width);
        }
        self.ends_ns.truncate(rows * width);
        self.doublings = (self.doublings + 1).min(63);
    }

    /// Gives columns to the clocks of `ends` that are new.
    fn add_clocks(&mut self, ends: &[(u32, i64)]) {
        let is_new = |clock: &u32| self.clocks.binary_search(clock).is_err();
        let mut clocks: Vec<u32> = ends.iter().map(|end| end.0).filter(is_new).collect();
        if clocks.is_empty() {
            return;
        }
        clocks.extend_from_slice(&self.clocks);
        clocks.sort_unstable();
        clocks.dedup();
        let mut wider = Vec::with_capacity(self.rows() * clocks.len());
        for row in self.ends_ns.chunks_exact(self.clocks.len().max(1)) {
            let mut ends = self.clocks.iter().zip(row).peekable();
            wider.extend(clocks.iter().map(|clock| match ends.next_if(|end| end.0 == clock) {
                Some((_, &end)) => end,
                None => NO_END,
            }));
        }
        self.clocks = clocks;
        self.ends_ns = wider;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(clock: u32, end_ns: i64) -> ClockedPart {
        ClockedPart { clock, start_ns: end_ns - 10, end_ns }
    }

    fn rows(samples: &Samples) -> Vec<Vec<(usize, i64)>> {
        samples.collectives().map(Iterator::collect).collect()
    }

    #[test]
    fn clocks_that_come_later_have_no_end_before() {
        let mut samples = Samples::default();
        samples.add(&[part(3, 1), part(1, 2)], 9);
        samples.add(&[part(2, 5), part(1, 4), part(8, 6)], 9);
        samples.add(&[part(9, 1), part(2, 7), part(3, 8)], 9);
        assert_eq!(
            rows(&samples),
            [vec![(1, 2), (3, 1)], vec![(1, 4), (2, 5), (8, 6)], vec![(2, 7), (3, 8)]]
        );
        assert_eq!(samples.ends_of(2, 3), [(7, 8)]);
        assert_eq!(samples.ends_of(1, 9), []);
    }

    #[test]
    fn of_several_ranks_on_a_clock_the_median_counts() {
        let mut samples = Samples::default();
        samples.add(&[part(0, 7), part(1, 100), part(0, 5), part(0, 900)], 2);
        samples.add(&[part(0, 9), part(1, 100), part(0, 8)], 2);
        assert_eq!(rows(&samples), [[(0, 7), (1, 100)], [(0, 8), (1, 100)]]);
    }

    #[test]
    fn long_runs_are_kept_evenly_and_within_the_limit() {
        let mut samples = Samples::default();
        for number in 0..100_000 {
            samples.add(&[part(0, number), part(1, number)], 2);
            assert!(samples.rows() <= MAX_ROWS);
        }
        let kept: Vec<i64> = samples.ends_of(0, 1).iter().map(|end| end.0).collect();
        assert!(kept.len() > MAX_ROWS / 4, "{}", kept.len());
        let stride = kept[1] - kept[0];
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == stride));
        assert!(kept[0] == 0 && kept[kept.len() - 1] > 100_000 - 2 * stride);
    }

    #[test]
    fn the_shortest_duration_is_of_all_collectives() {
        let mut samples = Samples::default();
        let long = ClockedPart { clock: 0, start_ns: 0, end_ns: 50 };
        for _ in 0..40 {
            samples.add(&[long, part(1, 50)], 2);
        }
        assert_eq!(samples.shortest_ns(), 50);
        samples.add(&[part(0, 60), part(1, 60)], 2);
        assert_eq!(samples.shortest_ns(), 10);
    }
}
