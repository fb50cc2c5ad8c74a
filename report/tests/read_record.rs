//! Record files and folders to timelines.

use commtrace_report::read::{ReadError, ReadOptions, read, run_status};
use commtrace_report::record::{Header, RecordWriter, Row, RowKind, file_name, meta};
use commtrace_report::timeline::{Timeline, Track};
use std::fs::File;
use std::path::{Path, PathBuf};

fn header(rank: u32) -> Header {
    Header {
        rank,
        host: "node0".into(),
        boot_id: "boot-0".into(),
        pid: 100,
        run_id: "job-1".into(),
        start_unix_ns: 1_760_000_000_000_000_000,
        start_mono_ns: 5,
        world_size: None,
        writer_version: "0.1.0".into(),
    }
}

fn compute(name: &str, thread: u32, start: i64, end: i64) -> Row<'_> {
    Row {
        start_ns: Some(start),
        dur_ns: Some(end - start),
        thread: Some(thread),
        ..Row::new(RowKind::Compute, name)
    }
}

fn comm(op: &str, thread: u32, start: i64, end: i64) -> Row<'_> {
    Row {
        bytes: Some(64),
        comm: Some("dp"),
        ..Row { kind: RowKind::Comm, ..compute(op, thread, start, end) }
    }
}

fn end() -> Row<'static> {
    Row::new(RowKind::Meta, meta::END)
}

/// A finished file of `rows`, a batch per slice.
fn record(header: &Header, batches: &[&[Row<'_>]]) -> Vec<u8> {
    let mut writer = RecordWriter::new(Vec::new(), header).unwrap();
    for batch in batches {
        batch.iter().for_each(|row| writer.push(row));
        writer.flush().unwrap();
    }
    writer.finish().unwrap()
}

fn store(folder: &Path, header: &Header, batches: &[&[Row<'_>]]) -> PathBuf {
    let path = folder.join(file_name(header));
    std::fs::write(&path, record(header, batches)).unwrap();
    path
}

fn read_rows(rows: &[Row<'_>]) -> Timeline {
    let folder = tempfile::tempdir().unwrap();
    let path = store(folder.path(), &header(0), &[rows]);
    read(&[path], &ReadOptions::default()).unwrap()
}

fn compute_of(track: &Track) -> Vec<(i64, i64)> {
    track.compute.iter().map(|interval| (interval.start_ns, interval.end_ns)).collect()
}

fn comm_of(track: &Track) -> Vec<(i64, i64)> {
    track.comm.iter().map(|interval| (interval.start_ns, interval.end_ns)).collect()
}

fn warned(timeline: &Timeline, words: &[&str]) -> bool {
    timeline.warnings.iter().any(|warning| words.iter().all(|word| warning.contains(word)))
}

#[test]
fn every_field_survives() {
    let step = Row { step: Some(7), ..compute("step", 0, 0, 1_000) };
    let timeline = read_rows(&[
        Row { value: Some(4), ..Row::new(RowKind::Meta, meta::WORLD_SIZE) },
        Row { comm: Some("dp"), label: Some("0,2"), ..Row::new(RowKind::Meta, meta::COMMUNICATOR) },
        Row { step: Some(7), ..compute("forward", 0, 10, 20) },
        Row {
            comm_size: Some(2),
            comm_rank: Some(1),
            seq: Some(9),
            peer: Some(0),
            dtype: Some("f32"),
            stream: Some("comm"),
            step: Some(7),
            ..comm("broadcast", 1, 15, 40)
        },
        Row { kind: RowKind::Step, ..step },
        end(),
    ]);
    let [track] = &timeline.tracks[..] else { panic!("{:?}", timeline.tracks) };
    let text = |sym| timeline.names.get(sym);
    assert_eq!((track.rank, track.device), (0, None));
    assert_eq!(track.clock.map(text), Some("boot-0"));
    let forward = track.compute.get(0).unwrap();
    assert_eq!(
        (text(forward.name), forward.start_ns, forward.end_ns, forward.step),
        ("forward", 10, 20, Some(7))
    );
    let broadcast = track.comm.get(0).unwrap();
    assert_eq!((text(broadcast.op), broadcast.start_ns, broadcast.end_ns), ("broadcast", 15, 40));
    assert_eq!((broadcast.bytes, broadcast.seq, broadcast.peer), (Some(64), Some(9), Some(0)));
    assert_eq!((broadcast.comm_size, broadcast.comm_rank, broadcast.step), (Some(2), Some(1), Some(7)));
    assert_eq!(broadcast.comm.map(text), Some("dp"));
    assert_eq!(broadcast.dtype.map(text), Some("f32"));
    assert_eq!(broadcast.stream.map(text), Some("comm"));
    assert_eq!((track.steps[0].step, track.steps[0].start_ns, track.steps[0].end_ns), (7, 0, 1_000));
    assert_eq!(timeline.world_size, Some(4));
    assert_eq!(timeline.communicators[&timeline.names.find("dp").unwrap()], [0, 2]);
    let [input] = &timeline.inputs[..] else { panic!("{:?}", timeline.inputs) };
    assert_eq!((input.format.as_str(), input.events, input.rank), ("commtrace-record", 3, Some(0)));
    assert_eq!((input.ended, input.dropped), (Some(true), 0));
    assert!(input.skipped.is_empty() && input.anomalies.is_empty(), "{input:?}");
    assert!(warned(&timeline, &["Ranks 1-3 have no record (3 of 4"]), "{:?}", timeline.warnings);
    assert_eq!(timeline.warnings.len(), 1);
}

#[test]
fn blocking_communication_is_cut_out_of_compute_of_its_thread_only() {
    let timeline = read_rows(&[
        comm("all_reduce", 0, 30, 40),
        comm("all_reduce", 0, 60, 70),
        comm("all_reduce", 1, 10, 90),
        compute("backward", 0, 0, 100),
        compute("other thread", 2, 0, 100),
        end(),
    ]);
    let track = &timeline.tracks[0];
    assert_eq!(compute_of(track), [(0, 30), (40, 60), (70, 100), (0, 100)]);
    assert_eq!(comm_of(track), [(30, 40), (60, 70), (10, 90)]);
}

#[test]
fn communication_of_a_device_is_cut_out_of_its_stream_only() {
    let on = |row: Row<'static>, device, stream| Row { device: Some(device), stream: Some(stream), ..row };
    let timeline = read_rows(&[
        on(compute("same stream", 0, 0, 100), 0, "s1"),
        on(comm("all_reduce", 5, 30, 40), 0, "s1"),
        on(compute("other stream", 0, 0, 100), 0, "s2"),
        end(),
    ]);
    assert_eq!(compute_of(&timeline.tracks[0]), [(0, 30), (40, 100), (0, 100)]);
    assert_eq!(timeline.tracks[0].device, Some(0));
}

#[test]
fn communication_within_communication_is_an_anomaly() {
    let timeline = read_rows(&[comm("all_reduce", 0, 10, 20), comm("exchange", 0, 0, 100), end()]);
    assert_eq!(timeline.tracks[0].comm.len(), 2);
    assert_eq!(timeline.inputs[0].anomalies["nested_comm"], 1);
    assert!(warned(&timeline, &["Rank 0", "twice"]), "{:?}", timeline.warnings);
}

#[test]
fn host_timed_intervals_join_the_only_device() {
    let gpu = Row { device: Some(3), stream: Some("s"), ..compute("kernel", 0, 0, 50) };
    let timeline = read_rows(&[compute("loader", 0, 100, 200), gpu, comm("all_reduce", 1, 10, 20), end()]);
    let [track] = &timeline.tracks[..] else { panic!("{:?}", timeline.tracks) };
    assert_eq!(track.device, Some(3));
    assert_eq!((track.compute.len(), track.comm.len()), (2, 1));
}

#[test]
fn with_several_devices_host_timed_compute_stands_alone() {
    let gpu = |device| Row { device: Some(device), stream: Some("s"), ..compute("kernel", 0, 0, 50) };
    let step = Row { kind: RowKind::Step, step: Some(0), ..compute("step", 0, 0, 300) };
    let timeline = read_rows(&[gpu(0), gpu(1), compute("loader", 0, 100, 200), step, end()]);
    let devices: Vec<_> = timeline.tracks.iter().map(|track| track.device).collect();
    assert_eq!(devices, [None, Some(0), Some(1)]);
    assert!(timeline.tracks.iter().all(|track| track.steps.len() == 1));
    assert!(warned(&timeline, &["Rank 0 has 2 devices"]), "{:?}", timeline.warnings);
}

#[test]
fn untimed_dropped_and_capped_are_told() {
    let untimed =
        Row { untimed: Some("captured"), bytes: Some(1_000), ..Row::new(RowKind::Comm, "all_reduce") };
    let dropped =
        |count, why| Row { value: Some(count), label: Some(why), ..Row::new(RowKind::Meta, meta::DROPPED) };
    let timeline = read_rows(&[
        untimed,
        untimed,
        dropped(3, "queue full"),
        dropped(4, "queue full"),
        dropped(5, "disk full"),
        Row { value: Some(64), ..Row::new(RowKind::Meta, meta::CAPPED) },
        Row { label: Some("{}"), ..Row::new(RowKind::Meta, meta::SUMMARY) },
        end(),
    ]);
    let (track, input) = (&timeline.tracks[0], &timeline.inputs[0]);
    assert_eq!((track.untimed.count, track.untimed.bytes), (2, 2_000));
    assert_eq!(track.untimed.reasons["captured"], 2);
    assert_eq!(input.dropped, 12);
    let capped = input.capped.clone().unwrap();
    assert_eq!((capped.limit_mib, capped.summary_json.as_deref()), (Some(64), Some("{}")));
    assert!(warned(&timeline, &["Rank 0 lost 12 records", "queue full: 7", "disk full: 5"]));
    assert!(warned(&timeline, &["Rank 0 reached its size limit of 64 MiB"]));
}

#[test]
fn open_calls_are_kept_unless_they_ended() {
    let open = |span, start, seq| Row {
        start_ns: Some(start),
        comm: Some("dp"),
        seq: Some(seq),
        span: Some(span),
        ..Row::new(RowKind::Open, "all_reduce")
    };
    let done = |span, start, end| Row { span: Some(span), ..comm("all_reduce", 0, start, end) };
    let timeline = read_rows(&[
        open(1, 10, 0),
        done(1, 10, 20),
        // The finished row was written first.
        done(2, 30, 40),
        open(2, 30, 1),
        // Written at two flushes.
        open(3, 50, 2),
        open(3, 50, 2),
    ]);
    let track = &timeline.tracks[0];
    assert_eq!(track.comm.len(), 2);
    let open: Vec<_> = track.open.iter().map(|open| (open.start_ns, open.seq)).collect();
    assert_eq!(open, [(Some(50), Some(2))]);
    assert!(warned(&timeline, &["Rank 0 had begun", "all_reduce on dp, seq 2"]), "{:?}", timeline.warnings);
    assert!(warned(&timeline, &["did not end regularly"]));
    assert_eq!(timeline.inputs[0].ended, Some(false));
}

#[test]
fn odd_rows_are_counted_and_never_fatal() {
    let timeline = read_rows(&[
        Row { dur_ns: Some(-5), ..comm("all_reduce", 0, 10, 10) },
        Row { start_ns: Some(i64::MAX), dur_ns: Some(1), ..Row::new(RowKind::Comm, "all_reduce") },
        Row::new(RowKind::Compute, "no time"),
        Row::new(RowKind::Step, "no time"),
        Row { step: None, kind: RowKind::Step, ..compute("no number", 0, 0, 1) },
        Row::new(RowKind::Open, "no span"),
        Row::new(RowKind::Meta, "of a later version"),
        Row { label: Some("0,x"), comm: Some("dp"), ..Row::new(RowKind::Meta, meta::COMMUNICATOR) },
        end(),
    ]);
    let input = &timeline.inputs[0];
    assert_eq!(comm_of(&timeline.tracks[0]), [(10, 5)]);
    assert_eq!((input.events, input.anomalies["end_before_start"]), (1, 1));
    for reason in [
        "time_out_of_range",
        "compute_without_time",
        "step_without_time",
        "step_without_number",
        "open_without_span",
        "unknown_meta",
        "malformed_communicator",
    ] {
        assert_eq!(input.skipped.get(reason), Some(&1), "{reason}: {input:?}");
    }
}

#[test]
fn a_folder_reports_the_newest_run_and_names_the_others() {
    let folder = tempfile::tempdir().unwrap();
    for (run, start, ranks) in [("old", 1, 0..3), ("new", 3, 0..2), ("middle", 2, 0..1)] {
        for rank in ranks {
            let header = Header { run_id: run.into(), start_unix_ns: start * 1_000_000_000, ..header(rank) };
            store(folder.path(), &header, &[&[comm(run, 0, 0, 10), end()]]);
        }
    }
    std::fs::write(folder.path().join("summary.json"), "{}").unwrap();
    let paths = [folder.path().to_owned()];
    let timeline = read(&paths, &ReadOptions::default()).unwrap();
    assert_eq!(timeline.tracks.len(), 2);
    assert!(timeline.names.find("new").is_some() && timeline.names.find("old").is_none());
    assert!(warned(&timeline, &["holds 3 runs", "newest, new", "middle, old"]), "{:?}", timeline.warnings);

    let options = ReadOptions { run: Some("old".into()), ..ReadOptions::default() };
    let timeline = read(&paths, &options).unwrap();
    assert_eq!(timeline.tracks.len(), 3);
    assert!(timeline.warnings.is_empty(), "{:?}", timeline.warnings);

    let options = ReadOptions { run: Some("nope".into()), ..ReadOptions::default() };
    let message = read(&paths, &options).unwrap_err().to_string();
    assert!(message.contains("\"nope\"") && message.contains("middle, new, old"), "{message}");
}

#[test]
fn a_restarted_rank_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let first = header(0);
    let second = Header { pid: 200, start_unix_ns: first.start_unix_ns + 1_000_000_000, ..header(0) };
    store(folder.path(), &second, &[&[comm("all_reduce", 0, 100, 110), end()]]);
    store(folder.path(), &first, &[&[comm("all_reduce", 0, 0, 10)]]);
    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    assert_eq!(comm_of(&timeline.tracks[0]), [(0, 10), (100, 110)]);
    assert!(warned(&timeline, &["Rank 0", "restarted"]), "{:?}", timeline.warnings);
    assert!(warned(&timeline, &["did not end regularly", &file_name(&first)]));
}

#[test]
fn missing_ranks_are_named_as_ranges() {
    let folder = tempfile::tempdir().unwrap();
    for rank in [0, 5, 6] {
        let header = Header { world_size: Some(10), ..header(rank) };
        store(folder.path(), &header, &[&[end()]]);
    }
    let paths = [folder.path().to_owned()];
    let timeline = read(&paths, &ReadOptions::default()).unwrap();
    assert_eq!(timeline.tracks.len(), 3);
    assert!(warned(&timeline, &["Ranks 1-4, 7-9 have no record (7 of 10"]), "{:?}", timeline.warnings);

    let only = |ranks: &[u32]| ReadOptions {
        ranks: Some(ranks.iter().copied().collect()),
        ..ReadOptions::default()
    };
    let timeline = read(&paths, &only(&[5, 7])).unwrap();
    assert_eq!(timeline.tracks.iter().map(|track| track.rank).collect::<Vec<_>>(), [5]);
    assert!(warned(&timeline, &["Rank 7 has no record (1 of 10"]), "{:?}", timeline.warnings);

    let message = read(&paths, &only(&[7])).unwrap_err().to_string();
    assert!(message.contains("rank 7") && message.contains("0, 5, 6"), "{message}");
}

#[test]
fn unreadable_members_of_a_folder_are_left_out_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path(), &header(1), &[&[comm("all_reduce", 0, 0, 10), end()]]);
    File::create(folder.path().join("rank-00000.1.1.arrows")).unwrap();
    std::fs::write(folder.path().join("rank-00002.1.1.arrows"), "not a record").unwrap();
    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    assert_eq!(timeline.tracks.len(), 1);
    assert!(warned(&timeline, &["left out", "rank-00000", "empty"]), "{:?}", timeline.warnings);
    assert!(warned(&timeline, &["left out", "rank-00002"]), "{:?}", timeline.warnings);

    std::fs::remove_file(folder.path().join(file_name(&header(1)))).unwrap();
    let error = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, ReadError::Empty { .. }), "{error}");
}

#[test]
fn inputs_that_are_nothing_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let message = |path: &Path| read(&[path.to_owned()], &ReadOptions::default()).unwrap_err().to_string();

    let text = message(folder.path());
    assert!(text.contains("rank-*.arrows") && text.contains("found nothing"), "{text}");
    let text = message(&folder.path().join("absent"));
    assert!(text.contains("absent") && text.contains("No such file"), "{text}");

    for (content, words) in [
        (&b""[..], "is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG"),
        (b"hello, world\n", "hello"),
        (b"ARROW1\0\0", "Feather"),
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"\xff\xff", "ends within its header"),
        (b"\xff\xff\xff\xff\0\0\0\0", "ends before its schema"),
        (b"\xff\xff\xff\xff\x08\0\0\0\0\0\0\0\0\0\0\0", "does not begin with a schema"),
        (b"\xff\xff\xff\xff\x08\0\0\0~~~~~~~~", "metadata is invalid"),
    ] {
        let path = folder.path().join("input");
        std::fs::write(&path, content).unwrap();
        let text = message(&path);
        assert!(text.contains(words) && text.contains("input"), "{text}");
    }
    let text = message(folder.path());
    assert!(text.contains("found input"), "{text}");
    assert!(matches!(read(&[], &ReadOptions::default()), Err(ReadError::NoInput)));
}

#[test]
fn a_run_is_polled_for_its_end() {
    let folder = tempfile::tempdir().unwrap();
    store(folder.path(), &header(1), &[&[comm("all_reduce", 0, 0, 10), end()]]);
    let other_run = Header { run_id: "job-2".into(), pid: 7, ..header(0) };
    store(folder.path(), &other_run, &[&[end()]]);
    let path = folder.path().join(file_name(&header(0)));
    let mut writer = RecordWriter::new(File::create_new(&path).unwrap(), &header(0)).unwrap();
    let ended = || -> Vec<(u32, bool)> {
        let ranks = run_status(folder.path(), "job-1").unwrap();
        ranks.iter().map(|status| (status.rank, status.ended)).collect()
    };
    assert_eq!(ended(), [(0, false), (1, true)]);
    // These values end the file with the bytes of an end marker.
    for _ in 0..64 {
        writer.push(&Row { value: Some(0xffff_ffff), ..comm("all_reduce", 0, 0, 10) });
        writer.flush().unwrap();
        assert_eq!(ended(), [(0, false), (1, true)]);
    }
    writer.finish().unwrap();
    assert_eq!(ended(), [(0, true), (1, true)]);
}
