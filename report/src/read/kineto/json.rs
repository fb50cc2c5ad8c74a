//! JSON values in memory, found fast and taken as they come.
//!
//! Profilers write what a strict parser refuses: bare `NaN`, bytes that are not UTF-8, Windows paths
//! with single backslashes, the same key twice. None of it hides a value from this scanner.

use memchr::memchr2;
use std::borrow::Cow;

/// Numbers and words longer than this are none.
const LONGEST_WORD: usize = 4096;

/// Why a value could not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes end within it.
    More,
    /// It is not JSON.
    Malformed,
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A string, between its quotes, escapes as they stand.
    Text(&'a [u8]),
    /// A number, `true`, `null`, `NaN` and the like.
    Word(&'a [u8]),
    /// An object or an array, brackets included.
    Nested(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The characters of a number, which may stand in a string; of a word; or of a string.
    pub fn raw(self) -> &'a [u8] {
        match self {
            Self::Text(raw) | Self::Word(raw) => raw.trim_ascii(),
            Self::Nested(_) => b"",
        }
    }

    /// The text that it stands for; brackets and all for objects and arrays.
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(raw) if memchr::memchr(b'\\', raw).is_some() => Cow::Owned(unescape(raw)),
            Self::Text(raw) | Self::Word(raw) | Self::Nested(raw) => String::from_utf8_lossy(raw),
        }
    }

    /// The whole number, which may stand in a string and may be negative (then as two's complement).
    pub fn integer(self) -> Option<u64> {
        let text = std::str::from_utf8(self.raw()).ok()?;
        let whole = text.strip_suffix(".0").unwrap_or(text);
        whole.parse().ok().or_else(|| whole.parse::<i64>().ok().map(|number| number as u64))
    }
}

/// How a backslash is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// As JSON says.
    Strict,
    /// `\"` ends a string where what follows it could only follow a string's end: the writer did not
    /// escape a backslash at the end of a path.
    Lenient,
}

/// The members of an object, in order.
#[derive(Debug, Clone)]
pub(super) struct Members<'a> {
    bytes: &'a [u8],
    at: usize,
    escapes: Escapes,
    begun: bool,
}

impl<'a> Members<'a> {
    /// Of the object that `bytes` begin with.
    pub fn new(bytes: &'a [u8], escapes: Escapes) -> Self {
        Self { bytes, at: 0, escapes, begun: false }
    }

    /// Bytes up to here: the whole object, once there are no more members.
    pub fn consumed(&self) -> usize {
        self.at
    }

    /// The next key and value; `None` behind the last.
    #[inline]
    pub fn next(&mut self) -> Result<Option<(&'a [u8], Value<'a>)>, Stop> {
        if !self.begun {
            if self.bytes.get(self.at).ok_or(Stop::More)? != &b'{' {
                return Err(Stop::Malformed);
            }
            self.at += 1;
            self.begun = true;
        }
        let mut at = self.at;
        // A comma too many does not hide what follows.
        loop {
            match self.bytes.get(at).ok_or(Stop::More)? {
                b' ' | b'\n' | b'\r' | b'\t' | b',' => at += 1,
                b'"' => break,
                b'}' => {
                    self.at = at + 1;
                    return Ok(None);
                }
                _ => return Err(Stop::Malformed),
            }
        }
        let end = string_end(self.bytes, at + 1, self.escapes)?;
        let key = self.bytes.get(at + 1..end).ok_or(Stop::More)?;
        at = skip_blank(self.bytes, end + 1);
        if self.bytes.get(at).ok_or(Stop::More)? != &b':' {
            return Err(Stop::Malformed);
        }
        at = skip_blank(self.bytes, at + 1);
        let (value, after) = value(self.bytes, at, self.escapes)?;
        // Only these can follow a value: anything else means that a string ended too early or too late.
        let next = skip_blank(self.bytes, after);
        match self.bytes.get(next).ok_or(Stop::More)? {
            b',' => self.at = next + 1,
            b'}' => self.at = next,
            _ => return Err(Stop::Malformed),
        }
        Ok(Some((key, value)))
    }
}

/// The elements of an array, in order; stops at the first that is malformed.
pub(super) fn elements(array: &[u8]) -> impl Iterator<Item = Value<'_>> {
    let mut at = 1;
    std::iter::from_fn(move || {
        if array.first() != Some(&b'[') {
            return None;
        }
        while let Some(b' ' | b'\n' | b'\r' | b'\t' | b',') = array.get(at) {
            at += 1;
        }
        if array.get(at) == Some(&b']') {
            return None;
        }
        let (value, after) = value(array, at, Escapes::Strict).ok()?;
        at = after;
        Some(value)
    })
}

#[inline]
fn skip_blank(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// The value that begins at `at`, and where it ends.
#[inline]
pub(super) fn value(bytes: &[u8], at: usize, escapes: Escapes) -> Result<(Value<'_>, usize), Stop> {
    match bytes.get(at).ok_or(Stop::More)? {
        b'"' => {
            let end = string_end(bytes, at + 1, escapes)?;
            Ok((Value::Text(bytes.get(at + 1..end).ok_or(Stop::More)?), end + 1))
        }
        b'{' | b'[' => {
            let end = nested_end(bytes, at, escapes)?;
            Ok((Value::Nested(bytes.get(at..end).ok_or(Stop::More)?), end))
        }
        _ => {
            let rest = bytes.get(at..).unwrap_or_default();
            let length = rest.iter().take(LONGEST_WORD).position(|&byte| ends_word(byte));
            match length {
                Some(0) => Err(Stop::Malformed),
                Some(length) => Ok((Value::Word(&rest[..length]), at + length)),
                None if rest.len() < LONGEST_WORD => Err(Stop::More),
                None => Err(Stop::Malformed),
            }
        }
    }
}

pub(super) fn ends_word(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' | b':' | b'"' | b'{' | b'[')
}

/// Where the string whose content begins at `at` has its closing quote.
#[inline]
fn string_end(bytes: &[u8], mut at: usize, escapes: Escapes) -> Result<usize, Stop> {
    loop {
        let found = at + memchr2(b'"', b'\\', bytes.get(at..).ok_or(Stop::More)?).ok_or(Stop::More)?;
        if bytes[found] == b'"' {
            return Ok(found);
        }
        if escapes == Escapes::Lenient
            && bytes.get(found + 1) == Some(&b'"')
            && ends_string(bytes, found + 2)?
        {
            return Ok(found + 1);
        }
        at = found + 2;
    }
}

/// Whether what stands at `at` follows a string's end.
fn ends_string(bytes: &[u8], at: usize) -> Result<bool, Stop> {
    let at = skip_blank(bytes, at);
    match bytes.get(at).ok_or(Stop::More)? {
        b':' | b'}' | b']' => Ok(true),
        b',' => {
            let next = bytes.get(skip_blank(bytes, at + 1)).ok_or(Stop::More)?;
            Ok(matches!(next, b'"' | b'{' | b'[' | b'-' | b'0'..=b'9'))
        }
        _ => Ok(false),
    }
}

/// Where the object or array that begins at `at` ends. Depth is counted, not descended into.
fn nested_end(bytes: &[u8], mut at: usize, escapes: Escapes) -> Result<usize, Stop> {
    let mut depth = 0_usize;
    loop {
        let rest = bytes.get(at..).ok_or(Stop::More)?;
        at += rest.iter().position(|&byte| STRUCTURE[usize::from(byte)]).ok_or(Stop::More)?;
        match bytes[at] {
            b'"' => at = string_end(bytes, at + 1, escapes)? + 1,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            _ => {
                depth = depth.saturating_sub(1);
                at += 1;
                if depth == 0 {
                    return Ok(at);
                }
            }
        }
    }
}

const STRUCTURE: [bool; 256] = {
    let mut table = [false; 256];
    table[b'"' as usize] = true;
    table[b'{' as usize] = true;
    table[b'}' as usize] = true;
    table[b'[' as usize] = true;
    table[b']' as usize] = true;
    table
};

/// Escapes replaced; a backslash that begins none stays.
fn unescape(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let rest = chars.as_str();
        match chars.next() {
            Some(c @ ('"' | '\\' | '/')) => out.push(c),
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('u') => match code_point(rest) {
                Some((c, after)) => {
                    out.push(c);
                    chars = after.chars();
                }
                None => out.push_str("\\u"),
            },
            Some(c) => out.extend(['\\', c]),
            None => out.push('\\'),
        }
    }
    out
}

/// The character of `u0041`, or of a pair of surrogates, and what follows it.
fn code_point(text: &str) -> Option<(char, &str)> {
    fn unit(text: &str) -> Option<(u32, &str)> {
        let digits =
            text.strip_prefix('u')?.get(..4).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))?;
        Some((u32::from_str_radix(digits, 16).ok()?, text.get(5..)?))
    }
    let (first, after) = unit(text)?;
    if let 0xD800..=0xDBFF = first {
        let pair = after.strip_prefix('\\').and_then(unit).filter(|(low, _)| (0xDC00..=0xDFFF).contains(low));
        return Some(match pair {
            Some((low, after)) => {
                (char::from_u32(0x10000 + ((first - 0xD800) << 10) + (low - 0xDC00))?, after)
            }
            None => (char::REPLACEMENT_CHARACTER, after),
        });
    }
    Some((char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &[u8], escapes: Escapes) -> Result<Vec<(String, String)>, Stop> {
        let mut members = Members::new(text, escapes);
        let mut found = Vec::new();
        while let Some((key, value)) = members.next()? {
            found.push((String::from_utf8_lossy(key).into_owned(), value.text().into_owned()));
        }
        assert_eq!(members.consumed(), text.len());
        Ok(found)
    }

    fn strict(text: &str) -> Result<Vec<(String, String)>, Stop> {
        members(text.as_bytes(), Escapes::Strict)
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn all_kinds_of_values() {
        assert_eq!(
            strict(r#"{"a": 1.5 ,"b":"x\"y\\","c":{"d":[1,{"e":"}"}]},"f":NaN,"g":-Infinity, "a":null}"#),
            Ok(pairs(&[
                ("a", "1.5"),
                ("b", "x\"y\\"),
                ("c", r#"{"d":[1,{"e":"}"}]}"#),
                ("f", "NaN"),
                ("g", "-Infinity"),
                ("a", "null"),
            ]))
        );
        assert_eq!(strict("{}"), Ok(vec![]));
        assert_eq!(strict(r#"{,"a":1,,}"#), Ok(pairs(&[("a", "1")])));
    }

    #[test]
    fn every_cut_asks_for_more() {
        let text = r#"{"a": 1.5 ,"b":"x\"y\\","c":{"d":[1,{"e":"}"}]},"f":NaN}"#;
        for length in 0..text.len() {
            assert_eq!(strict(&text[..length]), Err(Stop::More), "{}", &text[..length]);
        }
    }

    #[test]
    fn what_is_not_json() {
        for text in [r#"{"a" 1}"#, r#"{a:1}"#, r#"{"a":}"#, r#"{"a":"b"c"}"#, r#"["a"]"#, r#"{"a":1 "b":2}"#]
        {
            assert_eq!(strict(text), Err(Stop::Malformed), "{text}");
        }
        let long = format!(r#"{{"a":{}}}"#, "1".repeat(5000));
        assert_eq!(strict(&long), Err(Stop::Malformed));
    }

    #[test]
    fn a_path_that_ends_with_a_single_backslash() {
        let text =
            br#"{"name":"C:\data\","ts":1,"args":{"p":"D:\","q":["\\a\", "b"]}, "x": "say \"hi\", ok"}"#;
        assert_eq!(members(text, Escapes::Strict), Err(Stop::Malformed));
        let found = members(text, Escapes::Lenient).unwrap();
        assert_eq!(found[0], ("name".to_owned(), "C:\\data\\".to_owned()));
        assert_eq!(found[2].1, r#"{"p":"D:\","q":["\\a\", "b"]}"#);
        assert_eq!(found[3].1, "say \"hi\", ok");
    }

    #[test]
    fn escapes() {
        for (raw, text) in [
            (r"a\/b\n\t", "a/b\n\t"),
            (r"\u00e9\u4e2d", "é中"),
            (r"\ud83d\ude00!", "😀!"),
            (r"\ud83d!", "\u{fffd}!"),
            (r"C:\Users\dir", "C:\\Users\\dir"),
            (r"\u12", "\\u12"),
        ] {
            assert_eq!(Value::Text(raw.as_bytes()).text(), text, "{raw}");
        }
        assert_eq!(Value::Text(b"a\xffb").text(), "a\u{fffd}b");
    }

    #[test]
    fn numbers_in_strings() {
        assert_eq!(Value::Text(b" 12 ").integer(), Some(12));
        assert_eq!(Value::Word(b"12.0").integer(), Some(12));
        assert_eq!(Value::Word(b"-1").integer(), Some(u64::MAX));
        assert_eq!(Value::Word(b"18446744073709551615").integer(), Some(u64::MAX));
        for word in ["1.5", "NaN", "", "1e3"] {
            assert_eq!(Value::Word(word.as_bytes()).integer(), None, "{word}");
        }
    }

    #[test]
    fn array_elements() {
        let all: Vec<_> =
            elements(br#"[1, "a,]", [2], {"b":3}]"#).map(|value| value.text().into_owned()).collect();
        assert_eq!(all, ["1", "a,]", "[2]", r#"{"b":3}"#]);
        assert_eq!(elements(b"{}").count(), 0);
        assert_eq!(elements(b"[]").count(), 0);
    }
}
