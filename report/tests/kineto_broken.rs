//! Traces that were cut, damaged, or made to harm.

use commtrace_report::read::{ReadError, ReadOptions, read};
use commtrace_report::timeline::Timeline;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto").join(name)).unwrap()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A file with these bytes; the folder keeps it alive.
fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn load(bytes: &[u8]) -> Result<Timeline, ReadError> {
    let (_folder, path) = file(bytes);
    read(&[path], &ReadOptions::default())
}

fn kernels(timeline: &Timeline) -> usize {
    timeline.tracks.iter().map(|track| track.compute.len() + track.comm.len()).sum()
}

fn warned(timeline: &Timeline, text: &str) -> bool {
    timeline.warnings.iter().any(|warning| warning.contains(text))
}

/// A trace of `count` kernels, half of them communication.
fn trace(count: usize) -> Vec<u8> {
    let mut text = String::from(r#"{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": ["#);
    for index in 0..count {
        let name = if index % 2 == 0 { "gemm" } else { "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)" };
        let comma = if index > 0 { "," } else { "" };
        text.push_str(&format!(
            r#"{comma}{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{index}.5,"dur":1,"args":{{"device":0,"stream":7,"correlation":{index}}}}}"#
        ));
    }
    text.push_str("]}");
    text.into_bytes()
}

#[test]
fn compressed_or_not_it_is_the_same_trace() {
    let plain = trace(1000);
    for bytes in [plain.clone(), gzip(&plain), zstd(&plain)] {
        let timeline = load(&bytes).unwrap();
        assert_eq!(kernels(&timeline), 1000);
        assert!(timeline.inputs[0].anomalies.is_empty());
    }
}

#[test]
fn a_job_that_was_stopped_while_it_wrote() {
    let plain = trace(1000);
    let mut seen = Vec::new();
    for cut in [plain.len() - 1, plain.len() - 2, plain.len() / 2, plain.len() / 3, 200, 70, 60, 30, 20] {
        let timeline = load(&plain[..cut]).unwrap();
        assert_eq!(timeline.inputs[0].anomalies.get("truncated"), Some(&1), "cut at {cut}");
        assert!(warned(&timeline, "before its closing brackets"), "{:?}", timeline.warnings);
        seen.push(kernels(&timeline));
    }
    assert_eq!(seen[0], 1000);
    assert!(seen.is_sorted_by(|a, b| a >= b) && seen[2] > 400 && seen[2] < 600, "{seen:?}");
}

#[test]
fn a_compressed_file_that_was_cut_or_damaged() {
    let plain = trace(20_000);
    for (name, bytes) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain))] {
        let half = load(&bytes[..bytes.len() / 2]).unwrap();
        assert_eq!(half.inputs[0].anomalies.get("truncated"), Some(&1), "{name}");
        assert!(kernels(&half) > 1000 && kernels(&half) < 19_000, "{name}: {}", kernels(&half));
        assert!(warned(&half, "cannot be read beyond byte"), "{name}: {:?}", half.warnings);
        // Only the sums at the end of gzip are missing; the last block of zstd is whole or nothing.
        let nearly = load(&bytes[..bytes.len() - 2]).unwrap();
        assert!(kernels(&nearly) == 20_000 || (name == "zstd" && kernels(&nearly) > 15_000), "{name}");
        let kind = if name == "zstd" { "truncated" } else { "damaged" };
        assert_eq!(nearly.inputs[0].anomalies.get(kind), Some(&1), "{name}");

        let mut damaged = bytes.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 8].fill(0xff);
        if let Ok(timeline) = load(&damaged) {
            let input = &timeline.inputs[0];
            let noticed = ["truncated", "damaged"].iter().any(|kind| input.anomalies.contains_key(*kind));
            assert!(noticed, "{name}: {input:?}");
        }
    }
}

#[test]
fn an_array_instead_of_an_object() {
    let plain = trace(10);
    let start = plain.iter().position(|&byte| byte == b'[').unwrap();
    let array = &plain[start..plain.len() - 1];
    assert_eq!(kernels(&load(array).unwrap()), 10);
    let open = load(&array[..array.len() - 1]).unwrap();
    assert_eq!(kernels(&open), 10);
    assert!(warned(&open, "before its closing brackets"));
}

#[test]
fn keys_may_stand_anywhere_and_twice() {
    let text =
        br#"{"displayTimeUnit": "ms", "distributedInfo": {"rank": 9}, "distributedInfo": {"rank": "4"},
        "traceEvents": [{"args": {"stream": 7, "device": "1"}, "dur": "2", "ts": "1", "tid": 7, "pid": 0,
        "name": "gemm", "cat": "kernel", "ph": "X"}], "baseTimeNanoseconds": "1000000000000000000"}"#;
    let timeline = load(text).unwrap();
    assert_eq!((timeline.tracks[0].rank, timeline.tracks[0].device), (4, Some(1)));
    assert_eq!(timeline.tracks[0].compute.starts_ns(), [1_000_000_000_000_001_000]);
}

#[test]
fn times_that_are_absolute_stay_so() {
    // Some versions write the base although the times do not count from it.
    let text = br#"{"baseTimeNanoseconds": 1700000000000000000, "traceEvents": [{"ph": "X", "cat": "kernel",
        "name": "gemm", "ts": 1700000000000001.5, "dur": 1, "args": {"device": 0}}]}"#;
    assert_eq!(load(text).unwrap().tracks[0].compute.starts_ns(), [1_700_000_000_000_001_500]);
}

#[test]
fn nesting_without_end() {
    let depth = 1 << 17;
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let inner = open.repeat(depth);
        let closed = if open == "[" { close.repeat(depth) } else { format!("1{}", close.repeat(depth)) };
        // Where nothing looks for it, it costs nothing.
        let event = r#"{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"args":{"device":0}}"#;
        let text = format!(r#"{{"x": {inner}{closed}, "traceEvents": [{event}, {inner}{closed}, {event}]}}"#);
        let timeline = load(text.as_bytes()).unwrap();
        assert_eq!(kernels(&timeline), 2);
        let args = format!(
            r#"{{"traceEvents": [{{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"args":{{"q":{inner}{closed}}}}}]}}"#
        );
        assert_eq!(kernels(&load(args.as_bytes()).unwrap()), 1);
        let open_end = format!(r#"{{"traceEvents": [{event}, {inner}"#);
        let timeline = load(open_end.as_bytes()).unwrap();
        assert_eq!(kernels(&timeline), 1);
        assert!(warned(&timeline, "before its closing brackets"));
    }
}

#[test]
fn one_value_as_large_as_a_bomb() {
    // 80 MiB of one letter, in 80 KiB.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(br#"{"traceEvents": [{"ph": "X", "name": ""#).unwrap();
    let block = [b'x'; 1 << 20];
    for _ in 0..80 {
        encoder.write_all(&block).unwrap();
    }
    let error = load(&encoder.finish().unwrap()).unwrap_err();
    assert!(matches!(error, ReadError::TooLong { at: 17, mib: 64, .. }), "{error:?}");
    assert!(error.to_string().contains("longer than 64 MiB"), "{error}");
}

#[test]
fn what_is_json_and_no_trace() {
    for text in ["[1, 2]", "[]", "{}", r#"{"a": 1}"#, r#"{"traceEvents": 5}"#, r#"{"a" 1}"#, "[", "{"] {
        let error = load(text.as_bytes()).map(|timeline| timeline.inputs).unwrap_err();
        assert!(matches!(error, ReadError::Json { .. }), "{text}: {error}");
    }
    assert!(matches!(load(&gzip(b"hello")), Err(ReadError::UnknownFormat { .. })));
}

#[test]
fn a_trace_without_events_is_one() {
    let timeline = load(br#"{"schemaVersion": 1, "traceEvents": []}"#).unwrap();
    assert!(timeline.tracks.is_empty());
    assert!(warned(&timeline, "no compute and no communication"));
}

#[test]
fn a_timeline_is_read_compressed_too() {
    let text = br#"{"compute": [{"name": "f", "start": 0, "end": 2}], "comm": []}"#;
    for bytes in [text.to_vec(), gzip(text), zstd(text)] {
        let timeline = load(&bytes).unwrap();
        assert_eq!(timeline.inputs[0].format, "timeline-json");
        assert_eq!(kernels(&timeline), 1);
    }
}

#[test]
fn every_cut_of_every_small_trace_gives_a_part_of_it() {
    for name in ["nanoseconds.json", "launched_by_host.json", "odd_events.json", "odd_text.json"] {
        let whole = data(name);
        let all = kernels(&load(&whole).unwrap());
        for cut in (20..whole.len()).step_by(17) {
            match load(&whole[..cut]) {
                Ok(timeline) => assert!(kernels(&timeline) <= all, "{name} cut at {cut}"),
                Err(error) => panic!("{name} cut at {cut}: {error}"),
            }
        }
    }
}
