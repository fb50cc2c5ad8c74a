//! Single values of a record.

use super::super::decimal::{DecimalError, scaled};
use crate::timeline::{Names, Sym};
use serde::de::{DeserializeSeed, Deserializer, Error, Unexpected, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Milliseconds to nanoseconds, exactly.
pub(super) const MS_SCALE: u32 = 6;

/// A time in milliseconds, in nanoseconds.
pub(super) fn time<E: Error>(raw: &RawValue) -> Result<i64, E> {
    scaled(raw.get(), MS_SCALE).map_err(|error| match error {
        DecimalError::NotANumber => mistaken(raw, "a number of milliseconds"),
        DecimalError::OutOfRange => E::custom(format_args!("{} ms {error}", shown(raw))),
    })
}

/// A count that is not negative; `None` for null.
pub(super) fn count<E: Error>(raw: &RawValue) -> Result<Option<u64>, E> {
    let text = raw.get();
    if text == "null" {
        return Ok(None);
    }
    // Some writers have no integers: 4096.0 is 4096.
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|digit| digit == b'0') => whole,
        _ => text,
    };
    match whole.parse() {
        Ok(count) if i64::try_from(count).is_ok() => Ok(Some(count)),
        Ok(_) => Err(E::custom(format_args!("{} is out of range", shown(raw)))),
        Err(_) if scaled(text, 0).is_ok_and(|value| value < 0) => {
            Err(E::custom(format_args!("{} is negative", shown(raw))))
        }
        Err(_) => Err(mistaken(raw, "a whole number that is not negative, or null")),
    }
}

/// As [`count`], for numbers of ranks and the like.
pub(super) fn small_count<E: Error>(raw: &RawValue) -> Result<Option<u32>, E> {
    // The largest is what columns store for "none".
    match count(raw)? {
        Some(count) => match u32::try_from(count) {
            Ok(count) if count < u32::MAX => Ok(Some(count)),
            _ => Err(E::custom(format_args!("{count} is out of range"))),
        },
        None => Ok(None),
    }
}

/// A step's number; `None` for null.
pub(super) fn step<E: Error>(raw: &RawValue) -> Result<Option<i64>, E> {
    match raw.get() {
        "null" => Ok(None),
        text => match text.parse() {
            Ok(step) if step > i64::MIN => Ok(Some(step)),
            _ => Err(mistaken(raw, "a whole number, or null")),
        },
    }
}

fn mistaken<E: Error>(raw: &RawValue, expected: &str) -> E {
    E::custom(format_args!("{} is not {expected}", shown(raw)))
}

/// The value as it is written, or its beginning.
fn shown(raw: &RawValue) -> String {
    const SHOWN: usize = 40;
    let text = raw.get();
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    shown + more
}

/// A text, interned; a number is taken as its digits, since streams and communicators are often
/// numbered. `None` for null.
pub(super) struct Text<'a>(pub &'a mut Names);

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = Option<Sym>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text<'_> {
    type Value = Option<Sym>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(self.0.intern(text)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(self.0.intern(&number.to_string())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(self.0.intern(&number.to_string())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        Err(E::invalid_type(Unexpected::Float(number), &self))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}
