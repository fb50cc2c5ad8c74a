//! Any bytes are read as a file, to a result or an error, and analyzed.
#![no_main]

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;

/// Readers take paths; memory that is mounted as a folder makes that cheap.
static FILE: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let path = folder.path().join("rank0.json");
    (folder, path)
});

static OPTIONS: LazyLock<ReadOptions> = LazyLock::new(|| ReadOptions {
    comm_patterns: vec!["halo=exchange|forward".parse().expect("a pattern")],
    compute_pattern: Some("idle|aten".into()),
    copies_as_compute: true,
    ..ReadOptions::default()
});

fuzz_target!(|bytes: &[u8]| {
    let path = &FILE.1;
    std::fs::write(path, bytes).expect("a file");
    for options in [&OPTIONS, &ReadOptions::default()] {
        if let Ok(timeline) = read(std::slice::from_ref(path), options) {
            analyze(&timeline, &AnalyzeOptions::default());
        }
    }
});
