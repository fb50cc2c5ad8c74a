//! Rows to record batches.

use super::columns::{Columns, Full};
use super::{Header, Row, schema};
use arrow_array::RecordBatch;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{ArrowError, SchemaRef};
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

/// Why a record could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The rows could not be encoded.
    #[error("cannot encode a record batch: {0}")]
    Encode(#[from] ArrowError),
    /// An earlier write failed, possibly within a message. Nothing can be appended behind it: a reader
    /// stops there.
    #[error("an earlier write to this record failed; nothing more can be appended")]
    Broken,
}

/// Writes rows as an Arrow IPC stream.
///
/// Rows are kept until [`flush`](Self::flush), which writes them as one LZ4-compressed record batch.
/// Every batch is handed to the output as a single write, so that a process killed between two
/// flushes leaves whole batches.
///
/// ```
/// use commtrace_report::record::{Header, RecordWriter, Row, RowKind};
/// let header = Header {
///     rank: 0,
///     host: "node0".into(),
///     boot_id: "cfb7…".into(),
///     pid: 1,
///     run_id: "job-1".into(),
///     start_unix_ns: 1_700_000_000_000_000_000,
///     start_mono_ns: 0,
///     world_size: Some(1),
///     writer_version: "0.1.0".into(),
/// };
/// let mut writer = RecordWriter::new(Vec::new(), &header)?;
/// writer.push(&Row { start_ns: Some(5), dur_ns: Some(10), ..Row::new(RowKind::Compute, "forward") });
/// assert_eq!(writer.pending(), 1);
/// writer.flush()?;
/// let file: Vec<u8> = writer.finish()?;
/// assert!(!file.is_empty());
/// # Ok::<(), commtrace_report::record::RecordError>(())
/// ```
pub struct RecordWriter<W: Write> {
    out: W,
    /// Encodes into memory; emptied into `out` after every batch.
    encoder: StreamWriter<Vec<u8>>,
    schema: SchemaRef,
    columns: Columns,
    /// Batches that were full before the next flush.
    sealed: Vec<RecordBatch>,
    sealed_rows: usize,
    written: u64,
    encode_error: Option<ArrowError>,
    broken: bool,
}

impl<W: Write> RecordWriter<W> {
    /// Writes the schema.
    ///
    /// # Errors
    ///
    /// [`RecordError::Io`] if the output cannot be written.
    pub fn new(mut out: W, header: &Header) -> Result<Self, RecordError> {
        let schema = schema().with_metadata(header.to_metadata());
        // Padding to 8 bytes, the least that the format allows, since most buffers of a batch are
        // smaller than the usual 64.
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?
            .try_with_compression(Some(CompressionType::LZ4_FRAME))?;
        let mut encoder = StreamWriter::try_new_with_options(Vec::new(), &schema, options)?;
        let written = write_out(&mut encoder, &mut out)?;
        Ok(Self {
            out,
            encoder,
            schema: Arc::new(schema),
            columns: Columns::new(),
            sealed: Vec::new(),
            sealed_rows: 0,
            written,
            encode_error: None,
            broken: false,
        })
    }

    /// Adds a row to the pending batch.
    ///
    /// Rows are held in memory until the next [`flush`](Self::flush); after every 65,536 of them, a new
    /// batch begins.
    pub fn push(&mut self, row: &Row<'_>) {
        if let Err(Full) = self.columns.push(row) {
            self.seal();
            // An empty batch takes any row.
            let _ = self.columns.push(row);
        }
    }

    /// Rows not yet written.
    pub fn pending(&self) -> usize {
        self.sealed_rows + self.columns.rows()
    }

    /// Writes the pending rows as one batch and flushes the output. Does nothing without rows.
    ///
    /// # Errors
    ///
    /// [`RecordError::Io`] if the output cannot be written. The rows are lost then, and since the
    /// output may end within a message, every later call returns [`RecordError::Broken`].
    pub fn flush(&mut self) -> Result<(), RecordError> {
        if self.broken {
            return Err(RecordError::Broken);
        }
        let result = self.write_pending();
        self.broken = result.is_err();
        result
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// The output.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Writes the pending rows and the end-of-stream marker, and returns the output.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn finish(mut self) -> Result<W, RecordError> {
        self.flush()?;
        self.encoder.finish()?;
        write_out(&mut self.encoder, &mut self.out)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_pending(&mut self) -> Result<(), RecordError> {
        if self.pending() == 0 && self.encode_error.is_none() {
            return Ok(());
        }
        if self.columns.rows() > 0 {
            self.seal();
        }
        self.sealed_rows = 0;
        for batch in std::mem::take(&mut self.sealed) {
            self.encoder.write(&batch)?;
            self.written += write_out(&mut self.encoder, &mut self.out)?;
        }
        if let Some(error) = self.encode_error.take() {
            return Err(error.into());
        }
        Ok(self.out.flush()?)
    }

    fn seal(&mut self) {
        let rows = self.columns.rows();
        match self.columns.take(&self.schema) {
            Ok(batch) => {
                self.sealed.push(batch);
                self.sealed_rows += rows;
            }
            Err(error) => self.encode_error = Some(error),
        }
    }
}

impl<W: Write> fmt::Debug for RecordWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordWriter")
            .field("pending", &self.pending())
            .field("bytes_written", &self.written)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// Moves the encoder's bytes to the output and says how many there were.
fn write_out(encoder: &mut StreamWriter<Vec<u8>>, out: &mut impl Write) -> io::Result<u64> {
    let bytes = encoder.get_mut();
    let result = out.write_all(bytes);
    let count = bytes.len() as u64;
    bytes.clear();
    result.map(|()| count)
}
