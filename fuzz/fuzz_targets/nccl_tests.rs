//! Any bytes are read as a file, to a result or an error.
#![no_main]

use commtrace_fuzz::{check, file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| check(&file("all_reduce.txt", bytes)));
