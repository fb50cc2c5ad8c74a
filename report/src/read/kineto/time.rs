//! Instants and durations: decimal microseconds to whole nanoseconds.

use super::json::Value;
use crate::read::decimal::{DecimalError, scaled};

/// `value`, in microseconds, as nanoseconds; digits beyond are rounded, halves to the even one.
pub(super) fn nanoseconds(value: Value<'_>) -> Result<i64, DecimalError> {
    let raw = value.raw();
    match common(raw) {
        Some(ns) => Ok(ns),
        None => scaled(std::str::from_utf8(raw).map_err(|_| DecimalError::NotANumber)?, 3),
    }
}

/// Numbers as profilers write them: at most 15 digits, a point, and at most three more.
#[inline]
fn common(raw: &[u8]) -> Option<i64> {
    let point = raw.iter().position(|&byte| byte == b'.').unwrap_or(raw.len());
    let (whole, fraction) = (raw.get(..point)?, raw.get(point + 1..).unwrap_or_default());
    if whole.is_empty()
        || whole.len() > 15
        || fraction.len() > 3
        || (fraction.is_empty() && point < raw.len())
    {
        return None;
    }
    let digits = |from: i64, text: &[u8]| {
        text.iter()
            .try_fold(from, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
    };
    let shift = [1000, 100, 10, 1].get(fraction.len())?;
    Some(digits(digits(0, whole)?, fraction)? * shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_time() {
        for raw in ["", "NaN", "Infinity", "-", "1.2.3", "1.", ".5", "12a", "null"] {
            assert_eq!(nanoseconds(Value::Word(raw.as_bytes())), Err(DecimalError::NotANumber), "{raw}");
        }
        assert_eq!(nanoseconds(Value::Word(b"18446744073709551.615")), Err(DecimalError::OutOfRange));
        assert_eq!(nanoseconds(Value::Nested(b"[1]")), Err(DecimalError::NotANumber));
        assert_eq!(nanoseconds(Value::Text(b"4458676524595.135")), Ok(4_458_676_524_595_135));
        assert_eq!(nanoseconds(Value::Word(b"-1.5")), Ok(-1_500));
        assert_eq!(nanoseconds(Value::Word(b"1.6827258982365670e15")), Ok(1_682_725_898_236_567_000));
    }

    proptest! {
        #[test]
        fn the_short_way_is_the_long_way(text in "[0-9]{1,17}(\\.[0-9]{1,5})?") {
            prop_assert_eq!(nanoseconds(Value::Word(text.as_bytes())), scaled(&text, 3));
        }
    }
}
