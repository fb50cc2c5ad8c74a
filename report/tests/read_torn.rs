//! Record files that were cut or damaged.

use commtrace_report::read::{ReadError, ReadOptions, read};
use commtrace_report::record::{Header, RecordWriter, Row, RowKind, meta};
use commtrace_report::timeline::Timeline;
use std::path::Path;

const BATCHES: usize = 3;
const ROWS: usize = 4;

fn record() -> (Vec<u8>, Vec<usize>) {
    record_of(BATCHES)
}

/// A finished file, and where each of its batches ends.
fn record_of(batches: usize) -> (Vec<u8>, Vec<usize>) {
    let header = Header {
        rank: 3,
        host: "node0".into(),
        boot_id: "boot-0".into(),
        pid: 100,
        run_id: "job-1".into(),
        start_unix_ns: 1_760_000_000_000_000_000,
        start_mono_ns: 5,
        world_size: None,
        writer_version: "0.1.0".into(),
    };
    let mut writer = RecordWriter::new(Vec::new(), &header).unwrap();
    let mut ends = vec![writer.bytes_written() as usize];
    for batch in 0..batches {
        for row in 0..ROWS {
            // Every batch adds texts, so that dictionaries are replaced throughout the file.
            let op = format!("op {batch}");
            let start = (batch * ROWS + row) as i64 * 100;
            writer.push(&Row {
                start_ns: Some(start),
                dur_ns: Some(50),
                bytes: Some(64),
                thread: Some(0),
                comm: Some("dp"),
                seq: Some(row as u64),
                ..Row::new(RowKind::Comm, &op)
            });
        }
        if batch + 1 == batches {
            writer.push(&Row::new(RowKind::Meta, meta::END));
        }
        writer.flush().unwrap();
        ends.push(writer.bytes_written() as usize);
    }
    (writer.finish().unwrap(), ends)
}

fn read_bytes(path: &Path, bytes: &[u8]) -> Result<Timeline, ReadError> {
    std::fs::write(path, bytes).unwrap();
    read(&[path.to_owned()], &ReadOptions::default())
}

fn ops(timeline: &Timeline) -> Vec<String> {
    let track = &timeline.tracks[0];
    track.comm.iter().map(|comm| timeline.names.get(comm.op).to_owned()).collect()
}

fn all_ops(batches: usize) -> Vec<String> {
    (0..batches * ROWS).map(|row| format!("op {}", row / ROWS)).collect()
}

fn warned(timeline: &Timeline, word: &str) -> bool {
    timeline.warnings.iter().any(|warning| warning.contains(word))
}

#[test]
fn a_file_cut_at_any_byte_gives_every_batch_before_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut");
    // Two batches: every byte is tried, which takes a while unoptimized.
    const BATCHES: usize = 2;
    let (file, ends) = record_of(BATCHES);
    let header_end = ends[0];
    for cut in 0..=file.len() {
        let result = read_bytes(&path, &file[..cut]);
        if cut < header_end {
            let error = result.unwrap_err();
            let expected = match cut {
                0 => matches!(error, ReadError::Empty { .. }),
                _ => matches!(error, ReadError::Record { at: 0, .. }),
            };
            assert!(expected, "cut at {cut}: {error}");
            continue;
        }
        let timeline = result.unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
        assert_eq!(ops(&timeline), all_ops(whole), "cut at {cut}");
        let input = &timeline.inputs[0];
        assert_eq!(input.events, (whole * ROWS) as u64, "cut at {cut}");
        assert_eq!(input.ended, Some(whole == BATCHES), "cut at {cut}");
        assert_eq!(warned(&timeline, "did not end regularly"), whole < BATCHES, "cut at {cut}");
        // A cut between messages cannot be told from a rank that was killed between two writes; a cut
        // in the marker behind the end row loses nothing.
        let torn = !ends.contains(&cut) && whole < BATCHES;
        assert_eq!(input.anomalies.get("torn_tail").copied(), torn.then_some(1), "cut at {cut}");
        assert_eq!(input.skipped.get("torn").copied(), torn.then_some(1), "cut at {cut}");
        assert_eq!(warned(&timeline, "last records are lost"), torn, "cut at {cut}");
    }
    assert!(warned(&read_bytes(&path, &file[..file.len() - 12]).unwrap(), "last records are lost"));
}

#[test]
fn zeros_behind_a_cut_end_the_file_there() {
    // What some file systems leave after a power failure.
    let folder = tempfile::tempdir().unwrap();
    let (mut file, ends) = record();
    file[ends[2]..].fill(0);
    let timeline = read_bytes(&folder.path().join("zeros"), &file).unwrap();
    assert_eq!(ops(&timeline), all_ops(2));
    assert!(warned(&timeline, &format!("damaged at byte {}", ends[2])), "{:?}", timeline.warnings);
}

#[test]
fn bytes_behind_the_end_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (mut file, _) = record();
    file.extend_from_slice(b"more");
    let timeline = read_bytes(&folder.path().join("more"), &file).unwrap();
    assert_eq!(ops(&timeline), all_ops(BATCHES));
    assert!(warned(&timeline, "4 bytes behind the end"), "{:?}", timeline.warnings);
}

#[test]
fn flipped_bits_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flipped");
    let (file, ends) = record();
    let (mut damaged, mut whole) = (0, 0);
    // Every third byte, each time another bit: all of them take minutes.
    for position in (0..file.len()).step_by(3) {
        let mut bytes = file.clone();
        bytes[position] ^= 1 << (position / 3 % 8);
        match read_bytes(&path, &bytes) {
            Ok(timeline) => {
                let events: usize = timeline.tracks.iter().map(|track| track.comm.len()).sum();
                assert!(events <= BATCHES * ROWS, "byte {position}: {events} events");
                // Batches before the damage are as they were.
                let before = ends.iter().filter(|&&end| end <= position).count().saturating_sub(1);
                if position >= ends[0] && events > 0 {
                    let ops = ops(&timeline);
                    assert!(ops.starts_with(&all_ops(before)), "byte {position}: {ops:?}");
                }
                whole += usize::from(events == BATCHES * ROWS);
                damaged += usize::from(events < BATCHES * ROWS);
            }
            Err(error) => {
                assert!(error.to_string().contains("flipped"), "{error}");
                damaged += 1;
            }
        }
    }
    assert!(damaged > whole / 10 && whole > 0, "{damaged} damaged, {whole} whole: the test flips too little");
}

#[test]
fn sizes_of_a_damaged_file_are_not_believed() {
    // The length of a column, before it was compressed, set to petabytes in every place that can be one.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sizes");
    let (file, ends) = record();
    for at in (ends[0]..file.len() - 8).step_by(8) {
        let mut bytes = file.clone();
        bytes[at..at + 8].copy_from_slice(&(1_i64 << 50).to_le_bytes());
        let timeline = read_bytes(&path, &bytes).unwrap();
        let events: usize = timeline.tracks.iter().map(|track| track.comm.len()).sum();
        assert!(events <= BATCHES * ROWS, "{events} events with byte {at} changed");
    }
}

#[test]
fn a_damaged_batch_is_left_out_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batch");
    let (file, ends) = record();
    // The last bytes of a batch's message are its last column's: keep the frame, break the content.
    let found = (ends[1]..ends[2]).rev().any(|at| {
        let mut bytes = file.clone();
        bytes[at] ^= 0x40;
        let Ok(timeline) = read_bytes(&path, &bytes) else { return false };
        let Some(&lost) = timeline.inputs[0].skipped.get("damaged") else { return false };
        let left: Vec<String> = all_ops(BATCHES).into_iter().filter(|op| op != "op 1").collect();
        lost == ROWS as u64
            && ops(&timeline) == left
            && warned(&timeline, "is damaged at byte")
            && timeline.inputs[0].ended == Some(true)
    });
    assert!(found, "no byte of the second batch breaks it alone");
}
