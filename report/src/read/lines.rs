//! The lines of a text, each in bounded memory.

use memchr::memchr;
use std::io::{self, BufRead, BufReader, Read};

/// A line that is longer gives its beginning only.
pub(super) const LONGEST: usize = 1 << 20;

/// A line without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub bytes: &'a [u8],
    /// Where it begins.
    pub at: u64,
    /// False if it is longer than what is given of it.
    pub whole: bool,
    /// Whether it ends with a line break; the last of a text may not.
    pub ended: bool,
}

/// Reads line by line.
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
    at: u64,
    fault: Option<io::Error>,
}

impl<R: Read> Lines<R> {
    pub fn new(reader: R) -> Self {
        Self::with_longest(reader, LONGEST)
    }

    fn with_longest(reader: R, longest: usize) -> Self {
        let reader = BufReader::with_capacity(1 << 16, reader);
        Self { reader, line: Vec::new(), longest, at: 0, fault: None }
    }

    /// The next line; `None` at the end, or where reading on fails.
    pub fn next(&mut self) -> Option<Line<'_>> {
        self.line.clear();
        let (begin, mut whole, mut ended, mut any) = (self.at, true, false, false);
        while !ended {
            let chunk = match self.reader.fill_buf() {
                Ok([]) => break,
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.fault = Some(error);
                    break;
                }
            };
            any = true;
            let found = memchr(b'\n', chunk);
            let text = chunk.get(..found.unwrap_or(chunk.len())).unwrap_or(chunk);
            let room = self.longest.saturating_sub(self.line.len());
            whole &= text.len() <= room;
            self.line.extend_from_slice(text.get(..room).unwrap_or(text));
            ended = found.is_some();
            let used = text.len() + usize::from(ended);
            self.at += used as u64;
            self.reader.consume(used);
        }
        let bytes = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        any.then_some(Line { bytes, at: begin, whole, ended })
    }

    /// Bytes that were read.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Why nothing more can be read, if it is not the end.
    pub fn take_fault(&mut self) -> Option<io::Error> {
        self.fault.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<(String, u64, bool, bool)> {
        let mut lines = Lines::with_longest(text, 4);
        let mut found = Vec::new();
        while let Some(line) = lines.next() {
            found.push((String::from_utf8_lossy(line.bytes).into_owned(), line.at, line.whole, line.ended));
        }
        found
    }

    #[test]
    fn long_lines_are_clipped_and_the_last_may_lack_its_end() {
        let expected =
            [("ab", 0, true, true), ("", 4, true, true), ("1234", 5, false, true), ("x", 12, true, false)];
        let expected = expected.map(|(text, at, whole, ended)| (text.to_owned(), at, whole, ended));
        assert_eq!(lines(b"ab\r\n\n123456\nx"), expected);
        assert_eq!(lines(b""), []);
    }
}
