//! Sums per block of consecutive steps, in bounded memory.

use std::collections::BTreeMap;

/// Sums that are kept at most, 8 MiB of them.
const MAX_CELLS: usize = 1 << 20;

/// Sums per block and column. A block is a step, until there are too many cells; then adjacent blocks are
/// joined, two and two, as often as it takes.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    rows: BTreeMap<i64, Vec<f64>>,
    columns: usize,
    /// Numbers that one block stands for.
    stride: i64,
    max_cells: usize,
}

impl Default for Blocks {
    fn default() -> Self {
        Self::with_max_cells(MAX_CELLS)
    }
}

impl Blocks {
    /// No blocks, and at most `max_cells` sums (but at least two blocks).
    pub(super) fn with_max_cells(max_cells: usize) -> Self {
        Self { rows: BTreeMap::new(), columns: 0, stride: 1, max_cells }
    }

    /// Adds to what stands in `column` for the step `number`. Adding nothing makes the block as well.
    pub(super) fn add(&mut self, number: i64, values: impl IntoIterator<Item = (usize, f64)>) {
        let row = self.rows.entry(number.div_euclid(self.stride)).or_default();
        for (column, value) in values {
            if row.len() <= column {
                row.resize(column + 1, 0.0);
            }
            if let Some(sum) = row.get_mut(column) {
                *sum += value;
            }
            self.columns = self.columns.max(column + 1);
        }
        let most = (self.max_cells / self.columns.max(1)).max(2);
        while self.rows.len() > most && self.double() {}
    }

    /// The same sums in `count` blocks of equal length, from the first step to the last.
    pub(super) fn stretched(&self, count: u32) -> Self {
        let numbers = || self.rows.keys().copied();
        let (Some(first), Some(last)) = (numbers().next(), numbers().next_back()) else {
            return Self::default();
        };
        let length = i128::from(last) - i128::from(first) + 1;
        let mut stretched = Self { max_cells: self.max_cells, ..Self::default() };
        for (&number, row) in &self.rows {
            let place = (i128::from(number) - i128::from(first)) * i128::from(count) / length;
            stretched.add(i64::try_from(place).unwrap_or(0), row.iter().copied().enumerate());
        }
        stretched
    }

    /// Whether at least every third number between the first and the last has no block.
    pub(super) fn has_gaps(&self) -> bool {
        let (Some(first), Some(last)) = (self.rows.keys().next(), self.rows.keys().next_back()) else {
            return false;
        };
        let all = i128::from(*last) - i128::from(*first) + 1;
        self.rows.len() as i128 * 3 <= all * 2
    }

    /// Leaves the first block out, if the step `number` is in it.
    pub(super) fn leave_out_first(&mut self, number: i64) {
        if self.rows.keys().next() == Some(&number.div_euclid(self.stride)) {
            self.rows.pop_first();
        }
    }

    fn double(&mut self) -> bool {
        let Some(stride) = self.stride.checked_mul(2) else { return false };
        self.stride = stride;
        for (number, row) in std::mem::take(&mut self.rows) {
            let joined = self.rows.entry(number.div_euclid(2)).or_default();
            if joined.len() < row.len() {
                joined.resize(row.len(), 0.0);
            }
            for (sum, value) in joined.iter_mut().zip(row) {
                *sum += value;
            }
        }
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Steps that one block stands for: 1 while nothing was joined.
    pub(super) fn stride(&self) -> i64 {
        self.stride
    }

    /// First step of each block, and its sums; columns past the end of a row are 0.
    pub(super) fn rows(&self) -> impl Iterator<Item = (i64, &[f64])> {
        self.rows.iter().map(|(&number, row)| (number.saturating_mul(self.stride), row.as_slice()))
    }
}

/// The value in `column` of a row.
pub(super) fn cell(row: &[f64], column: usize) -> f64 {
    row.get(column).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn joined_blocks_hold_all_that_was_added(
            added in proptest::collection::vec((-50..50_i64, 0..5_usize, 0..100_u8), 1..200),
            max_cells in 2..60_usize,
        ) {
            let mut blocks = Blocks::with_max_cells(max_cells);
            for &(number, column, value) in &added {
                blocks.add(number, [(column, f64::from(value))]);
            }
            let columns = added.iter().map(|one| one.1 + 1).max().unwrap_or(1);
            prop_assert!(blocks.len() <= (max_cells / columns).max(2));
            for (first, row) in blocks.rows() {
                let within = first..first + blocks.stride();
                for column in 0..5 {
                    let sum: u32 = added
                        .iter()
                        .filter(|one| within.contains(&one.0) && one.1 == column)
                        .map(|one| u32::from(one.2))
                        .sum();
                    prop_assert_eq!(cell(row, column), f64::from(sum));
                }
            }
        }
    }

    #[test]
    fn nothing_is_joined_while_there_is_room() {
        let mut blocks = Blocks::default();
        for step in 0..1000 {
            blocks.add(step, [(3, 1.0)]);
        }
        assert_eq!((blocks.len(), blocks.stride()), (1000, 1));
        let blocks = blocks.stretched(20);
        assert_eq!(blocks.rows().map(|(_, row)| cell(row, 3)).collect::<Vec<_>>(), [50.0; 20]);
        assert_eq!(blocks.rows().map(|(_, row)| cell(row, 3)).sum::<f64>(), 1000.0);
    }
}
