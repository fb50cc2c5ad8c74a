//! The database as a file that SQLite can open: the user's own, or a decompressed copy.

use crate::read::ReadError;
use crate::read::compress::Opened;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The first bytes of every SQLite database.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";
/// The largest database that is decompressed, in bytes.
const LARGEST_COPY: u64 = 4 << 30;
const CHUNK: usize = 1 << 18;

/// A database file.
pub(super) struct Content {
    path: PathBuf,
    /// Deleted with this value.
    _copy: Option<NamedTempFile>,
    /// Bytes of the file.
    pub length: u64,
    /// Bytes that it ought to have by its header, if the header says.
    pub expected: Option<u64>,
    /// Why a compressed file could not be decompressed to its end.
    pub fault: Option<io::Error>,
}

impl Content {
    /// The database in `path`, whose content was `opened`.
    pub fn new(path: &Path, opened: Opened<'_>) -> Result<Self, ReadError> {
        let expected = size_in_header(&opened.start);
        if !opened.compressed {
            let length = std::fs::metadata(path).map_err(ReadError::io(path))?.len();
            return Ok(Self { path: path.to_owned(), _copy: None, length, expected, fault: None });
        }
        if expected.is_some_and(|size| size > LARGEST_COPY) {
            return Err(too_large(path));
        }
        Self::decompress(path, opened, expected)
    }

    fn decompress(path: &Path, mut opened: Opened<'_>, expected: Option<u64>) -> Result<Self, ReadError> {
        let mut copy = NamedTempFile::new().map_err(ReadError::io(std::env::temp_dir()))?;
        let mut buffer = vec![0; CHUNK];
        let mut length = 0;
        let mut fault = None;
        // What follows the last page is no part of the database, however much it is.
        let most = expected.unwrap_or(LARGEST_COPY + 1);
        while length < most {
            let room = usize::try_from(most - length).unwrap_or(CHUNK).min(CHUNK);
            match opened.reader.read(buffer.get_mut(..room).unwrap_or_default()) {
                Ok(0) => break,
                Ok(count) => {
                    let read = buffer.get(..count).unwrap_or_default();
                    copy.write_all(read).map_err(ReadError::io(copy.path()))?;
                    length += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    fault = Some(error);
                    break;
                }
            }
        }
        if length > LARGEST_COPY {
            return Err(too_large(path));
        }
        let place = copy.path().to_owned();
        Ok(Self { path: place, _copy: Some(copy), length, expected, fault })
    }

    /// Where SQLite finds the database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the end of the database is missing.
    pub fn is_cut(&self) -> bool {
        self.expected.is_some_and(|expected| self.length < expected)
    }

    /// Whether a write-ahead log beside the file holds content that is not in it.
    pub fn has_log(&self) -> bool {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        std::fs::metadata(log).is_ok_and(|log| log.len() > 0)
    }
}

fn too_large(path: &Path) -> ReadError {
    ReadError::Database {
        path: path.to_owned(),
        what: format!(
            "the database in it has more than {} GiB: decompress it first (gunzip, unzstd) and read the result",
            LARGEST_COPY >> 30
        ),
    }
}

/// Bytes of the database by its header: pages times page size ("Database File Format", section 1.3).
/// `None` where the count of pages is not to be relied on.
fn size_in_header(start: &[u8]) -> Option<u64> {
    let page_size = match u16::from_be_bytes(start.get(16..18)?.try_into().ok()?) {
        1 => 65_536,
        size => u64::from(size),
    };
    let number = |at: usize| Some(u32::from_be_bytes(start.get(at..at + 4)?.try_into().ok()?));
    let (changes, pages, valid_for) = (number(24)?, number(28)?, number(92)?);
    (changes == valid_for && pages > 0).then(|| page_size * u64::from(pages))
}
