//! From folders and files to records and tables of nccl-tests.

use crate::record::{Experiment, RECORD_SCHEMA_VERSION, Record};
use commtrace_report::nccl::NcclTests;
use commtrace_report::read::{ReadOptions, read};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A record has a few rows. Larger JSON is not read into memory to find that it is none.
const MAX_RECORD_BYTES: u64 = 64 << 20;

/// What is to be reported.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Records with the names of their files.
    pub records: Vec<(String, Record)>,
    /// Tables of nccl-tests with the names of their files.
    pub nccl_tests: Vec<(String, NcclTests)>,
    /// Files that are neither, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// A file that was not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOut {
    /// The file.
    pub file: String,
    /// Why.
    pub reason: String,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A path that was named cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// None of the files is a record or a table of nccl-tests.
    #[error(
        "no record of `commtrace bench` and no table of nccl-tests in {}{}",
        names(paths),
        reasons(left_out)
    )]
    Nothing {
        /// The paths.
        paths: Vec<PathBuf>,
        /// The files that are neither.
        left_out: Vec<LeftOut>,
    },
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn reasons(left_out: &[LeftOut]) -> String {
    if left_out.is_empty() {
        return ": write records there with `commtrace bench collectives -o DIR`".to_owned();
    }
    left_out.iter().map(|left| format!("\n  {}: {}", left.file, left.reason)).collect()
}

impl Sources {
    /// Reads `paths`, folders of records or records, and `nccl_tests`, outputs of nccl-tests as text or JSON, which may
    /// also lie in the folders. Folders in folders are not entered.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if a path cannot be read, or if nothing in them can be used. A file in a folder that cannot be
    /// used is no error: [`left_out`](Self::left_out) names it.
    pub fn read(paths: &[PathBuf], nccl_tests: &[PathBuf]) -> Result<Self, SourceError> {
        let mut sources = Self::default();
        let mut others: BTreeMap<PathBuf, Other> = BTreeMap::new();
        let mut logs = BTreeSet::new();
        for path in paths {
            for file in files(path)? {
                match record(&file) {
                    Ok(record) => {
                        let folder = file.parent().unwrap_or(Path::new(""));
                        let artifacts = [&record.artifacts.nccl_log, &record.artifacts.log];
                        logs.extend(artifacts.into_iter().flatten().map(|log| folder.join(log)));
                        sources.records.push((name(&file), *record));
                    }
                    Err(reason) => {
                        others.insert(file, reason);
                    }
                }
            }
        }
        for (file, reason) in others {
            if logs.contains(&file) || nccl_tests.contains(&file) {
                continue;
            }
            match reason {
                Other::Foreign(reason) => sources.table(&file, &reason),
                Other::Unusable(reason) => sources.left_out.push(LeftOut { file: name(&file), reason }),
            }
        }
        for path in nccl_tests {
            fs::metadata(path).map_err(|source| SourceError::Io { path: path.clone(), source })?;
            sources.table(path, "it is no output of nccl-tests");
        }
        if sources.records.is_empty() && sources.nccl_tests.is_empty() {
            let paths = paths.iter().chain(nccl_tests).cloned().collect();
            return Err(SourceError::Nothing { paths, left_out: sources.left_out });
        }
        Ok(sources)
    }

    /// Takes the tables of nccl-tests in `file`, or names it with `reason`.
    fn table(&mut self, file: &Path, reason: &str) {
        let inputs = read(&[file.to_owned()], &ReadOptions::default()).map(|timeline| timeline.inputs);
        let tables: Vec<NcclTests> =
            inputs.into_iter().flatten().filter_map(|input| Some(*input.nccl_tests?)).collect();
        if tables.is_empty() {
            self.left_out.push(LeftOut { file: name(file), reason: reason.to_owned() });
        }
        self.nccl_tests.extend(tables.into_iter().map(|table| (name(file), table)));
    }
}

/// The files of a folder by name, hidden ones not; a file itself.
fn files(path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let failed = |source| SourceError::Io { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && !file.is_dir() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// A file that is no record that can be used.
enum Other {
    /// It is something else; perhaps a table of nccl-tests.
    Foreign(String),
    /// It is a record, but cannot be used.
    Unusable(String),
}

/// What tells a record from other JSON.
#[derive(Deserialize)]
struct Head {
    schema_version: u64,
    #[serde(rename = "experiment")]
    _experiment: Experiment,
}

fn record(path: &Path) -> Result<Box<Record>, Other> {
    let unreadable = |error: io::Error| Other::Unusable(format!("cannot be read: {error}"));
    let data = fs::metadata(path).map_err(unreadable)?;
    // A pipe would be waited for.
    if !data.is_file() {
        return Err(Other::Unusable("it is no regular file".to_owned()));
    }
    if data.len() == 0 {
        return Err(Other::Unusable("it is empty".to_owned()));
    }
    let foreign =
        || Other::Foreign("it is neither a record of `commtrace bench` nor output of nccl-tests".to_owned());
    if data.len() > MAX_RECORD_BYTES {
        return Err(foreign());
    }
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_RECORD_BYTES).read_to_end(&mut text).map_err(unreadable)?;
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(foreign());
    }
    let head = match serde_json::from_slice::<Head>(&text) {
        Ok(head) => head,
        Err(error) if error.is_eof() => {
            return Err(Other::Foreign(format!("its JSON is cut off: {error}")));
        }
        Err(_) => return Err(foreign()),
    };
    if head.schema_version > u64::from(RECORD_SCHEMA_VERSION) {
        return Err(Other::Unusable(format!(
            "a newer commtrace wrote this record (schema version {}; this one reads up to {RECORD_SCHEMA_VERSION}): \
             report it with a newer commtrace",
            head.schema_version
        )));
    }
    serde_json::from_slice(&text)
        .map_err(|error| Other::Unusable(format!("it is not a whole record: {error}")))
}
