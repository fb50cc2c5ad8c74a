//! Where results go: stdout, or a file that is not there yet.

use crate::failure::message;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Why a result could not be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The file is there already.
    #[error("{} exists: name another file, or replace it with --force", path.display())]
    Exists { path: PathBuf },
    /// The file cannot be created or written.
    #[error("cannot write {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// Stdout cannot be written.
    #[error("cannot write to stdout: {0}")]
    Stdout(#[source] io::Error),
}

/// Writes a result to stdout, or to `path`.
///
/// A reader that goes away (`| head`) is not an error. Of a file that cannot be written to its end
/// nothing is left behind, unless it was there before.
pub fn write(
    path: Option<&Path>,
    force: bool,
    result: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), OutputError> {
    let Some(path) = path else {
        let mut out = BufWriter::new(io::stdout().lock());
        return match result(&mut out).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(OutputError::Stdout(error)),
            _ => Ok(()),
        };
    };
    let file = open(path, force)?;
    let mut out = BufWriter::new(file);
    result(&mut out).and_then(|()| out.flush()).map_err(|source| {
        if !force {
            let _ = fs::remove_file(path);
        }
        OutputError::File { path: path.to_owned(), source }
    })?;
    message(&format!("commtrace: wrote {}", path.display()));
    Ok(())
}

fn open(path: &Path, force: bool) -> Result<File, OutputError> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    options.open(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => OutputError::Exists { path: path.to_owned() },
        _ => OutputError::File { path: path.to_owned(), source },
    })
}
