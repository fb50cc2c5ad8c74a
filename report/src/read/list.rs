//! The files that the paths of a report stand for.

use super::folder::record_paths;
use std::path::{Path, PathBuf};

/// Folders within a folder that are looked into, levels.
#[cfg(feature = "import")]
const DEPTH: usize = 3;

/// The files that a path stands for.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Whether the path is a folder.
    #[cfg_attr(not(feature = "import"), allow(dead_code))]
    pub folder: bool,
    /// Record files of the folder.
    pub records: Vec<PathBuf>,
    /// The file that was named, or what a folder without record files holds, folders in it included.
    pub traces: Vec<PathBuf>,
}

impl Listed {
    /// The files of `path`.
    pub fn of(path: &Path) -> Self {
        if !path.is_dir() {
            return Self { traces: vec![path.to_owned()], ..Self::default() };
        }
        let mut listed = Self { folder: true, ..Self::default() };
        // What cannot be listed is met again, and said, where the folder is looked at for records.
        listed.records = record_paths(path).unwrap_or_default();
        #[cfg(feature = "import")]
        if listed.records.is_empty() {
            collect(path, DEPTH, &mut listed.traces);
        }
        listed
    }

    /// All of them.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.records.iter().chain(&self.traces)
    }
}

#[cfg(feature = "import")]
fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort_by_key(|path| natural(path));
    for path in paths {
        if path.is_file() {
            files.push(path);
        } else if depth > 0 && path.is_dir() {
            collect(&path, depth - 1, files);
        }
    }
}

/// A key by which `rank2` comes before `rank10`.
#[cfg(feature = "import")]
fn natural(path: &Path) -> Vec<(String, u64)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut parts = Vec::new();
    let mut rest = name.as_str();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, after) = rest.split_at(digits);
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(end);
        parts.push((text.to_owned(), number.parse().unwrap_or(u64::MAX)));
        rest = after;
    }
    parts
}
