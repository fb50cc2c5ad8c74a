//! Why an input could not be read.

use crate::record::HeaderError;
use std::io;
use std::path::PathBuf;

/// Why an input could not be read: what, where, and what to do about it.
///
/// A record file that is merely torn is not an error: what precedes the cut is read, and
/// [`Timeline::warnings`](crate::timeline::Timeline::warnings) says what is missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No path was given.
    #[error("no input: name a record folder, a record file, a timeline JSON file or a trace")]
    NoInput,
    /// The operating system refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A pipe or a device.
    #[error(
        "{} is a pipe or a device, and an input is read more than once: write its content to a file and name \
         that",
        path.display()
    )]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error(
        "{} is empty: if a traced program was to write it, that program ended before its first record",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The content is of no format that can be read.
    #[error(
        "{}: {found}; supported are commtrace record files, folders of them, timeline JSON{}",
        path.display(),
        match (cfg!(feature = "import"), cfg!(feature = "nsys")) {
            (_, true) => {
                ", traces of PyTorch's profiler (Chrome trace JSON), SQLite exports of Nsight Systems, and \
                 Inspector dumps, debug logs and nccl-tests tables of NCCL"
            }
            (true, _) => {
                ", traces of PyTorch's profiler (Chrome trace JSON), and Inspector dumps, debug logs and \
                 nccl-tests tables of NCCL"
            }
            _ => "",
        }
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// What the content looks like.
        found: String,
    },
    /// A folder holds no record file.
    #[error(
        "{} holds no record file (looked for rank-*.arrows, found {found}): run the program with \
         COMMTRACE_DIR set to this folder, or name the files to read",
        path.display()
    )]
    NoRecords {
        /// The folder.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// No input belongs to the run that was asked for.
    #[error("no record of run {run:?}; there are: {}", list(runs))]
    NoSuchRun {
        /// The run that was asked for.
        run: String,
        /// The runs that are there.
        runs: Vec<String>,
    },
    /// No input holds one of the ranks that were asked for.
    #[error("none of the inputs holds rank {wanted}; they hold: {found}")]
    NoSuchRank {
        /// The ranks that were asked for.
        wanted: String,
        /// The ranks that are there.
        found: String,
    },
    /// Arrow data that is not a record of a version that can be read.
    #[error("{}: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with its schema metadata.
        source: HeaderError,
    },
    /// A record file that is unreadable from its start.
    #[error("{}, byte {at}: {what}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Where the unreadable message begins.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
    /// Text that is not JSON, or JSON that is not a timeline.
    #[error("{}, line {line}, column {column}: {what}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// The rank and record, what is wrong with it, and what was expected.
        what: String,
    },
    /// A value so long that it is none of a trace.
    #[error(
        "{}: the value at byte {at} of the content is longer than {mib} MiB, which no trace has: the file is \
         damaged or no trace",
        path.display()
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Where the value begins in the content, decompressed.
        at: u64,
        /// The limit in MiB.
        mib: u64,
    },
    /// A report of Nsight Systems that was not exported.
    #[cfg(feature = "import")]
    #[error(
        "{0} is a report of Nsight Systems that only its own tools can read: export it with \
         `nsys export --type sqlite {0}` and read the .sqlite file that results",
        path.display()
    )]
    NotExported {
        /// The file.
        path: PathBuf,
    },
    /// An SQLite database that is damaged, or holds nothing of use.
    #[cfg(feature = "nsys")]
    #[error("{}: {what}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// A pattern of the options cannot be used.
    #[cfg(feature = "import")]
    #[error("{source}")]
    Pattern {
        /// What is wrong with it.
        source: crate::classify::PatternError,
    },
}

impl ReadError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

fn list(items: &[String]) -> String {
    items.join(", ")
}
