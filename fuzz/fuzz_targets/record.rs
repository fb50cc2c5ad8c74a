//! Any bytes are read as a record file, alone and in its folder, to a result or an error.
#![no_main]

use commtrace_fuzz::{check_with, file};
use commtrace_report::read::ReadOptions;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = file("rank-00000.1.1.arrows", bytes);
    let options = ReadOptions::default();
    check_with(&path, &options);
    if let Some(folder) = path.parent() {
        check_with(folder, &options);
    }
});
