//! Files of NCCL's tools, compressed, cut and damaged: read as far as they go, and never a panic.

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadError, ReadOptions, read};
use commtrace_report::render::{TextOptions, json, text};
use commtrace_report::timeline::Timeline;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::path::Path;

const FILES: [&str; 8] = [
    "inspector.log",
    "inspector_verbose_0.log",
    "log_2_21_mpirun.txt",
    "log_2_28_torchrun.txt",
    "log_2_8.txt",
    "tests_2_17.txt",
    "tests_2021.txt",
    "tests.json",
];

fn content(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nccl").join(name)).unwrap()
}

fn read_bytes(bytes: &[u8]) -> Result<Timeline, ReadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("any name");
    fs::write(&path, bytes).unwrap();
    read(&[path], &ReadOptions::default()).map(|mut timeline| {
        timeline.inputs.iter_mut().for_each(|input| input.path.clear());
        timeline
    })
}

/// Reads, analyzes and renders; what cannot be read has an error with a text.
fn survive(bytes: &[u8]) {
    match read_bytes(bytes) {
        Ok(timeline) => {
            let report = analyze(&timeline, &AnalyzeOptions::default());
            assert!(!text(&report, &TextOptions::default()).is_empty());
            assert!(serde_json::from_str::<serde_json::Value>(&json(&report)).is_ok());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_files_give_the_same() {
    for name in FILES {
        let content = content(name);
        let zstd =
            ruzstd::encoding::compress_to_vec(&content[..], ruzstd::encoding::CompressionLevel::Fastest);
        let plain = read_bytes(&content).unwrap();
        for packed in [gzip(&content), zstd] {
            assert_eq!(read_bytes(&packed).unwrap().inputs, plain.inputs, "{name}");
        }
    }
}

#[test]
fn a_cut_gzip_is_read_up_to_the_cut() {
    for name in FILES {
        // Several copies of it, so that half of the compressed bytes holds something.
        let copies = if name == "tests.json" { 1 } else { 60 };
        let packed = gzip(&content(name).repeat(copies));
        let cut = packed.len() - packed.len() / 4;
        let timeline = read_bytes(&packed[..cut]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(timeline.inputs[0].anomalies["truncated"], 1, "{name}");
        assert!(timeline.warnings.iter().any(|warning| warning.contains("up to there")), "{name}");
    }
}

#[test]
fn cuts_at_every_byte() {
    for name in FILES {
        let content = content(name);
        let step = (content.len() / 150).max(1);
        (0..content.len()).step_by(step).for_each(|cut| survive(&content[..cut]));
    }
}

#[test]
fn a_line_without_end_needs_no_memory_of_its_length() {
    let mut bytes = content("log_2_21_mpirun.txt");
    bytes.extend(std::iter::repeat_n(b'x', 8 << 20));
    bytes.extend_from_slice(b"\nh:1:2 [0] NCCL INFO Using network Late\n");
    let timeline = read_bytes(&bytes).unwrap();
    let networks = &timeline.inputs[0].nccl_log.as_ref().unwrap().networks;
    assert_eq!(networks, &["IB", "Late"]);
    let mut bytes = content("inspector.log");
    bytes.extend_from_slice(b"{\"header\":{\"id\":\"");
    bytes.extend(std::iter::repeat_n(b'x', 8 << 20));
    bytes.push(b'\n');
    bytes.extend_from_slice(&content("inspector.log"));
    let timeline = read_bytes(&bytes).unwrap();
    assert_eq!((timeline.inputs[0].events, timeline.inputs[0].skipped["too_long"]), (8, 1));
}

#[test]
fn a_nested_bomb_is_no_recursion() {
    let mut bytes = content("inspector.log");
    bytes.extend_from_slice(b"{\"header\":{\"id\":\"0x1\",\"rank\":0,\"n_ranks\":1},\"coll_perf\":");
    bytes.extend(std::iter::repeat_n(b'[', 500_000));
    survive(&bytes);
    let mut bytes = content("tests.json");
    let at = bytes.windows(9).position(|window| window == b"\"results\"").unwrap();
    bytes.truncate(at);
    bytes.extend_from_slice(b"\"results\":");
    bytes.extend(std::iter::repeat_n(b'[', 500_000));
    survive(&bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn flipped_bytes(file in 0..FILES.len(), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut bytes = content(FILES[file]);
        for (index, byte) in flips {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        survive(&bytes);
    }

    #[test]
    fn lines_in_any_order(file in 0..FILES.len(), order in prop::collection::vec(any::<prop::sample::Index>(), 1..40)) {
        let content = content(FILES[file]);
        let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
        let mixed: Vec<u8> = order.iter().flat_map(|index| lines[index.index(lines.len())].to_vec()).collect();
        survive(&mixed);
    }

    #[test]
    fn numbers_beyond_all_ranges(file in 0..FILES.len(), at in any::<prop::sample::Index>(), number in "-?[0-9]{1,40}(\\.[0-9]{1,5})?(e[0-9]{1,3})?") {
        let content = String::from_utf8(content(FILES[file])).unwrap();
        let digits: Vec<usize> = content.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at).collect();
        let begin = digits[at.index(digits.len())];
        let end = content[begin..].find(|c: char| !c.is_ascii_digit()).map_or(content.len(), |length| begin + length);
        survive(format!("{}{number}{}", &content[..begin], &content[end..]).as_bytes());
    }

    #[test]
    fn words_of_messages(words in prop::collection::vec(prop::sample::select(vec![
        "h:1:2", "[0]", "NCCL", "INFO", "WARN", "comm", "0x1", "rank", "nranks", "2", "Init", "COMPLETE", "AllReduce:",
        "opCount", "1a", "count", "datatype", "7", "Bytes", "->", "Algo", "RING", "proto", "LL", "channel{Lo..Hi}={0..",
        "Channel", "00", ":", "0[0]", "1[1]", "via", "NET/IB/0", "#", "size", "time", "algbw", "busbw", "#wrong", "\n",
        "[1,0]<stdout>:", "[rank0]:", "\u{e9}", "Rank", "device", "on", "=", "]", "}",
    ]), 0..80)) {
        survive(format!("h:1:2 [0] NCCL INFO x\n{}", words.join(" ")).as_bytes());
    }
}
