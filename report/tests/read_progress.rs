//! What a reading tells of how far it has come.

mod nsys_database;

use commtrace_report::convert::write_records;
use commtrace_report::read::{Progress, ReadOptions, read, read_with};
use flate2::{Compression, write::GzEncoder};
use nsys_database::{Export, GEMM};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Bytes that a reader takes at once, at most.
const BUFFER: u64 = 1 << 18;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Begin { files: usize, bytes: u64 },
    Advance(u64),
    Finish,
}

#[derive(Default)]
struct Heard(Mutex<Vec<Told>>);

impl Heard {
    fn push(&self, told: Told) {
        self.0.lock().unwrap().push(told);
    }
}

impl Progress for Heard {
    fn begin(&self, files: usize, bytes: u64) {
        self.push(Told::Begin { files, bytes });
    }

    fn advance(&self, bytes: u64) {
        self.push(Told::Advance(bytes));
    }

    fn finish(&self) {
        self.push(Told::Finish);
    }
}

/// Reads `paths`, and gives the portions that were told between the beginning and the end, after a check
/// that they are those of `files`.
#[track_caller]
fn portions(paths: &[PathBuf], options: &ReadOptions, files: &[&Path], succeeds: bool) -> Vec<u64> {
    let heard = Heard::default();
    let result = read_with(paths, options, &heard);
    assert_eq!(result.is_ok(), succeeds, "{:?}", result.err());
    let told = heard.0.into_inner().unwrap();
    let bytes = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert_eq!(told.first(), Some(&Told::Begin { files: files.len(), bytes }));
    assert_eq!(told.last(), Some(&Told::Finish));
    let portions: Vec<u64> = told[1..told.len() - 1]
        .iter()
        .map(|told| match told {
            Told::Advance(bytes) => *bytes,
            other => panic!("{other:?} between the beginning and the end"),
        })
        .collect();
    assert!(portions.iter().all(|&bytes| bytes > 0), "{portions:?}");
    assert_eq!(portions.iter().sum::<u64>(), bytes);
    portions
}

/// A trace of `count` kernels that compresses badly.
fn trace(rank: u32, count: u64) -> String {
    let mut random = u64::from(rank) + 1;
    let events: Vec<String> = (0..count)
        .map(|index| {
            let name: String = (0..4)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    format!("{:x}", random >> 8)
                })
                .collect();
            format!(r#"{{"ph":"X","cat":"kernel","name":"{name}","ts":{index},"dur":1,"args":{{"device":0,"stream":7}}}}"#)
        })
        .collect();
    format!(
        r#"{{"schemaVersion":1,"distributedInfo":{{"rank":{rank},"world_size":4}},"traceEvents":[{}]}}"#,
        events.join(",")
    )
}

fn gzip(path: &Path, content: &[u8]) {
    let mut encoder = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap();
}

#[test]
fn every_byte_of_a_folder_s_files_is_told_once_in_small_portions() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let plain = path("rank0.json");
    fs::write(&plain, trace(0, 7_000)).unwrap();
    let gz = path("rank1.json.gz");
    gzip(&gz, trace(1, 7_000).as_bytes());
    let zst = path("rank2.json.zst");
    let content = trace(2, 7_000);
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    fs::write(&zst, ruzstd::encoding::compress_to_vec(content.as_bytes(), level)).unwrap();
    let other = path("weights.bin");
    fs::write(&other, vec![0; 1_000_000]).unwrap();
    let files = [plain.as_path(), &gz, &zst, &other];

    let whole = portions(&[folder.path().to_owned()], &ReadOptions::default(), &files, true);
    // All but the file that is no trace, the rest of which is told at once.
    assert!(whole.len() > 8, "{whole:?}");
    let large = whole.iter().filter(|&&bytes| bytes > BUFFER).count();
    assert_eq!(large, 1, "{whole:?}");

    // Each alone, and one of them twice.
    for file in &files[..3] {
        let alone = portions(&[file.to_path_buf()], &ReadOptions::default(), &[file], true);
        assert!(alone.iter().all(|&bytes| bytes <= BUFFER), "{alone:?}");
    }
    portions(&[gz.clone(), gz.clone()], &ReadOptions::default(), &[&gz], true);
}

#[test]
fn what_is_not_wanted_is_told_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank3.json");
    fs::write(&path, trace(3, 10_000)).unwrap();
    let options = ReadOptions {
        ranks: Some([0].into()),
        rank_regex: Some(r"rank(\d+)".into()),
        ..ReadOptions::default()
    };
    // An error, since no rank is left.
    portions(std::slice::from_ref(&path), &options, &[&path], false);
}

#[test]
fn records_databases_and_timelines_are_told() {
    let export = Export::new();
    for index in 0..2_000 {
        export.kernel(16, 0, GEMM, (index * 10, index * 10 + 5), index);
    }
    portions(std::slice::from_ref(&export.path), &ReadOptions::default(), &[&export.path], true);

    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("rank0.json");
    fs::write(&source, trace(0, 5_000)).unwrap();
    let timeline = read(std::slice::from_ref(&source), &ReadOptions::default()).unwrap();
    let records = folder.path().join("records");
    let mut files = write_records(&timeline, &records, false).unwrap();
    // Of two runs, one is read.
    files.extend(write_records(&timeline, &records, true).unwrap());
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let told = portions(std::slice::from_ref(&records), &ReadOptions::default(), &files, true);
    assert!(told.len() > files.len(), "{told:?}");
    portions(&[files[0].to_owned()], &ReadOptions::default(), &files[..1], true);

    let json = folder.path().join("a.timeline.json");
    commtrace_report::read::write_timeline_json(&timeline, &mut File::create(&json).unwrap()).unwrap();
    let told = portions(std::slice::from_ref(&json), &ReadOptions::default(), &[&json], true);
    assert!(told.iter().all(|&bytes| bytes <= BUFFER), "{told:?}");
}

#[test]
fn the_end_is_told_whatever_happens() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.json");
    fs::write(&bad, r#"{"ranks": [{"rank": 0, "compute": [{"start": "#).unwrap();
    portions(std::slice::from_ref(&bad), &ReadOptions::default(), &[&bad], false);
    let missing = folder.path().join("missing.json");
    let heard = Heard::default();
    read_with(&[missing], &ReadOptions::default(), &heard).unwrap_err();
    assert_eq!(heard.0.into_inner().unwrap(), [Told::Begin { files: 1, bytes: 0 }, Told::Finish]);
}
