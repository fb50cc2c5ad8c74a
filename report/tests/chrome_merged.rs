//! The Chrome trace of several ranks: one row group per rank, one time scale, and arrows between what the
//! ranks did together.

use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render::{ChromeOptions, write_chrome, write_chrome_with};
use commtrace_report::timeline::{Comm, Timeline, Track};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

const MS: i64 = 1_000_000;

/// Ranks on clocks that are ahead by these many milliseconds.
fn job(ahead_ms: &[i64]) -> Timeline {
    let mut timeline = Timeline::default();
    for rank in 0..ahead_ms.len() as u32 {
        let clock = Some(timeline.names.intern(&format!("boot {rank}")));
        timeline.tracks.push(Track { clock, ..Track::new(rank, None) });
    }
    let size = u32::try_from(ahead_ms.len()).unwrap();
    for seq in 0..40_u64 {
        for (rank, &ahead) in ahead_ms.iter().enumerate() {
            let at = (seq as i64 * 20 + ahead) * MS;
            // The last rank comes 3 ms late; all end together.
            let late = if rank + 1 == ahead_ms.len() { 3 * MS } else { 0 };
            push(&mut timeline, rank, "all_reduce", size, Some(seq), None, (at + late, at + 8 * MS));
        }
        let (from, to) = (ahead_ms[0], ahead_ms[1]);
        let at = seq as i64 * 20 + 10;
        push(&mut timeline, 0, "send", size, None, Some(1), ((at + from) * MS, (at + from + 2) * MS));
        push(&mut timeline, 1, "recv", size, None, Some(0), ((at + to) * MS, (at + to + 2) * MS));
    }
    timeline
}

fn push(
    timeline: &mut Timeline,
    rank: usize,
    op: &str,
    size: u32,
    seq: Option<u64>,
    peer: Option<u32>,
    (start_ns, end_ns): (i64, i64),
) {
    let names = &mut timeline.names;
    let event = Comm {
        comm: Some(names.intern("world")),
        seq,
        peer,
        comm_size: Some(size),
        comm_rank: u32::try_from(rank).ok(),
        bytes: Some(1024),
        ..Comm::new(names.intern(op), start_ns, end_ns)
    };
    timeline.tracks[rank].comm.push(event);
}

fn events(timeline: &Timeline, options: ChromeOptions) -> Vec<Value> {
    let mut out = Vec::new();
    write_chrome_with(timeline, options, &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    document["traceEvents"].as_array().unwrap().clone()
}

fn of_phase<'a>(events: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["ph"] == phase)
}

/// Nanoseconds of a time in the trace, which has three decimals.
fn ns(value: &Value) -> i64 {
    (value.as_f64().unwrap() * 1000.0).round() as i64
}

/// The name and process of the slice that encloses the instant of a flow event.
fn slice_of(events: &[Value], flow: &Value) -> (String, u64) {
    let at = ns(&flow["ts"]);
    let enclosing: Vec<&Value> = of_phase(events, "X")
        .filter(|slice| (&slice["pid"], &slice["tid"]) == (&flow["pid"], &flow["tid"]))
        .filter(|slice| ns(&slice["ts"]) <= at && at < ns(&slice["ts"]) + ns(&slice["dur"]))
        .collect();
    assert_eq!(enclosing.len(), 1, "{flow} is in one slice");
    (enclosing[0]["name"].as_str().unwrap().to_owned(), enclosing[0]["pid"].as_u64().unwrap())
}

#[test]
fn arrows_lead_from_the_last_arrival_to_the_others_and_from_sends_to_receives() {
    let events = events(&job(&[0, 0, 0]), ChromeOptions::default());
    /// Slice, process and instant of each side.
    type Sides = [Option<(String, u64, i64)>; 2];
    let mut arrows: BTreeMap<u64, Sides> = BTreeMap::new();
    for (phase, side) in [("s", 0), ("f", 1)] {
        for flow in of_phase(&events, phase) {
            let (name, process) = slice_of(&events, flow);
            let arrow = arrows.entry(flow["id"].as_u64().unwrap()).or_default();
            assert!(arrow[side].is_none(), "an id is used twice: {flow}");
            arrow[side] = Some((name, process, ns(&flow["ts"])));
        }
    }
    let mut kinds: BTreeMap<(String, u64, String, u64), usize> = BTreeMap::new();
    for [from, to] in arrows.into_values() {
        let ((from, source, begin), (to, target, end)) = (from.unwrap(), to.unwrap());
        assert!(begin <= end, "an arrow leads back in time");
        *kinds.entry((from, source, to, target)).or_default() += 1;
    }
    let arrow = |from: &str, source, to: &str, target| ((from.to_owned(), source, to.to_owned(), target), 40);
    let expected = BTreeMap::from([
        arrow("all_reduce", 2, "all_reduce", 0),
        arrow("all_reduce", 2, "all_reduce", 1),
        arrow("send", 0, "recv", 1),
    ]);
    assert_eq!(kinds, expected);
}

#[test]
fn each_rank_is_a_process_named_by_its_global_rank() {
    let events = events(&job(&[0, 0, 0]), ChromeOptions::default());
    let names: Vec<&str> = of_phase(&events, "M")
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["rank 0", "rank 1", "rank 2"]);
}

/// Ends of a collective fall together once clocks are aligned, and lie apart by the clocks' offset without.
#[test]
fn ranks_are_shown_on_one_time_scale() {
    let timeline = job(&[0, 700, -40]);
    let ends = |options| {
        let events = events(&timeline, options);
        let of_first = |rank: u64| {
            let mut slices = of_phase(&events, "X").filter(|slice| slice["args"]["seq"] == 7);
            let slice = slices.find(|slice| slice["pid"] == rank).unwrap();
            ns(&slice["ts"]) + ns(&slice["dur"])
        };
        [of_first(0), of_first(1) - of_first(0), of_first(2) - of_first(0)]
    };
    let [_, one, two] = ends(ChromeOptions::default());
    assert!(one.abs() < 1000 && two.abs() < 1000, "{one} ns, {two} ns");
    let [_, one, two] = ends(ChromeOptions { align: false });
    assert_eq!((one, two), (700 * MS, -40 * MS));
}

#[test]
fn the_merged_trace_is_read_back_as_what_was_matched() {
    let timeline = job(&[0, 0, 0]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    write_chrome(&timeline, &mut std::fs::File::create(&path).unwrap()).unwrap();
    let found = read(&[path], &ReadOptions::default()).unwrap();
    assert_eq!(found.tracks.len(), 3);
    for (written, read) in timeline.tracks.iter().zip(&found.tracks) {
        assert_eq!((written.rank, written.comm.len()), (read.rank, read.comm.len()));
        for (written, read) in written.comm.iter().zip(read.comm.iter()) {
            let text = |timeline: &Timeline, event: &Comm| {
                (
                    timeline.names.get(event.op).to_owned(),
                    event.comm.map(|sym| timeline.names.get(sym).to_owned()),
                )
            };
            assert_eq!(text(&timeline, &written), text(&found, &read));
            let rest = |event: &Comm| (event.seq, event.peer, event.comm_rank, event.comm_size, event.bytes);
            assert_eq!(rest(&written), rest(&read));
        }
    }
    // Arrows are no intervals: they are counted as such and change nothing.
    let arrows = 40 * 3;
    assert_eq!(found.inputs[0].skipped.get("not_an_interval"), Some(&(2 * arrows)));
}

#[test]
fn a_rank_alone_has_no_arrows() {
    let mut timeline = job(&[0, 0, 0]);
    timeline.tracks.truncate(1);
    let events = events(&timeline, ChromeOptions::default());
    let phases: HashSet<&str> = events.iter().filter_map(|event| event["ph"].as_str()).collect();
    assert_eq!(phases, HashSet::from(["M", "X"]));
}
