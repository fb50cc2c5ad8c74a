//! How much a single part of a document may take.

use std::cell::Cell;
use std::io::{self, Read};

/// Bytes of one record or value, at most. The parser holds a value whole, and a few bytes of compressed
/// content may stand for a value larger than memory.
pub(super) const MOST: u64 = 64 << 20;

/// How much may still be read of the part of the document that the parser is at.
#[derive(Debug)]
pub(super) struct Room {
    most: u64,
    left: Cell<u64>,
    exceeded: Cell<bool>,
}

impl Room {
    /// Room for parts of `most` bytes.
    pub fn new(most: u64) -> Self {
        Self { most, left: Cell::new(most), exceeded: Cell::new(false) }
    }

    /// A record, a key or a value that is kept begins.
    pub fn begin(&self) {
        self.left.set(self.most);
    }

    /// A value begins that is skipped without being held.
    pub fn unlimited(&self) {
        self.left.set(u64::MAX);
    }

    /// Whether a part was too long: reading has ended with an error then.
    pub fn exceeded(&self) -> bool {
        self.exceeded.get()
    }
}

/// Content that ends with an error where a part of it takes more room than there is.
pub(super) struct Bounded<'r, R> {
    input: R,
    room: &'r Room,
}

impl<'r, R> Bounded<'r, R> {
    pub fn new(input: R, room: &'r Room) -> Self {
        Self { input, room }
    }
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(out)?;
        match self.room.left.get().checked_sub(count as u64) {
            Some(left) => self.room.left.set(left),
            None => {
                self.room.exceeded.set(true);
                let mib = self.room.most >> 20;
                return Err(io::Error::other(format!(
                    "longer than {mib} MiB, which nothing in a timeline is: the file is damaged or no timeline"
                )));
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_are_bounded_not_the_whole() {
        let room = Room::new(MOST);
        let mut input = Bounded::new(io::repeat(b'x'), &room);
        let mut part = vec![0; 40 << 20];
        input.read_exact(&mut part).unwrap();
        room.begin();
        input.read_exact(&mut part).unwrap();
        room.unlimited();
        input.read_exact(&mut part).unwrap();
        input.read_exact(&mut part).unwrap();
        room.begin();
        input.read_exact(&mut part).unwrap();
        assert!(!room.exceeded());
        assert!(input.read_exact(&mut part).unwrap_err().to_string().contains("64 MiB"));
        assert!(room.exceeded());
    }
}
