//! Exports of Nsight Systems that are cut, damaged, hostile, compressed, or none.

mod nsys_database;

use commtrace_report::read::{ReadError, ReadOptions, read};
use commtrace_report::timeline::Timeline;
use nsys_database::*;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

const PID: i64 = 144;
const MAIN: i64 = 1 << 48 | PID << 24 | PID;

/// An export in which every table has rows.
fn full(kernels: i64) -> Export {
    let export = Export::new();
    export.sql("BEGIN");
    export.comm(MAIN, 1, 0xabc, (0, 2), 0);
    for index in 0..kernels {
        let at = 100 * (index + 1);
        export.launch(MAIN, at, index + 1);
        if index % 4 == 0 {
            export.range(MAIN, &format!("step {index}"), (at - 1, at + 399));
            export.nccl(MAIN, "ncclAllReduce", (at - 1, at + 9), Some((2, &[0xabc, 64, 0])));
            export.kernel(PID, 0, ALL_REDUCE, (at + 20, at + 60), index + 1);
        } else {
            export.kernel(PID, 0, &format!("gemm_{}", index % 7), (at + 20, at + 60), index + 1);
        }
    }
    export.sql(&format!("INSERT INTO PROCESSES VALUES ({}, {PID}, 'python3')", process(PID)));
    export.sql(
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', 'RANK=0');
         INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1000000000000000000); COMMIT",
    );
    export
}

fn intervals(timeline: &Timeline) -> usize {
    timeline.tracks.iter().map(|track| track.compute.len() + track.comm.len()).sum()
}

fn read_at(path: &Path) -> Result<Timeline, ReadError> {
    read(&[path.to_owned()], &ReadOptions::default())
}

#[test]
fn reports_that_were_not_exported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("any name");
    // As files of Nsight Systems 2021 to 2025 begin.
    std::fs::write(&path, b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)\x12\x08\x08\x7f").unwrap();
    let error = error(&path);
    assert!(matches!(error, ReadError::NotExported { .. }), "{error}");
    assert!(error.to_string().contains("nsys export --type sqlite"), "{error}");
}

#[test]
fn a_folder_with_reports_and_what_they_were_exported_to() {
    let export = full(4);
    let report = export.folder().join("export.nsys-rep");
    std::fs::write(&report, b"NVIDIA Tegra Profiler Report 1.\n").unwrap();
    let timeline = read_at(export.folder()).unwrap();
    assert_eq!(intervals(&timeline), 4);
    assert_no_warning(&timeline);
    std::fs::rename(&report, export.folder().join("other.nsys-rep")).unwrap();
    assert_warns(&read_at(export.folder()).unwrap(), "nsys export --type sqlite");
}

#[test]
fn databases_of_no_use() {
    for (schema, expected) in [
        ("CREATE TABLE StringIds (id, value); CREATE TABLE NVTX_EVENTS (start, end)", "--trace=cuda,nvtx"),
        ("CREATE TABLE META_DATA_EXPORT (name, value)", "holds no kernels"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_, start, end)", "nvprof"),
        (
            "CREATE TABLE moz_places (id); CREATE TABLE a (b)",
            "another program, with the tables a, moz_places;",
        ),
        ("PRAGMA user_version = 1", "another program, with no table"),
        ("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)", "has no column end"),
        // Neither a view nor a virtual table is stored in the file.
        (
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE t(start, end) AS
                (SELECT 1, 2 UNION ALL SELECT start + 1, end + 1 FROM t) SELECT * FROM t",
            "another program, with no table",
        ),
        (
            "CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start, end)",
            "CUPTI_ACTIVITY_KIND_KERNEL_config",
        ),
    ] {
        let error = Export::with_schema(schema).error();
        assert!(error.contains(expected), "{schema}: {error}");
    }
}

#[test]
fn an_export_without_rows() {
    let timeline = Export::new().read();
    assert_warns(&timeline, "holds no kernel");
    assert_eq!(intervals(&timeline), 0);
}

#[test]
fn not_a_database_after_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    for content in [&b"SQLite format 3\0"[..], b"SQLite format 3\0and then some text", &[b'S'; 4096]] {
        std::fs::write(&path, content).unwrap();
        let error = error(&path).to_string();
        assert!(error.contains("x.sqlite"), "{error}");
    }
}

#[test]
fn cut_anywhere() {
    let export = full(400);
    let whole = std::fs::read(&export.path).unwrap();
    let path = export.folder().join("cut.sqlite");
    let mut partial = 0;
    // At every page, and in the middle of some.
    let lengths = (0..whole.len()).step_by(4096).chain((0..whole.len()).step_by(6007));
    for length in lengths {
        std::fs::write(&path, &whole[..length]).unwrap();
        match read_at(&path) {
            Ok(timeline) => {
                assert!(intervals(&timeline) <= 400);
                partial += usize::from(intervals(&timeline) > 0);
                assert_warns(&timeline, "the file is cut");
            }
            Err(error) => assert!(error.to_string().contains("cut.sqlite"), "{error}"),
        }
    }
    // More often than not, there is something left to see.
    assert!(partial > whole.len() / 4096 / 2, "{partial} of {}", whole.len() / 4096);
}

#[test]
fn flipped_bits() {
    let export = full(60);
    let whole = std::fs::read(&export.path).unwrap();
    let path = export.folder().join("flipped.sqlite");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut outcomes: BTreeMap<bool, usize> = BTreeMap::new();
    for round in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..1 + round % 7 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Every other one in the first pages, where the structure is.
            let range = if round % 2 == 0 { bytes.len() } else { 4096 * 3 };
            let at = usize::try_from(state >> 8).unwrap() % range;
            bytes[at] ^= 1 << (state & 7);
        }
        std::fs::write(&path, &bytes).unwrap();
        let outcome = read_at(&path);
        if let Ok(timeline) = &outcome {
            // A damaged page can only be counted as often as its rows fit the file.
            assert!(intervals(timeline) <= bytes.len() / 4);
        }
        *outcomes.entry(outcome.is_ok()).or_default() += 1;
    }
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}

#[test]
fn overwritten_pages() {
    let export = full(400);
    let whole = std::fs::read(&export.path).unwrap();
    let path = export.folder().join("overwritten.sqlite");
    for page in 0..whole.len() / 4096 {
        for with in [0x00, 0xff] {
            let mut bytes = whole.clone();
            bytes[page * 4096..(page + 1) * 4096].fill(with);
            std::fs::write(&path, &bytes).unwrap();
            match read_at(&path) {
                Ok(timeline) => assert!(intervals(&timeline) <= 400),
                Err(error) => assert!(error.to_string().contains("overwritten"), "{error}"),
            }
        }
        // A page that is another one of the same table: a loop, or the same rows twice.
        let mut bytes = whole.clone();
        let other = (page * 7 + 3) % (whole.len() / 4096);
        let copy = whole[other * 4096..(other + 1) * 4096].to_vec();
        bytes[page * 4096..(page + 1) * 4096].copy_from_slice(&copy);
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(timeline) = read_at(&path) {
            assert!(intervals(&timeline) <= bytes.len() / 4);
        }
    }
}

#[test]
fn damage_of_one_table_leaves_the_others() {
    let export = full(400);
    let root: i64 = export
        .database
        .query_row("SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'", [], |row| row.get(0))
        .unwrap();
    let mut bytes = std::fs::read(&export.path).unwrap();
    let at = (usize::try_from(root).unwrap() - 1) * 4096;
    bytes[at..at + 4096].fill(0xff);
    std::fs::write(&export.path, bytes).unwrap();
    let timeline = export.read();
    assert_eq!(intervals(&timeline), 400);
    assert_warns(&timeline, "is damaged: table NVTX_EVENTS cannot be read");
    assert_eq!(timeline.inputs[0].anomalies.get("damaged_table"), Some(&1));
}

#[test]
fn a_value_too_long_for_memory() {
    let export = full(4);
    export.sql("UPDATE NVTX_EVENTS SET text = CAST(zeroblob(20 << 20) AS TEXT) WHERE rowid = 3");
    let timeline = export.read();
    assert_eq!(intervals(&timeline), 4);
    assert_warns(&timeline, "table NVTX_EVENTS cannot be read beyond");
}

#[test]
fn values_of_the_wrong_type() {
    let export = Export::with_schema(
        "CREATE TABLE StringIds (id, value);
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, globalPid, correlationId,
             demangledName, graphNodeId);
         INSERT INTO StringIds VALUES ('x', 1), (1, x'ff'), (2, x'00'), (NULL, NULL);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
             ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'), (x'00', 1e300, 1.5, -1, -1, 9e99, x'01', 0.5),
             (1, 2, 99999999999, -5, 9223372036854775807, -9223372036854775808, -7, 'x'),
             (1, 2, NULL, NULL, NULL, NULL, NULL, NULL);
         CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId, jsonText);
         INSERT INTO NVTX_EVENTS VALUES ('a', 'b', 59, 'step 1', 'c', 'd', 'e', 5),
             (-9223372036854775808, 9223372036854775807, 59, 'step 2', NULL, -1, NULL, 'x'),
             (5, 1, 59, 'ncclAllReduce', NULL, 9223372036854775807, NULL, '{');
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, globalTid, correlationId);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (x'00', NULL, 'x'), (1, -1, -9223372036854775808)",
    );
    let timeline = export.read();
    assert_eq!(intervals(&timeline), 2);
    assert_eq!(timeline.inputs[0].skipped.get("bad_time"), Some(&2));
}

#[test]
fn text_that_is_not_utf_8() {
    let export = full(4);
    export.sql(
        "UPDATE StringIds SET value = CAST(x'67ff67' AS TEXT) WHERE value = 'gemm_1';
         UPDATE TARGET_INFO_SYSTEM_ENV SET value = CAST(x'ff00524f4f543dfe' AS TEXT)",
    );
    let timeline = export.read();
    assert_eq!(intervals(&timeline), 4);
    assert!(timeline.names.iter().any(|name| name == "g\u{fffd}g"));
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_exports() {
    let export = full(400);
    let whole = std::fs::read(&export.path).unwrap();
    let path = export.folder().join("compressed");
    let zstd = ruzstd::encoding::compress_to_vec(&whole[..], ruzstd::encoding::CompressionLevel::Fastest);
    for bytes in [gzip(&whole), zstd] {
        std::fs::write(&path, &bytes).unwrap();
        let timeline = read_at(&path).unwrap();
        assert_eq!(intervals(&timeline), 400);
        assert_eq!(timeline.tracks[0].compute, export.read().tracks[0].compute);
        assert_no_warning(&timeline);
    }
    // Cut.
    let cut = gzip(&whole);
    std::fs::write(&path, &cut[..cut.len() / 2]).unwrap();
    match read_at(&path) {
        Ok(timeline) => assert_warns(&timeline, "can be decompressed only up to byte"),
        Err(error) => assert!(error.to_string().contains("can be decompressed only up to byte"), "{error}"),
    }
    // What follows the database's own pages is not written anywhere.
    std::fs::write(&path, gzip(&[&whole[..], &vec![0; 64 << 20]].concat())).unwrap();
    assert_eq!(intervals(&read_at(&path).unwrap()), 400);
    // One that claims to be larger than what is decompressed.
    let mut large = whole;
    large[28..32].copy_from_slice(&u32::MAX.to_be_bytes());
    std::fs::write(&path, gzip(&large)).unwrap();
    let error = error(&path).to_string();
    assert!(error.contains("decompress it first"), "{error}");
}

#[test]
fn nothing_is_written_beside_the_file() {
    let export = full(4);
    export.sql("PRAGMA journal_mode = WAL");
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("wal.sqlite");
    std::fs::copy(&export.path, &path).unwrap();
    let before = std::fs::read(&path).unwrap();
    assert_eq!(intervals(&read_at(&path).unwrap()), 4);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let names: Vec<_> =
        std::fs::read_dir(copy.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["wal.sqlite"]);
    // A log that is there is left alone, and said.
    std::fs::write(copy.path().join("wal.sqlite-wal"), b"not finished").unwrap();
    assert_warns(&read_at(&path).unwrap(), "write-ahead log");
    assert_eq!(std::fs::read(copy.path().join("wal.sqlite-wal")).unwrap(), b"not finished");
}

#[test]
fn paths_that_mean_something_in_a_uri() {
    let export = full(4);
    let mut names = vec![OsStr::new("a?mode=rwc"), OsStr::new("a#b%41 c&d"), OsStr::new("ä.sqlite")];
    #[cfg(unix)]
    names.push(std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe.sqlite"));
    for name in names {
        let path = export.folder().join(name);
        std::fs::copy(&export.path, &path).unwrap();
        assert_eq!(intervals(&read_at(&path).unwrap()), 4, "{name:?}");
    }
}
