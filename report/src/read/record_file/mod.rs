//! Record files: Arrow IPC streams of [`crate::record`]'s columns.
//!
//! A file may be torn at any byte, or damaged within. Everything that is whole is read; what is not
//! is counted in [`Input::skipped`] and said in the warnings.

mod decode;
mod frame;
mod rows;
mod status;

pub use status::{RankStatus, run_status};

use super::ReadError;
use super::builder::Builder;
use super::progress::{Meter, Metered};
use crate::gather::Thinning;
use crate::record::Header;
use crate::timeline::Input;
use decode::{Decoded, Decoder, Fault};
use frame::{Frames, Next};
use rows::Assembly;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

const BUFFER: usize = 1 << 16;

/// A record file whose header was read.
pub(super) struct RecordFile<R> {
    path: String,
    frames: Frames<R>,
    decoder: Decoder,
    /// What was known when the file was created.
    pub header: Header,
}

/// Opens a record file and reads its header; `meter` hears what is read of it.
pub(super) fn open<'m>(
    path: &Path,
    meter: Option<&'m Meter<'m>>,
) -> Result<RecordFile<BufReader<Metered<'m, File>>>, ReadError> {
    let file = File::open(path).map_err(ReadError::io(path))?;
    let length = file.metadata().map_err(ReadError::io(path))?.len();
    RecordFile::new(path, BufReader::with_capacity(BUFFER, Metered::new(file, meter)), length)
}

/// As [`open`], of a record that is in memory.
pub(super) fn open_in_memory<'b>(path: &Path, record: &'b [u8]) -> Result<RecordFile<&'b [u8]>, ReadError> {
    RecordFile::new(path, record, record.len() as u64)
}

impl<R: Read> RecordFile<R> {
    fn new(path: &Path, input: R, length: u64) -> Result<Self, ReadError> {
        let mut frames = Frames::new(input, length);
        let fault = |what: &str| {
            let what = what.to_owned();
            Err(ReadError::Record { path: path.to_owned(), at: 0, what })
        };
        let first = match frames.next().map_err(ReadError::io(path))? {
            Next::Frame(frame) => frame,
            Next::EndOfFile => return Err(ReadError::Empty { path: path.to_owned() }),
            Next::Torn { .. } => {
                return fault("the file ends within its header: the program ended before its first record");
            }
            Next::End { .. } => return fault("the stream ends before its schema"),
            Next::Damaged { what, .. } => return fault(&what),
        };
        match Decoder::new(&first) {
            Ok((decoder, header)) => Ok(Self { path: path.display().to_string(), frames, decoder, header }),
            Err(Fault::Header(source)) => Err(ReadError::Header { path: path.to_owned(), source }),
            Err(Fault::Stream(what) | Fault::Batch { what, .. }) => fault(&what),
        }
    }

    /// Reads everything that is whole into `builder`.
    pub fn read(self, builder: &mut Builder) -> Result<(), ReadError> {
        self.read_thinned(builder, Thinning::NONE)
    }

    /// As [`read`](Self::read), but of the steps only those that `thinning` keeps.
    pub fn read_thinned(mut self, builder: &mut Builder, thinning: Thinning) -> Result<(), ReadError> {
        let mut assembly = Assembly::new(builder, &self.header, thinning);
        let mut torn = None;
        let mut damage = None;
        // A batch is written together with the dictionaries that it needs, which precede it.
        let mut begun = None;
        loop {
            match self.frames.next().map_err(ReadError::io(&self.path))? {
                Next::Frame(frame) => match self.decoder.decode(&frame) {
                    Ok(Decoded::Batch(mut rows)) => {
                        begun = None;
                        assembly.add(builder, &mut rows);
                    }
                    Ok(Decoded::Nothing) => {
                        begun.get_or_insert(frame.at);
                    }
                    Err(Fault::Batch { rows, what }) => {
                        begun = None;
                        assembly.skip("damaged", rows.max(1));
                        damage.get_or_insert((frame.at, what));
                    }
                    Err(fault) => {
                        let what = match fault {
                            Fault::Header(error) => error.to_string(),
                            Fault::Stream(what) | Fault::Batch { what, .. } => what,
                        };
                        damage = Some((frame.at, format!("{what}; the rest of the file cannot be read")));
                        break;
                    }
                },
                Next::EndOfFile => {
                    torn = begun;
                    break;
                }
                Next::End { trailing: 0 } => break,
                Next::End { trailing } => {
                    builder.warn(format!(
                        "{}: {trailing} bytes behind the end of the record were ignored.",
                        self.path
                    ));
                    break;
                }
                Next::Torn { at, maybe_end } => {
                    // Nothing follows the end row but the end marker.
                    torn = begun.or(Some(at)).filter(|_| !(maybe_end && assembly.ended()));
                    break;
                }
                Next::Damaged { at, what } => {
                    damage = Some((at, format!("{what}; the rest of the file cannot be read")));
                    break;
                }
            }
        }
        if let Some((at, what)) = damage {
            assembly.anomaly("damaged");
            builder.warn(format!("{} is damaged at byte {at}: {what}.", self.path));
        }
        if let Some(at) = torn {
            assembly.anomaly("torn_tail");
            assembly.skip("torn", 1);
            builder.warn(format!(
                "{} ends within the batch that begins at byte {at}: its last records are lost.",
                self.path
            ));
        }
        let input = Input {
            path: self.path,
            format: "commtrace-record".to_owned(),
            rank: Some(self.header.rank),
            ..Input::default()
        };
        assembly.finish(builder, input);
        Ok(())
    }
}
