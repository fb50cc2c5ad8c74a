//! Damaged traces of all kinds: whatever stands in a file, reading it ends, with a result or an error.
//!
//! The damage is pseudo-random and the same in every run. `fuzz/` searches further.

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use std::path::{Path, PathBuf};

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length);
        start..(start + 1 + self.below(200)).min(length)
    }
}

/// What is put in: pieces that mean something to a reader.
const PIECES: [&[u8]; 22] = [
    b"NaN",
    b"-Infinity",
    b"}",
    b"]",
    b"{",
    b"[",
    b"\"",
    b"\\",
    b",",
    b":",
    b"1e999",
    b"-1",
    b"null",
    b"\0",
    b"\xff\xfe",
    b"18446744073709551616",
    b"{\"ph\":\"B\",\"ts\":1,\"cat\":\"kernel\"},",
    b"{\"ph\":\"E\",\"ts\":0},",
    b"\"ts\":9223372036854775807,",
    b"\"dur\":9223372036854775807,",
    b"\"traceEvents\":[",
    b"\\ud800",
];

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return;
        }
        match random.below(6) {
            0 => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            1 => bytes.truncate(random.below(bytes.len())),
            2 => {
                let range = random.range(bytes.len());
                bytes.drain(range);
            }
            3 => {
                let piece = bytes[random.range(bytes.len())].to_vec();
                let at = random.below(bytes.len());
                bytes.splice(at..at, piece);
            }
            4 => {
                let piece = PIECES[random.below(PIECES.len())];
                let at = random.below(bytes.len());
                bytes.splice(at..at, piece.iter().copied());
            }
            _ => {
                let piece = PIECES[random.below(PIECES.len())];
                let range = random.range(bytes.len());
                bytes.splice(range, piece.iter().copied());
            }
        }
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn survives(bytes: &[u8], path: &Path, options: &ReadOptions) {
    std::fs::write(path, bytes).unwrap();
    let Ok(timeline) = read(&[path.to_owned()], options) else { return };
    let events: usize = timeline.tracks.iter().map(|track| track.compute.len() + track.comm.len()).sum();
    assert!(events <= bytes.len() / 2, "{events} events of {} bytes", bytes.len());
    let report = analyze(&timeline, &AnalyzeOptions::default());
    for rank in &report.ranks {
        assert!(rank.summary.total_comm_time.is_finite() && rank.summary.exposed_comm_time >= Some(0.0));
    }
}

#[test]
fn damaged_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let options = ReadOptions {
        comm_patterns: vec!["halo=exchange|forward".parse().unwrap()],
        compute_pattern: Some("idle|aten".into()),
        copies_as_compute: true,
        ..ReadOptions::default()
    };
    let mut random = Random(1);
    for file in files("kineto") {
        let whole = std::fs::read(&file).unwrap();
        for round in 0..200 {
            let mut bytes = whole.clone();
            damage(&mut bytes, &mut random);
            let options = if round % 2 == 0 { &options } else { &ReadOptions::default() };
            survives(&bytes, &path, options);
        }
    }
}

#[test]
fn damaged_compression() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json.gz");
    let mut random = Random(2);
    for file in files("pytorch").into_iter().filter(|file| file.extension().is_some_and(|it| it == "gz")) {
        let whole = std::fs::read(&file).unwrap();
        for _ in 0..20 {
            let mut bytes = whole.clone();
            damage(&mut bytes, &mut random);
            std::fs::write(&path, &bytes).unwrap();
            let _ = read(std::slice::from_ref(&path), &ReadOptions::default());
        }
    }
}

#[test]
fn parts_of_different_traces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let all: Vec<Vec<u8>> = files("kineto").iter().map(|file| std::fs::read(file).unwrap()).collect();
    let mut random = Random(3);
    for _ in 0..1000 {
        let mut bytes = Vec::new();
        for _ in 0..=random.below(3) {
            let part = &all[random.below(all.len())];
            let from = random.below(part.len());
            let to = from + random.below(part.len() - from);
            let start = if bytes.is_empty() { 0 } else { from };
            bytes.extend_from_slice(&part[start..to]);
        }
        survives(&bytes, &path, &ReadOptions::default());
    }
}
