//! Decimal numbers to integer units, exactly.
//!
//! Traces hold times as decimal fractions of milliseconds or microseconds. Through `f64`, an instant
//! of a long-running host loses its nanoseconds; here, the digits are read as they stand.

/// Why a text is not a number that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// The text is not a decimal number as JSON writes it.
    #[error("is not a finite number")]
    NotANumber,
    /// The number does not fit.
    #[error("is out of the range of 64-bit nanoseconds")]
    OutOfRange,
}

/// The value of `text` times ten to the power of `scale`, rounded to the nearest integer, halves to
/// the even one.
///
/// `text` is a number as in JSON: digits with an optional sign, fraction and exponent; a leading `+`
/// and leading zeros are accepted too.
///
/// ```
/// use commtrace_report::read::decimal::scaled;
/// assert_eq!(scaled("1.5", 6), Ok(1_500_000));
/// assert_eq!(scaled("9007199254.740993", 6), Ok(9_007_199_254_740_993));
/// assert_eq!(scaled("2.5e-6", 6), Ok(2));
/// assert!(scaled("NaN", 6).is_err());
/// ```
///
/// # Errors
///
/// [`DecimalError`] if `text` is not a number or the result does not fit into an `i64`.
pub fn scaled(text: &str, scale: u32) -> Result<i64, DecimalError> {
    let (negative, unsigned) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (mantissa, exponent) = match unsigned.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&unsigned[..at], parse_exponent(&unsigned[at + 1..])?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = match mantissa.iter().position(|&byte| byte == b'.') {
        Some(at) if at + 1 < mantissa.len() => (&mantissa[..at], &mantissa[at + 1..]),
        Some(_) => return Err(DecimalError::NotANumber),
        None => (mantissa, &[][..]),
    };
    if whole.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(DecimalError::NotANumber);
    }

    // The digits, and how many of them stand before the decimal point once scaled.
    let mut digits = whole.iter().chain(fraction).map(|digit| i128::from(digit - b'0'));
    let mut before = (whole.len() as i64).saturating_add(exponent).saturating_add(i64::from(scale));
    let mut value: i128 = 0;
    while before > 0 {
        let Some(digit) = digits.next() else {
            if value == 0 {
                return Ok(0);
            }
            value = value.checked_mul(10).ok_or(DecimalError::OutOfRange)?;
            before -= 1;
            continue;
        };
        value = value.checked_mul(10).and_then(|v| v.checked_add(digit)).ok_or(DecimalError::OutOfRange)?;
        before -= 1;
    }
    // The first digit behind the point decides, unless it lies before all digits: then it is a zero.
    let next = if before == 0 { digits.next().unwrap_or(0) } else { 0 };
    let more = digits.any(|digit| digit > 0);
    if next > 5 || next == 5 && (more || value % 2 == 1) {
        value += 1;
    }
    i64::try_from(if negative { -value } else { value }).map_err(|_| DecimalError::OutOfRange)
}

fn parse_exponent(text: &[u8]) -> Result<i64, DecimalError> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DecimalError::NotANumber);
    }
    // An exponent too large for an i64 is as good as the largest.
    let value = digits
        .iter()
        .fold(0_i64, |value, digit| value.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    Ok(if negative { -value } else { value })
}

/// `nanoseconds` in milliseconds, as a decimal number with all its digits.
///
/// ```
/// use commtrace_report::read::decimal::milliseconds;
/// assert_eq!(milliseconds(-1_500_001), "-1.500001");
/// assert_eq!(milliseconds(2_000_000), "2");
/// ```
pub fn milliseconds(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let size = nanoseconds.unsigned_abs();
    let (whole, fraction) = (size / 1_000_000, size % 1_000_000);
    if fraction == 0 {
        return format!("{sign}{whole}");
    }
    let fraction = format!("{fraction:06}");
    format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn digits_are_exact() {
        for (text, ns) in [
            ("0", 0),
            ("-0", 0),
            ("0.0", 0),
            ("1", 1_000_000),
            ("-1.25", -1_250_000),
            ("0.000001", 1),
            ("98765432101.234567", 98_765_432_101_234_567),
            ("9223372036854.775807", i64::MAX),
            ("-9223372036854.775808", i64::MIN),
            ("1e3", 1_000_000_000),
            ("1E+3", 1_000_000_000),
            ("1.5e-3", 1_500),
            ("123456789e-9", 123_457),
            ("0e99999999999999999999", 0),
            ("1e-99999999999999999999", 0),
            ("0.00000000000000000000000000000000000000000000000001e50", 1_000_000),
            ("9223372036854775807000000e-12", i64::MAX),
        ] {
            assert_eq!(scaled(text, 6), Ok(ns), "{text}");
        }
    }

    #[test]
    fn halves_go_to_the_even_neighbour() {
        for (text, ns) in [
            ("0.0000005", 0),
            ("0.0000015", 2),
            ("0.0000025", 2),
            ("-0.0000015", -2),
            ("0.00000050000000000000000000001", 1),
            ("0.0000004999999999999999999999", 0),
            ("5e-7", 0),
            ("5e-8", 0),
            ("9e-8", 0),
            ("0.00000149", 1),
        ] {
            assert_eq!(scaled(text, 6), Ok(ns), "{text}");
        }
    }

    #[test]
    fn out_of_range() {
        for text in ["9223372036854.775808", "-9223372036854.775809", "1e13", "1e999999999999", "-1e400"] {
            assert_eq!(scaled(text, 6), Err(DecimalError::OutOfRange), "{text}");
        }
        let long = "9".repeat(400);
        assert_eq!(scaled(&long, 6), Err(DecimalError::OutOfRange));
    }

    #[test]
    fn not_a_number() {
        for text in [
            "",
            "-",
            "NaN",
            "nan",
            "inf",
            "Infinity",
            "-Infinity",
            "1.",
            ".5",
            "1e",
            "1e+",
            "1.2.3",
            "1 ",
            "0x1",
            "--1",
        ] {
            assert_eq!(scaled(text, 6), Err(DecimalError::NotANumber), "{text}");
        }
    }

    proptest! {
        #[test]
        fn milliseconds_round_trip(ns: i64) {
            prop_assert_eq!(scaled(&milliseconds(ns), 6), Ok(ns));
        }

        #[test]
        fn the_point_may_stand_anywhere(ns: i32, shift in -15_i64..15) {
            let text = format!("{ns}e{}", shift - 6);
            let exact = if shift >= 0 {
                i128::from(ns) * 10_i128.pow(shift as u32)
            } else {
                // Round half even, by hand.
                let unit = 10_i128.pow(-shift as u32);
                let (floor, rest) = (i128::from(ns).div_euclid(unit), i128::from(ns).rem_euclid(unit));
                match (rest * 2).cmp(&unit) {
                    std::cmp::Ordering::Less => floor,
                    std::cmp::Ordering::Greater => floor + 1,
                    std::cmp::Ordering::Equal => floor + floor.rem_euclid(2),
                }
            };
            let expected = i64::try_from(exact).map_err(|_| DecimalError::OutOfRange);
            prop_assert_eq!(scaled(&text, 6), expected);
        }
    }
}
