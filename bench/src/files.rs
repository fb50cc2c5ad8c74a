//! The files of a record: `<stem>.json` and `<stem>.log`. Nothing that is there is overwritten.

use crate::record::Record;
use crate::session::NCCL_LOG;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why files could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is a record of that name.
    #[error("{} exists: choose another --run-label, or another folder with -o", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Names that a record takes.
#[derive(Debug, Clone)]
pub struct RecordFiles {
    folder: PathBuf,
    stem: String,
}

impl RecordFiles {
    /// In `folder`, with this [stem](crate::Plan::stem).
    pub fn new(folder: &Path, stem: String) -> Self {
        Self { folder: folder.to_owned(), stem }
    }

    /// The record.
    pub fn record(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.stem))
    }

    /// The name of a file that belongs to the record, within the folder.
    pub fn artifact_name(&self, ending: &str) -> String {
        format!("{}.{ending}", self.stem)
    }

    /// The path of a file that belongs to the record.
    pub fn artifact(&self, ending: &str) -> PathBuf {
        self.folder.join(self.artifact_name(ending))
    }

    /// A hidden folder for what the ranks have to say while they run.
    pub(crate) fn events(&self) -> PathBuf {
        self.folder.join(format!(".{}.ranks", self.stem))
    }

    /// Whether the names are free.
    ///
    /// # Errors
    ///
    /// [`FileError::Exists`].
    pub fn check_free(&self) -> Result<(), FileError> {
        for path in [self.record(), self.artifact("log"), self.artifact(NCCL_LOG)] {
            if fs::symlink_metadata(&path).is_ok() {
                return Err(FileError::Exists { path });
            }
        }
        Ok(())
    }

    /// Takes the names, before anything runs, with a record that holds if nothing comes after it.
    ///
    /// # Errors
    ///
    /// The record or its log exists, or they cannot be written.
    pub(crate) fn claim(&self, unfinished: &Record) -> Result<ClaimedFiles, FileError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FileError::Write { path, source }
        };
        fs::create_dir_all(&self.folder).map_err(failed(&self.folder))?;
        self.check_free()?;
        let path = self.record();
        let mut file = match File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(FileError::Exists { path });
            }
            file => file.map_err(failed(&path))?,
        };
        file.write_all(text(unfinished).as_bytes()).map_err(failed(&path))?;
        Ok(ClaimedFiles { files: self.clone() })
    }
}

/// Files whose names belong to this process.
#[derive(Debug)]
pub(crate) struct ClaimedFiles {
    files: RecordFiles,
}

impl ClaimedFiles {
    /// Puts the record in place of the unfinished one, in one step.
    pub fn finish(&self, record: &Record) -> Result<PathBuf, FileError> {
        let path = self.files.record();
        let beside = self.files.folder.join(format!(".{}.json.tmp", self.files.stem));
        let written = fs::write(&beside, text(record)).and_then(|()| fs::rename(&beside, &path));
        match written {
            Ok(()) => Ok(path),
            Err(source) => {
                let _ = fs::remove_file(&beside);
                Err(FileError::Write { path, source })
            }
        }
    }
}

/// The record's JSON, indented, with a final newline.
fn text(record: &Record) -> String {
    // Writing to memory fails only for map keys that are no strings; a record has no maps.
    let mut text = serde_json::to_string_pretty(record).unwrap_or_default();
    text.push('\n');
    text
}
