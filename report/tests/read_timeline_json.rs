//! Timeline JSON to timelines.

use commtrace_report::read::{ReadError, ReadOptions, read, write_timeline_json};
use commtrace_report::timeline::{Comm, Compute, Step, Timeline, Track};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::path::Path;

fn read_text(text: &str) -> Result<Timeline, ReadError> {
    let folder = tempfile::tempdir().unwrap();
    read_in(folder.path(), text)
}

fn read_in(folder: &Path, text: &str) -> Result<Timeline, ReadError> {
    // Named so that only the content can tell what it is.
    let path = folder.join("input.txt");
    std::fs::write(&path, text).unwrap();
    read(&[path], &ReadOptions::default())
}

fn message(text: &str) -> String {
    read_text(text).unwrap_err().to_string()
}

#[test]
fn a_rank_with_everything() {
    let timeline = read_text(
        r#"{"ranks":[{"comm":[{"op":"broadcast","start":1.000001,"end":2.5,"bytes":131072,"comm":"dp","seq":4,
            "comm_size":8,"comm_rank":1,"stream":7,"dtype":"bf16","peer":0,"step":3,"note":{"x":[1,{}]}}],
            "steps":[{"step":3,"start":0,"end":9}],"device":2,"host":"node7","rank":5,
            "compute":[{"end":2e0,"start":-0.5,"name":"forward"}],"unknown":null}],"version":1}"#,
    )
    .unwrap();
    let [track] = &timeline.tracks[..] else { panic!("{:?}", timeline.tracks) };
    let text = |sym| timeline.names.get(sym);
    assert_eq!((track.rank, track.device, track.clock.map(text)), (5, Some(2), Some("node7")));
    let comm = track.comm.get(0).unwrap();
    assert_eq!((text(comm.op), comm.start_ns, comm.end_ns), ("broadcast", 1_000_001, 2_500_000));
    assert_eq!((comm.bytes, comm.seq, comm.comm_size), (Some(131_072), Some(4), Some(8)));
    assert_eq!((comm.comm_rank, comm.peer, comm.step), (Some(1), Some(0), Some(3)));
    assert_eq!(comm.comm.map(text), Some("dp"));
    assert_eq!(comm.stream.map(text), Some("7"));
    assert_eq!(comm.dtype.map(text), Some("bf16"));
    let compute = track.compute.get(0).unwrap();
    assert_eq!((text(compute.name), compute.start_ns, compute.end_ns), ("forward", -500_000, 2_000_000));
    assert_eq!(track.steps, [Step { step: 3, start_ns: 0, end_ns: 9_000_000 }]);
    let input = &timeline.inputs[0];
    assert_eq!((input.format.as_str(), input.events, input.rank), ("timeline-json", 3, Some(5)));
    assert!(timeline.warnings.is_empty(), "{:?}", timeline.warnings);
}

#[test]
fn a_bare_object_is_rank_0() {
    let timeline = read_text(
        "\u{feff} {\"compute\": [], \"comm\": [{\"op\":\"all_reduce\",\"start\":0,\"end\":1,\"bytes\":null}]}\n",
    )
    .unwrap();
    assert_eq!((timeline.tracks.len(), timeline.tracks[0].rank), (1, 0));
    assert_eq!(timeline.tracks[0].comm.get(0).unwrap().bytes, None);
}

#[test]
fn times_are_exact_where_a_double_is_not() {
    // 2^53 + 1 nanoseconds.
    let timeline = read_text(
        r#"{"compute":[],"comm":[{"op":"a","start":9007199254.740993,"end":9223372036854.775807,"bytes":0},
            {"op":"a","start":-9223372036854.775808,"end":2.5e-6,"bytes":4096.0}]}"#,
    )
    .unwrap();
    let track = &timeline.tracks[0];
    assert_eq!(track.comm.starts_ns(), [9_007_199_254_740_993, i64::MIN]);
    assert_eq!(track.comm.ends_ns(), [i64::MAX, 2]);
    assert_eq!(track.comm.get(1).unwrap().bytes, Some(4_096));
}

#[test]
fn an_end_before_its_start_is_kept_and_counted() {
    let timeline = read_text(
        r#"{"compute":[{"name":"a","start":2,"end":1}],
            "comm":[{"op":"a","start":2,"end":1,"bytes":0},{"op":"a","start":1,"end":1,"bytes":0}]}"#,
    )
    .unwrap();
    assert_eq!((timeline.tracks[0].compute.len(), timeline.tracks[0].comm.len()), (1, 2));
    assert_eq!(timeline.inputs[0].anomalies["end_before_start"], 2);
}

#[test]
fn tracks_of_several_ranks_devices_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let one = folder.path().join("one");
    let two = folder.path().join("two");
    let rank = |rank: u32, device: &str, op: &str| {
        format!(
            r#"{{"rank":{rank},"device":{device},"compute":[],
                "comm":[{{"op":"{op}","start":0,"end":1,"bytes":1}}]}}"#
        )
    };
    let document = |ranks: &[String]| format!(r#"{{"ranks":[{}]}}"#, ranks.join(","));
    std::fs::write(&one, document(&[rank(1, "1", "a"), rank(1, "0", "b"), rank(0, "null", "c")])).unwrap();
    std::fs::write(&two, document(&[rank(1, "0", "d")])).unwrap();
    let timeline = read(&[one.clone(), two], &ReadOptions::default()).unwrap();
    let tracks: Vec<_> = timeline.tracks.iter().map(|t| (t.rank, t.device, t.comm.len())).collect();
    assert_eq!(tracks, [(0, None, 1), (1, Some(0), 2), (1, Some(1), 1)]);
    assert_eq!(timeline.inputs.len(), 2);
    assert_eq!(timeline.inputs[0].rank, None);

    let options = ReadOptions { ranks: Some([0].into()), ..ReadOptions::default() };
    let timeline = read(std::slice::from_ref(&one), &options).unwrap();
    assert_eq!(timeline.tracks.len(), 1);
    assert_eq!(timeline.inputs[0].events, 1);
    let options = ReadOptions { ranks: Some([7].into()), ..ReadOptions::default() };
    let error = read(&[one], &options).unwrap_err().to_string();
    assert!(error.contains("holds rank 7") && error.contains("0, 1"), "{error}");
}

/// The document with `value` for one key of the second communication record, on line 4.
fn with(key: &str, value: &str) -> String {
    let mut fields = [("op", "\"a\""), ("start", "0.5"), ("end", "1"), ("bytes", "8"), ("seq", "1")];
    for field in &mut fields {
        if field.0 == key {
            field.1 = value;
        }
    }
    let record: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!(
        "{{\"ranks\":[{{\"rank\":0,\"compute\":[],\"comm\":[]}},\n{{\"rank\":4,\"compute\":[],\"comm\":[\n\
         {{\"op\":\"a\",\"start\":0,\"end\":1,\"bytes\":8}},\n{{{}}}]}}]}}",
        record.join(",")
    )
}

#[test]
fn the_document_of_the_next_test_is_sound() {
    let timeline = read_text(&with("op", "\"a\"")).unwrap();
    assert_eq!(timeline.tracks[1].comm.len(), 2);
}

#[test]
fn wrong_values_are_named_with_their_place() {
    for (key, value, what) in [
        ("start", "NaN", "NaN"),
        ("start", "nan", "nan"),
        ("end", "Infinity", "Infinity"),
        ("end", "-Infinity", "-Infinity"),
        ("end", "inf", "inf"),
        ("end", "1e999", "out of the range"),
        ("end", "9223372036854.775808", "out of the range"),
        ("start", "\"0.5\"", "\"0.5\" is not a number of milliseconds"),
        ("start", "null", "null is not a number of milliseconds"),
        ("start", "[1]", "[1] is not a number of milliseconds"),
        ("bytes", "-1", "-1 is negative"),
        ("bytes", "-0.5", "is not a whole number"),
        ("bytes", "1.5", "1.5 is not a whole number"),
        ("bytes", "NaN", "NaN"),
        ("bytes", "\"8\"", "\"8\" is not a whole number"),
        ("bytes", "99999999999999999999", "is not a whole number"),
        ("bytes", "9223372036854775808", "9223372036854775808 is out of range"),
        ("seq", "-3", "-3 is negative"),
        ("op", "true", "expected a text"),
        ("op", "1.5", "expected a text"),
    ] {
        let text = message(&with(key, value));
        let place = format!("ranks[1] (rank 4), comm[1], `{key}`");
        assert!(text.contains("input.txt, line 4, column "), "{key} = {value}: {text}");
        assert!(text.contains(&place), "{key} = {value}: {text}");
        assert!(text.contains(what), "{key} = {value}: {text}");
    }
}

#[test]
fn missing_fields_are_named_with_their_place() {
    for (text, what) in [
        (r#"{"compute":[{"name":"a","start":1}],"comm":[]}"#, "compute[0]: it has no `end`"),
        (r#"{"compute":[{"name":"a","end":1}],"comm":[]}"#, "compute[0]: it has no `start`"),
        (r#"{"compute":[{"start":0,"end":1}],"comm":[]}"#, "compute[0]: it has no `name`"),
        (r#"{"compute":[],"comm":[{"start":0,"end":1,"bytes":0}]}"#, "comm[0]: it has no `op`"),
        (r#"{"compute":[],"comm":[{"op":"a","start":0,"end":1}]}"#, "comm[0]: it has no `bytes`"),
        (r#"{"compute":[],"comm":[],"steps":[{"start":0,"end":1}]}"#, "steps[0]: it has no `step`"),
        (r#"{"compute":[]}"#, "it has no `comm`"),
        (
            r#"{"ranks":[{"rank":1,"compute":[],"comm":[]},{"rank":2,"comm":[]}]}"#,
            "rank 2): it has no `compute`",
        ),
        (r#"{"ranks":[{"compute":[],"comm":[]}]}"#, "ranks[0]: it has no `rank`"),
    ] {
        let error = message(text);
        assert!(error.contains(what) && error.contains("line 1, column"), "{error}");
    }
}

#[test]
fn documents_that_are_not_timelines() {
    for (text, what) in [
        ("{}", "not a timeline"),
        (r#"{"events":[]}"#, "has `events`"),
        (r#"{"ranks":{}}"#, "expected a list of ranks"),
        (r#"{"ranks":[3]}"#, "ranks[0]: invalid type: integer `3`"),
        (r#"{"ranks":[],"compute":[],"comm":[]}"#, "both `ranks` and intervals"),
        (r#"{"ranks":[{"rank":-1,"compute":[],"comm":[]}]}"#, "`rank`: -1 is negative"),
        (r#"{"ranks":[{"rank":4294967296,"compute":[],"comm":[]}]}"#, "4294967296 is out of range"),
        (r#"{"compute":[1],"comm":[]}"#, "compute[0]"),
        (r#"{"compute":[],"comm":[]"#, "EOF while parsing"),
        (r#"{"compute":[],"comm":[]} x"#, "trailing characters"),
        (r#"{"compute":[{"name":"a","start":0,"end":1"#, "compute[0]: EOF while parsing"),
    ] {
        let error = message(text);
        assert!(error.contains(what), "{text}: {error}");
        assert_eq!(error.matches(" line ").count(), 1, "{error}");
    }
}

#[test]
fn a_document_cut_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = with("op", "\"a\"");
    // Before its first key, it could be of any format.
    for cut in "{\"ranks\":".len()..text.len() {
        let error = read_in(folder.path(), &text[..cut]).unwrap_err();
        assert!(matches!(error, ReadError::Json { .. }), "cut at {cut}: {error}");
    }
}

#[test]
fn a_million_events() {
    // Unoptimized, a million take ten seconds.
    let events: usize = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };
    let mut text = String::with_capacity(events * 64);
    text.push_str("{\"ranks\":[{\"rank\":0,\"compute\":[],\"comm\":[");
    for event in 0..events {
        let separator = if event == 0 { "" } else { "," };
        write!(
            text,
            "{separator}{{\"op\":\"all_reduce\",\"start\":{event}.25,\"end\":{event}.75,\"bytes\":8}}"
        )
        .unwrap();
    }
    text.push_str("]}]}");
    let timeline = read_text(&text).unwrap();
    let comm = &timeline.tracks[0].comm;
    assert_eq!(comm.len(), events);
    assert_eq!(comm.starts_ns()[events - 1], (events as i64 - 1) * 1_000_000 + 250_000);
}

/// Start, end, bytes and a text.
type Event = (i64, i64, Option<u64>, String);

fn arbitrary_track() -> impl Strategy<Value = (u32, Option<u32>, Vec<Event>)> {
    let event = (any::<i64>(), any::<i64>(), proptest::option::of(0..=i64::MAX as u64), ".{0,6}");
    (0..3_u32, proptest::option::of(0..3_u32), proptest::collection::vec(event, 0..6))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(tracks in proptest::collection::vec(arbitrary_track(), 0..5)) {
        let mut timeline = Timeline::default();
        let host = timeline.names.intern("host \"quoted\"");
        for (rank, device, events) in tracks {
            if timeline.tracks.iter().any(|track| (track.rank, track.device) == (rank, device)) {
                continue;
            }
            let mut track = Track::new(rank, device);
            track.clock = rank.is_multiple_of(2).then_some(host);
            for (index, (start_ns, end_ns, bytes, text)) in events.into_iter().enumerate() {
                let name = timeline.names.intern(&text);
                let step = bytes.map(|bytes| bytes as i64);
                track.compute.push(Compute { name, start_ns, end_ns, step });
                track.steps.push(Step { step: index as i64, start_ns, end_ns });
                track.comm.push(Comm {
                    bytes, comm: Some(name), seq: bytes, stream: Some(host), dtype: None,
                    comm_size: Some(index as u32), comm_rank: Some(0), peer: Some(index as u32), step,
                    ..Comm::new(name, start_ns, end_ns)
                });
            }
            timeline.tracks.push(track);
        }
        timeline.tracks.sort_by_key(|track| (track.rank, track.device));
        let mut text = Vec::new();
        write_timeline_json(&timeline, &mut text).unwrap();
        let again = read_text(std::str::from_utf8(&text).unwrap()).unwrap();
        let mut text_again = Vec::new();
        write_timeline_json(&again, &mut text_again).unwrap();
        prop_assert_eq!(String::from_utf8(text), String::from_utf8(text_again));
        prop_assert_eq!(timeline.tracks.len(), again.tracks.len());
        for (track, read) in timeline.tracks.iter().zip(&again.tracks) {
            prop_assert_eq!((track.rank, track.device, &track.steps), (read.rank, read.device, &read.steps));
            prop_assert_eq!(track.compute.starts_ns(), read.compute.starts_ns());
            prop_assert_eq!(track.comm.ends_ns(), read.comm.ends_ns());
        }
    }
}
