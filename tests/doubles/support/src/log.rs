//! The stand-in driver's log of when each piece of work ran.

use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// A piece of work that a stream did.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Piece {
    /// The process.
    pub pid: u32,
    /// The device's number.
    pub device: i32,
    /// The stream's handle as the application holds it; 0 for the legacy stream, 2 for a thread's own.
    pub stream: u64,
    /// `kernel`, `host`, `memcpy`, `memset`, `nccl`; with `DOUBLE_CUDA_LOG_EVENTS` also `event`, `wait`.
    pub kind: String,
    /// Which kernel, copy or collective.
    pub name: String,
    /// When the stream came to it, in ns of CLOCK_MONOTONIC.
    pub start_ns: i64,
    /// When it ended, in ns of CLOCK_MONOTONIC.
    pub end_ns: i64,
}

impl Piece {
    /// Reads a file of `DOUBLE_CUDA_LOG`; nothing if there is none. A stream's pieces are in their order.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is not such a file.
    pub fn read(path: &Path) -> std::io::Result<Vec<Piece>> {
        lines(path)?.iter().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// How long it took, in ns.
    pub fn duration_ns(&self) -> i64 {
        self.end_ns - self.start_ns
    }
}

/// The lines of a file, none if it does not exist.
pub(crate) fn lines(path: &Path) -> std::io::Result<Vec<String>> {
    match std::fs::File::open(path) {
        Ok(file) => BufReader::new(file).lines().collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
