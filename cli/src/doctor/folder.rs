//! Whether record files can be written.

use super::check::Check;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Less space than this is said to be little: what a rank writes at most by default.
const LITTLE_BYTES: u64 = 2048 << 20;

/// The folder that COMMTRACE_DIR names. Nothing is left behind.
pub fn check(folder: &Path) -> Check {
    const SUBJECT: &str = "COMMTRACE_DIR";
    let shown = folder.display();
    let (existing, made) = match nearest_existing(folder) {
        Some(existing) => (existing.clone(), existing == folder),
        None => {
            return Check::problem(
                SUBJECT,
                format!("{shown}: no part of the path exists"),
                "Correct the path.",
            );
        }
    };
    if !existing.is_dir() {
        return Check::problem(
            SUBJECT,
            format!("{} is no folder", existing.display()),
            "Name a folder, or a path where one can be made.",
        );
    }
    if let Err(error) = probe(&existing) {
        return Check::problem(
            SUBJECT,
            format!("cannot write in {}: {error}", existing.display()),
            "Give the job's user the right to write there, or name another folder.",
        );
    }
    let state = if made { "can be written to" } else { "does not exist yet and can be made" };
    let mut found = format!("{shown} {state}");
    let free = free_bytes(&existing);
    if let Some(free) = free {
        found += &format!(", {} free", gib(free));
    }
    match runs(folder) {
        0 => {}
        1 => found += ", holds 1 record file",
        files => found += &format!(", holds {files} record files"),
    }
    if free.is_some_and(|free| free < LITTLE_BYTES) {
        let remedy = format!(
            "A rank writes up to COMMTRACE_MAX_MB, {} by default: make room, or set less.",
            gib(LITTLE_BYTES)
        );
        return Check::problem(SUBJECT, found, remedy);
    }
    Check::ok(SUBJECT, found)
}

/// `path`, or the nearest folder above it that exists.
fn nearest_existing(path: &Path) -> Option<PathBuf> {
    let above = path.ancestors().map(|part| if part.as_os_str().is_empty() { Path::new(".") } else { part });
    above.into_iter().find(|part| part.exists()).map(Path::to_owned)
}

/// Makes a file and removes it.
fn probe(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".commtrace-doctor.{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)
}

fn runs(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "arrows")).count()
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    use std::ffi::CString;
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut stat = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` ends with a zero byte, and `stat` is a place for the result.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it wrote the result.
    let stat = unsafe { stat.assume_init() };
    // The fields are narrower than 64 bits on some targets.
    #[allow(clippy::unnecessary_cast)]
    Some((stat.f_bavail as u64).saturating_mul(stat.f_frsize as u64))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Status;

    #[test]
    fn folders_that_can_be_made_or_written_to_and_others() {
        let folder = tempfile::tempdir().unwrap();
        let there = check(folder.path());
        assert!(there.found.contains("can be written to"), "{there:?}");
        assert!(there.found.contains("GiB free"), "{there:?}");
        let new = check(&folder.path().join("a/b"));
        assert!(new.found.contains("does not exist yet"), "{new:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let found = check(&path);
            assert_eq!(found.status, Status::Problem, "{found:?}");
            assert!(found.found.contains("is no folder") && found.remedy.is_some(), "{found:?}");
        }
    }
}
