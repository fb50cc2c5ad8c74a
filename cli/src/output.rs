//! Where results go: stdout, or a file that is not there yet.

use crate::failure::message;
use std::ffi::OsString;
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
/// nothing is left behind, and one that was there before stays as it was.
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
    let failed = |source| OutputError::File { path: path.to_owned(), source };
    match fs::metadata(path) {
        // A device or a pipe takes what comes; there is nothing to keep or to replace.
        Ok(there) if !there.is_file() && !there.is_dir() => {
            let mut out = BufWriter::new(OpenOptions::new().write(true).open(path).map_err(failed)?);
            result(&mut out).and_then(|()| out.flush()).map_err(failed)?;
        }
        Ok(_) if !force => return Err(OutputError::Exists { path: path.to_owned() }),
        Ok(there) => {
            // What a link leads to is replaced, not the link.
            let target = fs::canonicalize(path).map_err(failed)?;
            replace(&target, Some(there.permissions()), result).map_err(failed)?;
        }
        Err(_) if force => replace(path, None, result).map_err(failed)?,
        Err(_) => create(path, result)?,
    }
    message(&format!("commtrace: wrote {}", path.display()));
    Ok(())
}

/// Writes a file that is not there yet, whoever else tries to.
fn create(path: &Path, result: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), OutputError> {
    let file = File::create_new(path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => OutputError::Exists { path: path.to_owned() },
        _ => OutputError::File { path: path.to_owned(), source },
    })?;
    let mut out = BufWriter::new(file);
    result(&mut out).and_then(|()| out.flush()).map_err(|source| {
        let _ = fs::remove_file(path);
        OutputError::File { path: path.to_owned(), source }
    })
}

/// Writes beside `path` and moves it there once it is whole: what was there stays until then.
fn replace(
    path: &Path,
    permissions: Option<fs::Permissions>,
    result: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let (file, beside) = create_beside(path)?;
    let mut out = BufWriter::new(file);
    let mut written = result(&mut out).and_then(|()| out.flush());
    drop(out);
    if let (Ok(()), Some(permissions)) = (&written, permissions) {
        written = fs::set_permissions(&beside, permissions);
    }
    written.and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

/// A new file in the folder of `path`, hidden and with a name that no other has.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    for attempt in 0..100 {
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}-{attempt}.tmp", std::process::id()));
        let beside = path.with_file_name(beside);
        match File::create_new(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return Ok((file?, beside)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in a folder.
    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    fn half(out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&[b'x'; 1 << 16])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    #[test]
    fn what_fails_half_way_destroys_nothing_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        for force in [false, true] {
            assert!(matches!(write(Some(&path), force, half), Err(OutputError::File { .. })));
            assert!(names(folder.path()).is_empty());
        }
        fs::write(&path, "mine").unwrap();
        assert!(matches!(write(Some(&path), false, half), Err(OutputError::Exists { .. })));
        assert!(matches!(write(Some(&path), true, half), Err(OutputError::File { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        assert_eq!(names(folder.path()), ["out.json"]);
    }

    #[test]
    fn a_result_can_be_made_of_the_file_that_it_replaces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        fs::write(&path, "mine").unwrap();
        write(Some(&path), true, |out| {
            let before = fs::read_to_string(&path)?;
            write!(out, "{before} and more")
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine and more");
        assert_eq!(names(folder.path()), ["out.json"]);
        assert!(write(Some(folder.path()), true, |_| Ok(())).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_devices_devices() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out.json"), folder.path().join("link"));
        fs::write(&path, "mine").unwrap();
        std::os::unix::fs::symlink("out.json", &link).unwrap();
        write(Some(&link), true, |out| out.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        for force in [false, true] {
            write(Some(Path::new("/dev/null")), force, |out| out.write_all(b"new")).unwrap();
        }
    }
}
