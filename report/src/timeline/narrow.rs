//! A column that takes as little memory as its values allow.

use super::Sym;
use std::marker::PhantomData;

/// A value that a [`Narrow`] column can hold, as a number: 0 for none, and small for common values.
pub(super) trait Code: Copy {
    fn code(value: Option<Self>) -> u64;

    fn value(code: u64) -> Option<Self>;
}

/// One byte per value, or two, four or eight where one needs them. Rows behind the last value are not
/// stored: a column without values is empty, and two columns with the same values are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Narrow<T> {
    codes: Codes,
    of: PhantomData<T>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Codes {
    Byte(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
}

impl<T> Default for Narrow<T> {
    fn default() -> Self {
        Self { codes: Codes::Byte(Vec::new()), of: PhantomData }
    }
}

impl<T: Code> Narrow<T> {
    /// Sets the value of `row`, which is behind all before.
    pub(super) fn push(&mut self, row: usize, value: Option<T>) {
        let code = T::code(value);
        if code != 0 {
            self.codes.push(row, code);
        }
    }

    /// The value of `row`, if it has one.
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<T> {
        T::value(self.codes.get(row))
    }

    /// Replaces each value by another.
    pub(super) fn replace(&mut self, with: impl Fn(T) -> T) {
        let mut replaced = Codes::Byte(Vec::with_capacity(self.codes.len()));
        for row in 0..self.codes.len() {
            if let Some(value) = self.get(row) {
                replaced.push(row, T::code(Some(with(value))));
            }
        }
        self.codes = replaced;
    }

    /// Gives back memory that was set aside for more values.
    pub(super) fn shrink(&mut self) {
        match &mut self.codes {
            Codes::Byte(codes) => codes.shrink_to_fit(),
            Codes::Two(codes) => codes.shrink_to_fit(),
            Codes::Four(codes) => codes.shrink_to_fit(),
            Codes::Eight(codes) => codes.shrink_to_fit(),
        }
    }
}

impl Codes {
    fn len(&self) -> usize {
        match self {
            Self::Byte(codes) => codes.len(),
            Self::Two(codes) => codes.len(),
            Self::Four(codes) => codes.len(),
            Self::Eight(codes) => codes.len(),
        }
    }

    #[inline]
    fn get(&self, row: usize) -> u64 {
        match self {
            Self::Byte(codes) => codes.get(row).copied().unwrap_or(0).into(),
            Self::Two(codes) => codes.get(row).copied().unwrap_or(0).into(),
            Self::Four(codes) => codes.get(row).copied().unwrap_or(0).into(),
            Self::Eight(codes) => codes.get(row).copied().unwrap_or(0),
        }
    }

    fn push(&mut self, row: usize, code: u64) {
        let added = match self {
            Self::Byte(codes) => append(codes, row, code),
            Self::Two(codes) => append(codes, row, code),
            Self::Four(codes) => append(codes, row, code),
            Self::Eight(codes) => append(codes, row, code),
        };
        if !added {
            self.widen(code);
            self.push(row, code);
        }
    }

    /// Makes the values wide enough for `code`, which is too large.
    fn widen(&mut self, code: u64) {
        let codes = (0..self.len()).map(|row| self.get(row));
        // Each is small enough: it was in a narrower column.
        *self = if code <= u16::MAX.into() {
            Self::Two(codes.map(|code| code as u16).collect())
        } else if code <= u32::MAX.into() {
            Self::Four(codes.map(|code| code as u32).collect())
        } else {
            Self::Eight(codes.collect())
        };
    }
}

/// Whether `code` is small enough to be appended.
fn append<C: TryFrom<u64> + Default + Clone>(codes: &mut Vec<C>, row: usize, code: u64) -> bool {
    let Ok(code) = C::try_from(code) else { return false };
    codes.resize(row, C::default());
    codes.push(code);
    true
}

impl Code for u64 {
    /// The largest number stands for none, too.
    fn code(value: Option<Self>) -> u64 {
        value.map_or(0, |value| value.wrapping_add(1))
    }

    fn value(code: u64) -> Option<Self> {
        code.checked_sub(1)
    }
}

impl Code for u32 {
    fn code(value: Option<Self>) -> u64 {
        value.map_or(0, |value| u64::from(value) + 1)
    }

    fn value(code: u64) -> Option<Self> {
        u32::try_from(code.checked_sub(1)?).ok()
    }
}

impl Code for i64 {
    /// Small numbers of either sign have small codes. The least number stands for none, too.
    fn code(value: Option<Self>) -> u64 {
        value.map_or(0, |value| ((value << 1) ^ (value >> 63)).cast_unsigned().wrapping_add(1))
    }

    fn value(code: u64) -> Option<Self> {
        let folded = code.checked_sub(1)?;
        Some((folded >> 1).cast_signed() ^ -((folded & 1).cast_signed()))
    }
}

impl Code for Sym {
    fn code(value: Option<Self>) -> u64 {
        u32::code(value.map(Self::raw))
    }

    fn value(code: u64) -> Option<Self> {
        u32::value(code).and_then(Self::from_raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn column<T: Code>(values: &[Option<T>]) -> Narrow<T> {
        let mut column = Narrow::default();
        values.iter().enumerate().for_each(|(row, &value)| column.push(row, value));
        column
    }

    /// Numbers of all widths.
    fn number() -> impl Strategy<Value = Option<u64>> {
        prop_oneof![
            Just(None),
            (0..600_u64).prop_map(Some),
            (0..200_000_u64).prop_map(Some),
            (0..u64::MAX).prop_map(Some),
        ]
    }

    proptest! {
        #[test]
        fn a_column_gives_back_what_was_put_in(values in prop::collection::vec(number(), 0..80)) {
            let unsigned = column(&values);
            let steps: Vec<Option<i64>> =
                values.iter().map(|value| value.map(|value| (value ^ 0x55).cast_signed())).collect();
            let signed = column(&steps);
            let small: Vec<Option<u32>> = values.iter().map(|value| value.map(|value| value as u32)).collect();
            let short = column(&small);
            for (row, value) in values.iter().enumerate() {
                prop_assert_eq!(unsigned.get(row), *value);
                prop_assert_eq!(signed.get(row), steps[row]);
                prop_assert_eq!(short.get(row), small[row]);
            }
            prop_assert_eq!(unsigned.get(values.len()), None);
        }

        #[test]
        fn replaced_values_are_as_if_they_had_been_put_in(
            values in prop::collection::vec(prop::option::of(0..70_000_u32), 0..80),
            by in 1..300_u32,
        ) {
            let mut replaced = column(&values);
            replaced.replace(|value| value / by);
            let expected: Vec<Option<u32>> = values.iter().map(|value| value.map(|value| value / by)).collect();
            prop_assert_eq!(replaced, column(&expected));
        }
    }

    #[test]
    fn negative_steps_and_the_ends_of_the_range() {
        let values = [Some(-1), Some(0), Some(i64::MAX), Some(i64::MIN + 1), None, Some(-300)];
        let column = column(&values);
        for (row, value) in values.into_iter().enumerate() {
            assert_eq!(column.get(row), value);
        }
    }

    #[test]
    fn only_rows_up_to_the_last_value_are_stored() {
        let mut column: Narrow<u32> = Narrow::default();
        (0..100).for_each(|row| column.push(row, None));
        assert_eq!(column, Narrow::default());
        column.push(100, Some(7));
        column.push(101, None);
        assert_eq!((column.get(99), column.get(100), column.get(101)), (None, Some(7), None));
        assert_eq!(column.codes.len(), 101);
    }

    #[test]
    fn small_values_take_a_byte_each() {
        let mut column: Narrow<i64> = Narrow::default();
        (0..100).for_each(|row| column.push(row, Some(row as i64 % 50 - 25)));
        assert!(matches!(column.codes, Codes::Byte(_)));
        column.push(100, Some(1000));
        assert!(matches!(column.codes, Codes::Two(_)));
    }
}
