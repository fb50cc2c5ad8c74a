//! Files to a [`Timeline`].
//!
//! ```no_run
//! use commtrace_report::read::{ReadOptions, read};
//! let timeline = read(&["out".into()], &ReadOptions::default())?;
//! for warning in &timeline.warnings {
//!     eprintln!("{warning}");
//! }
//! # Ok::<(), commtrace_report::read::ReadError>(())
//! ```
//!
//! A format is recognised by its content, never by a file's name. Each has a module that turns it
//! into tracks; what several formats share (exact decimal times, the rule that cuts communication out
//! of compute) stands beside them.

mod builder;
#[cfg(feature = "import")]
mod compress;
pub mod decimal;
mod detect;
mod error;
mod folder;
#[cfg(feature = "import")]
mod fragment;
#[cfg(feature = "import")]
mod import;
#[cfg(feature = "import")]
mod kineto;
pub(crate) mod lanes;
#[cfg(feature = "import")]
mod lines;
mod list;
#[cfg(feature = "import")]
mod nccl_inspector;
#[cfg(feature = "import")]
mod nccl_log;
#[cfg(feature = "import")]
mod nccl_tests;
#[cfg(feature = "import")]
mod nccl_text;
#[cfg(feature = "nsys")]
mod nsys;
mod process;
mod progress;
#[cfg(feature = "import")]
mod rank_name;
mod record_file;
mod timeline_json;
pub(crate) mod untimed;

pub use error::ReadError;
pub use progress::Progress;
pub use record_file::{RankStatus, run_status};
pub use timeline_json::write_timeline_json;

use crate::gather::Thinning;
use crate::timeline::Timeline;
use builder::Builder;
pub(crate) use builder::ranges;
use detect::{Format, detect};
use list::Listed;
use progress::{Meter, Meters};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What of the inputs is to be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Only records of this run. Without it, a folder's newest run, and every file that is named.
    pub run: Option<String>,
    /// Only these ranks; all without it.
    pub ranks: Option<BTreeSet<u32>>,
    /// A regular expression for the path of a trace; its first group, or all of it, is the rank. Stands
    /// above what the trace says of itself.
    #[cfg(feature = "import")]
    pub rank_regex: Option<String>,
    /// Names of kernels and of events in other traces that are communication.
    #[cfg(feature = "import")]
    pub comm_patterns: Vec<crate::classify::CommPattern>,
    /// A regular expression for the names of events that are compute, in traces that do not say
    /// themselves which are.
    #[cfg(feature = "import")]
    pub compute_pattern: Option<String>,
    /// Count memory copies and memsets of devices as compute; without it they are neither compute nor
    /// communication.
    #[cfg(feature = "import")]
    pub copies_as_compute: bool,
    /// A regular expression for the names of NVTX ranges that are training steps, in exports of Nsight
    /// Systems. The first group of a match, or all of it, holds the step's number; without one, steps are
    /// counted from 0. By default, `step`, `iteration`, `iter` or `ProfilerStep` with a number:
    /// `step 12`, `train_step=12`, `ProfilerStep#12`.
    #[cfg(feature = "nsys")]
    pub step_pattern: Option<String>,
}

impl ReadOptions {
    fn wants(&self, rank: u32) -> bool {
        self.ranks.as_ref().is_none_or(|ranks| ranks.contains(&rank))
    }
}

/// Reads `paths`, each a record folder, a record file or a timeline JSON file, into one timeline; with the
/// feature `import` also traces of other tools and folders of them, compressed with gzip or zstd or not.
///
/// Tracks of the same rank and device are joined. Input that could only be read in part is not an
/// error: [`Timeline::inputs`] counts and [`Timeline::warnings`] says what is missing.
///
/// # Errors
///
/// [`ReadError`] if a path cannot be read, is of no known format, holds an invalid value, or if
/// nothing matches `options`.
pub fn read(paths: &[PathBuf], options: &ReadOptions) -> Result<Timeline, ReadError> {
    read_with(paths, options, &())
}

/// Reads as [`read`] does, and tells `progress` how far it has come.
///
/// # Errors
///
/// As [`read`].
pub fn read_with(
    paths: &[PathBuf],
    options: &ReadOptions,
    progress: &dyn Progress,
) -> Result<Timeline, ReadError> {
    if paths.is_empty() {
        return Err(ReadError::NoInput);
    }
    // Before anything is opened: a pipe that nobody writes to would be waited for.
    let odd = |path: &&PathBuf| path.metadata().is_ok_and(|data| !data.is_file() && !data.is_dir());
    if let Some(path) = paths.iter().find(odd) {
        return Err(ReadError::NotAFile { path: path.clone() });
    }
    let listed: Vec<Listed> = paths.iter().map(|path| Listed::of(path)).collect();
    let meters = Meters::begin(progress, listed.iter().flat_map(Listed::files).cloned());
    let mut builder = Builder::default();
    #[cfg(feature = "import")]
    let mut imports = import::Imports::load(listed, options, &meters);
    #[cfg_attr(not(feature = "import"), allow(unused_variables))]
    for (index, path) in paths.iter().enumerate() {
        #[cfg(feature = "import")]
        if imports.commit(index, path.is_dir(), options, &mut builder)? {
            continue;
        }
        if path.is_dir() {
            folder::read(path, options, &meters, &mut builder)?;
        } else {
            read_file(path, options, meters.of(path), &mut builder)?;
            meters.done(path);
        }
    }
    if let Some(wanted) = &options.ranks
        && builder.present().is_empty()
    {
        let found = ranges(builder.ranks_left_out().iter().copied(), 16);
        return Err(ReadError::NoSuchRank {
            wanted: ranges(wanted.iter().copied(), 16),
            found: if found.is_empty() { "no rank at all".to_owned() } else { found },
        });
    }
    folder::warn_of_missing(&mut builder, options);
    #[cfg_attr(not(feature = "import"), allow(unused_mut))]
    let mut timeline = builder.finish();
    #[cfg(feature = "import")]
    {
        nccl_text::attach(&mut timeline);
        nccl_text::warn_of_doubles(&mut timeline);
    }
    Ok(timeline)
}

/// Reads records that are in memory, each with a name for messages, into one timeline; of the steps only those
/// that `thinning` keeps.
pub(crate) fn read_in_memory<'a>(
    records: impl IntoIterator<Item = (PathBuf, &'a [u8])>,
    thinning: Thinning,
) -> Result<Timeline, ReadError> {
    let mut builder = Builder::default();
    for (name, record) in records {
        record_file::open_in_memory(&name, record)?.read_thinned(&mut builder, thinning)?;
    }
    Ok(builder.finish())
}

/// Ranks in ascending order as the warnings name them, the first few.
pub(crate) fn name_ranks(ranks: impl IntoIterator<Item = u32>) -> String {
    ranges(ranks, 16)
}

fn read_file(
    path: &Path,
    options: &ReadOptions,
    meter: Option<&Meter<'_>>,
    builder: &mut Builder,
) -> Result<(), ReadError> {
    let (start, compressed) = start_of(path)?;
    if start.is_empty() {
        return Err(ReadError::Empty { path: path.to_owned() });
    }
    match detect(&start) {
        Format::ArrowStream if compressed => Err(ReadError::UnknownFormat {
            path: path.to_owned(),
            found: "this is a compressed Arrow stream, decompress it first".to_owned(),
        }),
        Format::ArrowStream => {
            let record = record_file::open(path, meter)?;
            if let Some(run) = &options.run
                && record.header.run_id != *run
            {
                let runs = vec![record.header.run_id];
                return Err(ReadError::NoSuchRun { run: run.clone(), runs });
            }
            if !options.wants(record.header.rank) {
                builder.left_out(record.header.rank);
                return Ok(());
            }
            record.read(builder)
        }
        Format::Json => timeline_json::read(path, options, meter, builder),
        Format::Other(found) => Err(ReadError::UnknownFormat { path: path.to_owned(), found }),
    }
}

/// The first bytes of the content, and whether the file is compressed.
#[cfg(feature = "import")]
fn start_of(path: &Path) -> Result<(Vec<u8>, bool), ReadError> {
    let opened = compress::open(path, None).map_err(ReadError::io(path))?;
    Ok((opened.start, opened.compressed))
}

#[cfg(not(feature = "import"))]
fn start_of(path: &Path) -> Result<(Vec<u8>, bool), ReadError> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(ReadError::io(path))?;
    let mut start = Vec::with_capacity(detect::SNIFF_BYTES);
    file.take(detect::SNIFF_BYTES as u64).read_to_end(&mut start).map_err(ReadError::io(path))?;
    Ok((start, false))
}
