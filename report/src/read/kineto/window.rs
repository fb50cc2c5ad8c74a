//! A part of a file in memory, moved along while it is read.

use std::io::{self, Read};

const BUFFER: usize = 1 << 18;
/// The longest value that is taken into memory.
pub(super) const LONGEST: usize = 64 << 20;

/// What came of asking for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    /// There is more to see.
    Data,
    /// The content ends here, or cannot be read further: see [`Window::fault`].
    End,
    /// What is to be seen at once is longer than the window may be.
    TooLong,
}

/// The content from a position on, as far as it was read.
pub(super) struct Window<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Position of the buffer's first byte in the content.
    base: u64,
    ended: bool,
    longest: usize,
    /// Why the content cannot be read to its end.
    pub fault: Option<io::Error>,
}

impl<R: Read> Window<R> {
    /// Of `input`, `longest` bytes at a time at most.
    pub fn new(input: R, longest: usize) -> Self {
        let buffer = vec![0; BUFFER];
        Self { input, buffer, start: 0, end: 0, base: 0, ended: false, longest, fault: None }
    }

    /// What was read and not consumed.
    pub fn data(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Position in the content of the first byte of [`data`](Self::data).
    pub fn position(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Moves on by `count` bytes, at most to the end of [`data`](Self::data).
    pub fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
    }

    /// Reads on behind [`data`](Self::data).
    pub fn more(&mut self) -> More {
        if self.ended {
            return More::End;
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.base += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            if self.buffer.len() >= self.longest {
                return More::TooLong;
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.input.read(free) {
                Ok(0) => break,
                Ok(count) => {
                    self.end += count;
                    return More::Data;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.fault = Some(error);
                    break;
                }
            }
        }
        self.ended = true;
        More::End
    }

    /// Reads what is left, within reason, and gives the error that it ends with.
    pub fn drain(&mut self) -> Option<io::Error> {
        let from = self.position();
        while self.position() - from < self.longest as u64 {
            self.consume(usize::MAX);
            if self.more() != More::Data {
                break;
            }
        }
        self.fault.take()
    }

    /// The next byte that is not white space, which is consumed; `None` at the end.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let blank = self.data().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.consume(blank);
            if let Some(&byte) = self.data().first() {
                return Some(byte);
            }
            if self.more() != More::Data {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_longer_than_the_buffer() {
        let content: Vec<u8> = (0..BUFFER * 3).map(|i| (i % 251) as u8).collect();
        let mut window = Window::new(&content[..], LONGEST);
        let mut seen = Vec::new();
        while window.more() == More::Data {
            let take = window.data().len() / 2 + 1;
            assert_eq!(window.position(), seen.len() as u64);
            seen.extend_from_slice(&window.data()[..take]);
            window.consume(take);
        }
        seen.extend_from_slice(window.data());
        assert_eq!(seen, content);
    }

    #[test]
    fn memory_is_bounded() {
        let mut window = Window::new(io::repeat(b'x'), BUFFER * 4);
        let last = loop {
            match window.more() {
                More::Data => {}
                other => break other,
            }
        };
        assert_eq!(last, More::TooLong);
        assert_eq!(window.data().len(), BUFFER * 4);
    }
}
