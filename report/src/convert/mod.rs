//! A timeline in another format: record files here, timeline JSON by
//! [`write_timeline_json`](crate::read::write_timeline_json) and Chrome traces by
//! [`write_chrome`](crate::render::write_chrome).
//!
//! Instants stay the whole nanoseconds that they are. What a format has no place for is not lost in
//! silence: [`left_out`] says it.

mod left_out;
mod rows;

pub use left_out::{Target, left_out};

use crate::record::{Header, RecordError, RecordWriter, file_name};
use crate::timeline::{Timeline, Track};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why record files could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The timeline has no intervals.
    #[error("there is nothing to convert: the inputs hold no intervals of any rank")]
    Nothing,
    /// The folder holds record files already, which the new ones would mix with.
    #[error(
        "{} holds record files already: name another folder, or add a run beside them with --force",
        folder.display()
    )]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The rows could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: RecordError,
    },
}

/// Writes `timeline` into `folder` as record files, one per rank, all of one run. Reading the folder
/// gives the same figures.
///
/// The folder is made if it is missing. If it holds record files, they stay; without `force`, that is an
/// error, because a folder with several runs is read as its newest. Returns the paths of the files. If
/// writing fails, the files that this call made are removed.
///
/// # Errors
///
/// [`ConvertError`]: nothing to write, a folder in use, or a failure of the operating system.
///
/// ```
/// use commtrace_report::convert::write_records;
/// use commtrace_report::read::{ReadOptions, read};
/// use commtrace_report::timeline::{Comm, Timeline, Track};
/// let mut timeline = Timeline::default();
/// let op = timeline.names.intern("all_reduce");
/// let mut track = Track::new(0, Some(0));
/// track.comm.push(Comm::new(op, 1_000, 2_500));
/// timeline.tracks.push(track);
///
/// let folder = tempfile::tempdir()?;
/// write_records(&timeline, folder.path(), false)?;
/// let back = read(&[folder.path().to_owned()], &ReadOptions::default())?;
/// assert_eq!(back.tracks[0].comm.get(0).map(|comm| comm.end_ns), Some(2_500));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_records(timeline: &Timeline, folder: &Path, force: bool) -> Result<Vec<PathBuf>, ConvertError> {
    let mut ranks: BTreeMap<u32, Vec<&Track>> = BTreeMap::new();
    for track in &timeline.tracks {
        ranks.entry(track.rank).or_default().push(track);
    }
    if ranks.is_empty() {
        return Err(ConvertError::Nothing);
    }
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| ConvertError::Io { path, source }
    };
    fs::create_dir_all(folder).map_err(io(folder))?;
    if !force && holds_records(folder).map_err(io(folder))? {
        return Err(ConvertError::Occupied { folder: folder.to_owned() });
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start_unix_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let mut written = Vec::new();
    for (rank, tracks) in ranks {
        let clock = tracks.iter().find_map(|track| track.clock);
        let clock = clock.map(|clock| timeline.names.get(clock).to_owned()).unwrap_or_default();
        let header = Header {
            rank,
            host: clock.clone(),
            boot_id: clock,
            pid: std::process::id(),
            run_id: format!("converted-{}", start_unix_ns / 1_000_000),
            start_unix_ns,
            start_mono_ns: 0,
            world_size: timeline.world_size,
            writer_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let path = folder.join(file_name(&header));
        let result = write_rank(timeline, &tracks, &header, &path, written.is_empty());
        // The file that was there before is not this call's to remove.
        let exists = matches!(&result, Err(ConvertError::Io { source, .. })
            if source.kind() == io::ErrorKind::AlreadyExists);
        if !exists {
            written.push(path);
        }
        if let Err(error) = result {
            for path in &written {
                let _ = fs::remove_file(path);
            }
            return Err(error);
        }
    }
    Ok(written)
}

fn holds_records(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("rank-") && name.ends_with(".arrows") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn write_rank(
    timeline: &Timeline,
    tracks: &[&Track],
    header: &Header,
    path: &Path,
    first: bool,
) -> Result<(), ConvertError> {
    let open = OpenOptions::new().write(true).create_new(true).open(path);
    let file: File = open.map_err(|source| ConvertError::Io { path: path.to_owned(), source })?;
    let write = || {
        let mut writer = RecordWriter::new(file, header)?;
        rows::write(timeline, tracks, header.rank, first, &mut writer)?;
        writer.finish().map(drop)
    };
    write().map_err(|source| ConvertError::Record { path: path.to_owned(), source })
}
