//! Any bytes are read as a file that may be compressed; and compressed, changed and cut, they are read too.
#![no_main]

use commtrace_fuzz::{check_with, file};
use commtrace_report::read::ReadOptions;
use flate2::{Compression, write::GzEncoder};
use libfuzzer_sys::fuzz_target;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::Write;

fuzz_target!(|bytes: &[u8]| {
    let options = ReadOptions::default();
    check_with(&file("rank0", bytes), &options);
    // The first bytes say what is to be done with the others.
    let Some((&[format, at, change, cut], content)) = bytes.split_first_chunk() else { return };
    let mut packed = if format & 1 == 0 {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).expect("memory");
        encoder.finish().expect("memory")
    } else {
        compress_to_vec(content, CompressionLevel::Fastest)
    };
    let at = packed.len() * usize::from(at) / 256;
    if let Some(byte) = packed.get_mut(at) {
        *byte ^= change;
    }
    packed.truncate(packed.len() - packed.len() * usize::from(cut) / 256);
    check_with(&file("rank1", &packed), &options);
});
