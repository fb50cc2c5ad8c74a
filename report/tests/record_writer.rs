//! The writer of record files at its limits.

use commtrace_report::read::{ReadOptions, read};
use commtrace_report::record::{Header, RecordError, RecordWriter, Row, RowKind, meta};
use std::io::{self, Write};

fn header() -> Header {
    Header {
        rank: 0,
        host: "node0".into(),
        boot_id: "boot-0".into(),
        pid: 100,
        run_id: "job-1".into(),
        start_unix_ns: 1,
        start_mono_ns: 1,
        world_size: None,
        writer_version: "0.1.0".into(),
    }
}

fn comm(name: &str, start: i64) -> Row<'_> {
    Row { start_ns: Some(start), dur_ns: Some(1), ..Row::new(RowKind::Comm, name) }
}

#[test]
fn a_flush_of_more_rows_and_texts_than_a_batch_can_hold() {
    const ROWS: usize = 150_000;
    // More distinct names than 16-bit keys can tell apart.
    let names: Vec<String> = (0..40_000).map(|name| format!("op {name}")).collect();
    let mut writer = RecordWriter::new(Vec::new(), &header()).unwrap();
    for row in 0..ROWS {
        writer.push(&comm(&names[row % names.len()], row as i64));
    }
    writer.push(&Row::new(RowKind::Meta, meta::END));
    assert_eq!(writer.pending(), ROWS + 1);
    writer.flush().unwrap();
    assert_eq!(writer.pending(), 0);
    let file = writer.finish().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    std::fs::write(&path, file).unwrap();
    let timeline = read(&[path], &ReadOptions::default()).unwrap();
    assert!(timeline.warnings.is_empty(), "{:?}", timeline.warnings);
    let track = &timeline.tracks[0];
    assert_eq!(track.comm.len(), ROWS);
    for (row, comm) in track.comm.iter().enumerate() {
        assert_eq!(timeline.names.get(comm.op), names[row % names.len()], "row {row}");
        assert_eq!(comm.start_ns, row as i64);
    }
}

#[test]
fn a_dictionary_is_written_again_only_when_something_was_added() {
    let mut writer = RecordWriter::new(Vec::new(), &header()).unwrap();
    let mut flush = |name: &str| {
        let before = writer.bytes_written();
        writer.push(&comm(name, 0));
        writer.flush().unwrap();
        writer.bytes_written() - before
    };
    let first = flush("all_reduce");
    let same = flush("all_reduce");
    let added = flush("all_gather");
    let again = flush("all_reduce");
    assert!(same < added && added < first, "{first}, {same}, {added}");
    assert_eq!(same, again);
}

#[test]
fn nothing_is_written_without_rows() {
    let mut writer = RecordWriter::new(Vec::new(), &header()).unwrap();
    let header_bytes = writer.bytes_written();
    writer.flush().unwrap();
    assert_eq!(writer.bytes_written(), header_bytes);
    assert_eq!(writer.finish().unwrap().len() as u64, header_bytes + 8);
}

/// An output that has room for some bytes, as a disk that is nearly full.
struct Full {
    room: usize,
    written: Vec<u8>,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room - self.written.len());
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_once_and_nothing_is_appended_behind_the_torn_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    let mut writer = RecordWriter::new(Full { room: 6_000, written: Vec::new() }, &header()).unwrap();
    let mut whole = 0;
    let error = loop {
        writer.push(&comm("all_reduce", whole));
        match writer.flush() {
            Ok(()) => whole += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, RecordError::Io(io) if io.kind() == io::ErrorKind::StorageFull), "{error}");
    writer.push(&comm("all_reduce", 0));
    assert!(matches!(writer.flush(), Err(RecordError::Broken)));
    let file = writer.get_ref().written.clone();
    assert!(matches!(writer.finish(), Err(RecordError::Broken)));

    assert_eq!(file.len(), 6_000);
    std::fs::write(&path, file).unwrap();
    let timeline = read(&[path], &ReadOptions::default()).unwrap();
    assert_eq!(timeline.tracks[0].comm.len() as i64, whole);
    assert!(whole > 0);

    let error = RecordWriter::new(Full { room: 10, written: Vec::new() }, &header()).unwrap_err();
    assert!(matches!(error, RecordError::Io(_)), "{error}");
}

#[test]
fn texts_of_any_kind_survive() {
    let names = ["", " ", "a\nb", "\u{1f980} 通信", &"x".repeat(100_000)];
    let mut writer = RecordWriter::new(Vec::new(), &header()).unwrap();
    names.iter().for_each(|name| writer.push(&comm(name, 0)));
    writer.push(&Row::new(RowKind::Meta, meta::END));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record");
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    let timeline = read(&[path], &ReadOptions::default()).unwrap();
    let read: Vec<&str> = timeline.tracks[0].comm.iter().map(|comm| timeline.names.get(comm.op)).collect();
    assert_eq!(read, names);
}
