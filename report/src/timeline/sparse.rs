//! A column that takes no memory for what most inputs do not tell.

/// Stands for a missing value.
pub(super) const NONE: u32 = u32::MAX;

/// Values by row. Rows behind the last value are not stored: a column without values is empty, and two
/// columns with the same values are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sparse {
    values: Vec<u32>,
}

impl Sparse {
    /// Sets the value of `row`, which is behind all before.
    pub(super) fn push(&mut self, row: usize, value: u32) {
        if value != NONE {
            self.values.resize(row, NONE);
            self.values.push(value);
        }
    }

    /// The value of `row`; [`NONE`] if it has none.
    pub(super) fn get(&self, row: usize) -> u32 {
        self.values.get(row).copied().unwrap_or(NONE)
    }

    /// The stored values.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut u32> {
        self.values.iter_mut()
    }

    /// Gives back memory that was set aside for more values.
    pub(super) fn shrink(&mut self) {
        self.values.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_up_to_the_last_value_are_stored() {
        let mut column = Sparse::default();
        (0..100).for_each(|row| column.push(row, NONE));
        assert_eq!(column, Sparse::default());
        column.push(100, 7);
        column.push(101, NONE);
        assert_eq!((column.get(99), column.get(100), column.get(101)), (NONE, 7, NONE));
        assert_eq!(column.values.len(), 101);
    }
}
