//! What the fuzz targets share.

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render::{self, TextOptions};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Readers take paths; memory that is mounted as a folder makes that cheap.
static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder"));

static PATTERNS: LazyLock<ReadOptions> = LazyLock::new(|| ReadOptions {
    comm_patterns: vec!["halo=exchange|forward".parse().expect("a pattern")],
    compute_pattern: Some("idle|aten".into()),
    copies_as_compute: true,
    rank_regex: Some(r"rank-?(\d+)".into()),
    step_pattern: Some(r"forward(\d*)".into()),
    ..ReadOptions::default()
});

/// Writes `bytes` to a file of this name, which replaces the last one.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = FOLDER.path().join(name);
    std::fs::write(&path, bytes).expect("a file");
    path
}

/// Reads `path`, to a result or an error, with and without patterns.
pub fn check(path: &Path) {
    for options in [&*PATTERNS, &ReadOptions::default()] {
        check_with(path, options);
    }
}

/// Reads `path`, to a result or an error; a result is analyzed and shown.
pub fn check_with(path: &Path, options: &ReadOptions) {
    let paths = [path.to_owned()];
    match read(&paths, options) {
        Ok(timeline) => {
            let report = analyze(&timeline, &AnalyzeOptions::default());
            render::text(&report, &TextOptions::default());
            render::json(&report);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
