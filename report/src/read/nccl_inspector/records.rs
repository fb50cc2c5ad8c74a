//! The objects of a dump, one after the other.

use crate::read::lines::Lines;
use std::io::{self, Read};

/// A longer object is none of a dump.
const LONGEST: usize = 1 << 20;

/// Splits a dump into its objects: one a line as the Inspector writes them, or over several lines with
/// indents as other tools print them.
pub(super) struct Records<R> {
    lines: Lines<R>,
    record: Vec<u8>,
    /// Where the record that is being put together begins.
    begin: u64,
    depth: i64,
    /// The line that ended a record by beginning the next.
    held: Option<(Vec<u8>, u64)>,
    /// Records that another one broke off.
    pub torn: u64,
    /// Lines that belong to no record.
    pub malformed: u64,
    pub too_long: u64,
    unfinished: Option<u64>,
}

impl<R: Read> Records<R> {
    pub fn new(reader: R) -> Self {
        Self {
            lines: Lines::new(reader),
            record: Vec::new(),
            begin: 0,
            depth: 0,
            held: None,
            torn: 0,
            malformed: 0,
            too_long: 0,
            unfinished: None,
        }
    }

    /// The next whole object; `None` at the end.
    pub fn next(&mut self) -> Option<&[u8]> {
        self.record.clear();
        self.depth = 0;
        loop {
            let (line, at) = match self.held.take() {
                Some(held) => held,
                None => match self.lines.next() {
                    Some(line) if !line.whole => {
                        self.too_long += 1;
                        self.record.clear();
                        self.depth = 0;
                        continue;
                    }
                    Some(line) => (line.bytes.to_vec(), line.at),
                    None => {
                        if !self.record.is_empty() {
                            self.unfinished = Some(self.begin);
                        }
                        return None;
                    }
                },
            };
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            if self.record.is_empty() {
                if !line.trim_ascii_start().starts_with(b"{") {
                    self.malformed += 1;
                    continue;
                }
                self.begin = at;
            } else if line.starts_with(b"{") {
                // Objects within objects are indented, so this one begins anew.
                self.torn += 1;
                self.record.clear();
                self.depth = 0;
                self.begin = at;
            }
            self.record.extend_from_slice(line);
            self.record.push(b' ');
            self.depth = self.depth.saturating_add(balance(line));
            if self.depth <= 0 {
                return Some(&self.record);
            }
            if self.record.len() > LONGEST {
                self.too_long += 1;
                self.record.clear();
                self.depth = 0;
            }
        }
    }

    /// Where the dump breaks off, and why if reading failed.
    pub fn cut(&mut self) -> Option<(u64, Option<io::Error>)> {
        let fault = self.lines.take_fault();
        match (self.unfinished, fault) {
            (Some(at), fault) => Some((at, fault)),
            (None, Some(fault)) => Some((self.lines.at(), Some(fault))),
            (None, None) => None,
        }
    }
}

/// How many brackets `line` opens and does not close, those in strings aside.
fn balance(line: &[u8]) -> i64 {
    let (mut depth, mut text, mut escaped) = (0, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            b'{' | b'[' if !text => depth += 1,
            b'}' | b']' if !text => depth -= 1,
            _ => {}
        }
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> (Vec<String>, u64, Option<u64>) {
        let mut records = Records::new(text.as_bytes());
        let mut found = Vec::new();
        while let Some(record) = records.next() {
            found.push(String::from_utf8_lossy(record).split_whitespace().collect());
        }
        (found, records.torn, records.cut().map(|(at, _)| at))
    }

    #[test]
    fn lines_and_indented_objects() {
        assert_eq!(
            split("{\"a\":1}\n{\"b\":[{}]}\n"),
            (vec!["{\"a\":1}".into(), "{\"b\":[{}]}".into()], 0, None)
        );
        assert_eq!(
            split("{\n  \"a\": {\n    \"b\": \"}\"\n  }\n}\n"),
            (vec!["{\"a\":{\"b\":\"}\"}}".into()], 0, None)
        );
    }

    #[test]
    fn torn_records() {
        assert_eq!(split("{\"a\":1}\n{\"b\":"), (vec!["{\"a\":1}".into()], 0, Some(8)));
        assert_eq!(split("{\"b\":{\n{\"a\":1}\n"), (vec!["{\"a\":1}".into()], 1, None));
        assert_eq!(split(""), (vec![], 0, None));
    }
}
