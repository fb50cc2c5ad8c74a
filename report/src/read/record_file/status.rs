//! Which ranks of a run have finished their files.

use super::super::ReadError;
use super::super::folder::record_paths;
use super::frame::{Frames, Next};
use crate::record::Header;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// One rank's file of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankStatus {
    /// Global rank.
    pub rank: u32,
    /// The file.
    pub path: PathBuf,
    /// What was known when the file was created.
    pub header: Header,
    /// Whether the file was finished: nothing will be added to it.
    pub ended: bool,
}

/// The files of run `run_id` in `folder`, in order of rank. A rank that was restarted has several.
///
/// Reads each file's header and last bytes only, so that it can be polled while the run goes on.
/// Files that cannot be opened or have no complete header yet are left out.
///
/// # Errors
///
/// [`ReadError::Io`] if the folder cannot be listed.
pub fn run_status(folder: &Path, run_id: &str) -> Result<Vec<RankStatus>, ReadError> {
    let mut ranks: Vec<RankStatus> = record_paths(folder)?
        .into_iter()
        .filter_map(|path| {
            let header = super::open(&path, None).ok()?.header;
            if header.run_id != run_id {
                return None;
            }
            let ended = ended(&path).unwrap_or(false);
            Some(RankStatus { rank: header.rank, path, header, ended })
        })
        .collect();
    ranks.sort_by(|a, b| (a.rank, &a.path).cmp(&(b.rank, &b.path)));
    Ok(ranks)
}

/// Whether the stream in `path` has its end marker.
fn ended(path: &Path) -> io::Result<bool> {
    const MARKER: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length < 8 {
        return Ok(false);
    }
    let mut last = [0; 8];
    file.seek(SeekFrom::End(-8))?;
    file.read_exact(&mut last)?;
    if last != MARKER {
        return Ok(false);
    }
    // A batch may happen to end with the same bytes: walk the messages, passing over their bodies.
    file.seek(SeekFrom::Start(0))?;
    let mut frames = Frames::new(BufReader::with_capacity(4096, file), length);
    loop {
        let skip = |input: &mut BufReader<File>, length: u64| {
            i64::try_from(length).map_or(Ok(()), |length| input.seek_relative(length))
        };
        match frames.next_skipping(skip)? {
            Next::Frame(_) => {}
            Next::End { .. } => return Ok(true),
            Next::EndOfFile | Next::Torn { .. } | Next::Damaged { .. } => return Ok(false),
        }
    }
}
