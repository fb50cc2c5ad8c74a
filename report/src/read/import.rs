//! Files of other tools: opened, recognised and read side by side, and added in the order of their paths.

use super::builder::Builder;
use super::compress;
use super::detect::{Format, detect};
use super::fragment::{Commits, Fragment};
use super::kineto::{self, Beginning, NotRead};
use super::list::Listed;
#[cfg(feature = "nsys")]
use super::nsys;
use super::progress::Meters;
use super::{ReadError, ReadOptions};
use super::{nccl_inspector, nccl_tests, nccl_text};
use crate::parallel::in_parallel;
use std::path::{Path, PathBuf};

/// How `.nsys-rep` and `.qdrep` files begin.
const NSYS_REPORT: &[u8] = b"NVIDIA Tegra Profiler Report";

/// What came of a file: `None` if it is of no format that is read here.
type Loaded = Result<Option<Fragment>, ReadError>;

/// The files of other tools among the paths of a report.
pub(super) struct Imports {
    /// Per path that was given, its files.
    paths: Vec<Vec<File>>,
    commits: Commits,
}

struct File {
    path: PathBuf,
    loaded: Loaded,
}

impl Imports {
    /// Reads what of `listed` are files of other tools. As many files are read at once as there are
    /// processors.
    pub fn load(listed: Vec<Listed>, options: &ReadOptions, meters: &Meters<'_>) -> Self {
        let all: Vec<(&Path, bool)> = listed
            .iter()
            .flat_map(|listed| listed.traces.iter().map(|path| (path.as_path(), listed.folder)))
            .collect();
        let mut loaded = in_parallel(&all, |&(path, in_folder)| {
            let loaded = load(path, options, meters);
            // A file that was named may be read yet.
            if in_folder || !matches!(loaded, Ok(None)) {
                meters.done(path);
            }
            loaded
        })
        .into_iter();
        let paths = listed
            .into_iter()
            .map(|listed| {
                let results = listed.traces.into_iter().zip(loaded.by_ref());
                results.map(|(path, loaded)| File { path, loaded }).collect()
            })
            .collect();
        Self { paths, commits: Commits::default() }
    }

    /// Adds what was read of the path with this index; false if it is no file of another tool and no
    /// folder of such.
    ///
    /// # Errors
    ///
    /// A file that was given cannot be read, or none of a folder's files can be.
    pub fn commit(
        &mut self,
        index: usize,
        folder: bool,
        options: &ReadOptions,
        builder: &mut Builder,
    ) -> Result<bool, ReadError> {
        let mut found = false;
        let mut errors = Vec::new();
        for file in self.paths.get_mut(index).map(std::mem::take).unwrap_or_default() {
            match file.loaded {
                Ok(Some(fragment)) => {
                    found = true;
                    self.commits.add(fragment, options, builder);
                }
                Ok(None) => {}
                // What it was exported to is read in its stead.
                Err(ReadError::NotExported { path }) if folder && path.with_extension("sqlite").exists() => {}
                Err(error) if folder => errors.push((file.path, error)),
                Err(error) => return Err(error),
            }
        }
        if !found {
            return match errors.into_iter().next() {
                Some((_, error)) => Err(error),
                None => Ok(false),
            };
        }
        for (path, error) in errors {
            builder.warn(format!("A file was left out: {error}."));
            builder.input(crate::timeline::Input {
                path: path.display().to_string(),
                format: "unknown".to_owned(),
                skipped: [("unreadable".to_owned(), 1)].into_iter().collect(),
                ..Default::default()
            });
        }
        Ok(true)
    }
}

/// Reads `path` if it is of another tool's format.
fn load(path: &Path, options: &ReadOptions, meters: &Meters<'_>) -> Loaded {
    let opened = compress::open(path, meters.of(path)).map_err(ReadError::io(path))?;
    if opened.start.starts_with(NSYS_REPORT) {
        return Err(ReadError::NotExported { path: path.to_owned() });
    }
    #[cfg(feature = "nsys")]
    if nsys::is_sqlite(&opened.start) {
        return nsys::read(path, opened, options).map(Some);
    }
    if nccl_inspector::matches(&opened.start) {
        return nccl_inspector::read(path, opened, options).map(Some);
    }
    if nccl_tests::json::matches(&opened.start) {
        return Ok(Some(nccl_text::read_json(path, opened)));
    }
    if nccl_text::may_match(&opened.start) && detect(&opened.start) != Format::ArrowStream {
        return nccl_text::read(path, opened);
    }
    if detect_json(&opened.start) {
        let beginning = kineto::beginning(&opened.start);
        if beginning == Beginning::Timeline {
            return Ok(None);
        }
        return match kineto::read(path, opened, beginning, options) {
            Ok(fragment) => Ok(Some(fragment)),
            Err(NotRead::Error(error)) => Err(error),
            Err(NotRead::NotATrace) => Ok(None),
        };
    }
    Ok(None)
}

fn detect_json(start: &[u8]) -> bool {
    !start.is_empty() && detect(start) == Format::Json
}
