//! How far reading has come.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Hears how far [`read_with`](super::read_with) has come, from the threads that read.
///
/// Bytes are those of the files on disk, compressed or not. Every byte of every file is told once, in
/// portions of a buffer (at most 256 KiB); what is not wanted of a file, and a database, which is
/// not read from its beginning to its end, is told at once when the file is done with.
pub trait Progress: Sync {
    /// Reading begins, of so many files with so many bytes in all.
    fn begin(&self, files: usize, bytes: u64);

    /// So many more bytes are done.
    fn advance(&self, bytes: u64);

    /// Reading has ended, whether it succeeded or not.
    fn finish(&self);
}

/// Nobody listens.
impl Progress for () {
    fn begin(&self, _: usize, _: u64) {}

    fn advance(&self, _: u64) {}

    fn finish(&self) {}
}

/// The files of a reading.
pub(super) struct Meters<'p> {
    progress: &'p dyn Progress,
    files: HashMap<PathBuf, Meter<'p>>,
}

impl<'p> Meters<'p> {
    /// Begins a reading of `files`.
    pub fn begin(progress: &'p dyn Progress, files: impl Iterator<Item = PathBuf>) -> Self {
        let files: HashMap<_, _> = files
            .map(|path| {
                // What cannot be asked cannot be read either, and is said there.
                let length = fs::metadata(&path).map_or(0, |data| data.len());
                (path, Meter { progress, length, seen: AtomicU64::new(0) })
            })
            .collect();
        progress.begin(files.len(), files.values().map(|meter| meter.length).sum());
        Self { progress, files }
    }

    /// The meter of a file.
    pub fn of(&self, path: &Path) -> Option<&Meter<'p>> {
        self.files.get(path)
    }

    /// Nothing more of this file will be read.
    pub fn done(&self, path: &Path) {
        if let Some(meter) = self.of(path) {
            meter.reach(meter.length);
        }
    }
}

impl Drop for Meters<'_> {
    fn drop(&mut self) {
        for meter in self.files.values() {
            meter.reach(meter.length);
        }
        self.progress.finish();
    }
}

/// How far a file has been read.
pub(super) struct Meter<'p> {
    progress: &'p dyn Progress,
    length: u64,
    /// A file may be opened several times, at once even; what was seen once is not told again.
    seen: AtomicU64,
}

impl Meter<'_> {
    fn reach(&self, position: u64) {
        // A file may grow meanwhile.
        let position = position.min(self.length);
        let before = self.seen.fetch_max(position, Ordering::Relaxed);
        if position > before {
            self.progress.advance(position - before);
        }
    }
}

/// A file that is read from its beginning, and whose meter hears of it.
pub(super) struct Metered<'m, R> {
    input: R,
    at: u64,
    meter: Option<&'m Meter<'m>>,
}

impl<'m, R> Metered<'m, R> {
    pub fn new(input: R, meter: Option<&'m Meter<'m>>) -> Self {
        Self { input, at: 0, meter }
    }
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(out)?;
        self.at += count as u64;
        if let Some(meter) = self.meter {
            meter.reach(self.at);
        }
        Ok(count)
    }
}
