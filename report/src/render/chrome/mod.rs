//! A timeline in the Chrome trace event format, which Perfetto and `chrome://tracing` open.
//!
//! Format: "Trace Event Format" of the Chromium project: complete events (`ph: X`) with `ts` and `dur`
//! in microseconds, here with three decimals so that nanoseconds are kept; flow events (`ph: s` and `f`)
//! for the arrows between what ranks did together.

mod events;

use crate::analyze::{Merged, merged};
use crate::timeline::{Names, Sym, Timeline, Track};
use events::{Events, Slice};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// How a Chrome trace is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChromeOptions {
    /// Put clocks that differ, or of which nothing is known, on one time scale (the default). Without it, all
    /// times are taken as those of one clock.
    pub align: bool,
}

impl Default for ChromeOptions {
    fn default() -> Self {
        Self { align: true }
    }
}

/// Writes `timeline` as one JSON object: a process per rank and device, with a row of steps, rows of
/// compute and rows of communication per stream. Times count from the earliest start, on the time scale of
/// the lowest rank if the ranks' clocks differ ([`write_chrome_with`] can leave them as they are).
///
/// Arrows lead from what released a rank to what it released: from the last rank to arrive in a collective
/// to the others, from the root of a broadcast and to that of a reduce, from a send to its receive.
///
/// Intervals of one row nest or follow each other, as the format demands; those that overlap otherwise
/// go to a further row of the same name.
///
/// # Errors
///
/// The output cannot be written.
///
/// ```
/// use commtrace_report::render::write_chrome;
/// use commtrace_report::timeline::{Compute, Timeline, Track};
/// let mut timeline = Timeline::default();
/// let mut track = Track::new(0, None);
/// let name = timeline.names.intern("forward");
/// track.compute.push(Compute { name, start_ns: 1_000, end_ns: 2_500, step: None });
/// timeline.tracks.push(track);
/// let mut out = Vec::new();
/// write_chrome(&timeline, &mut out)?;
/// assert!(String::from_utf8_lossy(&out).contains(r#""ts":0.000,"dur":1.500"#));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write_chrome(timeline: &Timeline, out: &mut impl Write) -> io::Result<()> {
    write_chrome_with(timeline, ChromeOptions::default(), out)
}

/// Writes as [`write_chrome`] does.
///
/// # Errors
///
/// The output cannot be written.
pub fn write_chrome_with(
    timeline: &Timeline,
    options: ChromeOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    merged(timeline, options.align, |merged| write(timeline, merged, out))
}

fn write(timeline: &Timeline, merged: &Merged<'_>, out: &mut impl Write) -> io::Result<()> {
    let tracks = || timeline.tracks.iter().enumerate();
    let zero = tracks().filter_map(|(index, track)| earliest(track, index, merged)).min().unwrap_or(0);
    let mut events = Events::begin(out, zero)?;
    let mut rows = Vec::with_capacity(timeline.tracks.len());
    for (index, track) in tracks() {
        // Two devices of one rank are two processes, in the order of the tracks.
        let process = index as u64;
        let name = match track.device {
            Some(device) => format!("rank {} device {device}", track.rank),
            None => format!("rank {}", track.rank),
        };
        events.metadata(process, None, "process_name", json!({ "name": name }))?;
        events.metadata(process, None, "process_sort_index", json!({ "sort_index": index }))?;
        let common_ns = |own_ns| merged.common_ns(index, own_ns);
        rows.push(write_track(&mut events, &timeline.names, process, track, common_ns)?);
    }
    let mut id = 0_u64;
    merged.arrows(|arrow| {
        let place = |(track, row): (usize, usize)| {
            let row = rows.get(track).and_then(|rows: &Vec<u32>| rows.get(row));
            row.map(|&row| (track as u64, u64::from(row)))
        };
        let (Some(from), Some(to)) = (place(arrow.from), place(arrow.to)) else { return Ok(()) };
        id += 1;
        events.arrow(id, (from, arrow.from_ns), (to, arrow.to_ns))
    })?;
    events.finish()
}

fn earliest(track: &Track, index: usize, merged: &Merged<'_>) -> Option<i64> {
    let steps = track.steps.iter().map(|step| step.start_ns);
    let starts = track.compute.starts_ns().iter().chain(track.comm.starts_ns()).copied();
    steps.chain(starts).map(|own_ns| merged.common_ns(index, own_ns)).min()
}

/// Writes the intervals of a track; returns the row of each of its communication events.
fn write_track<W: Write>(
    events: &mut Events<'_, W>,
    names: &Names,
    process: u64,
    track: &Track,
    common_ns: impl Fn(i64) -> i64,
) -> io::Result<Vec<u32>> {
    let mut next_row = 0;
    let steps = track.steps.iter().map(|step| Slice {
        name: "step",
        category: "step",
        start_ns: common_ns(step.start_ns),
        end_ns: common_ns(step.end_ns),
        index: 0,
        args: arguments([("step", Some(json!(step.step)))]),
    });
    events.rows(process, &mut next_row, "steps", steps.collect(), |_, _| {})?;
    let compute = track.compute.iter().map(|compute| Slice {
        name: names.get(compute.name),
        category: "compute",
        start_ns: common_ns(compute.start_ns),
        end_ns: common_ns(compute.end_ns),
        index: 0,
        args: arguments([("step", compute.step.map(Value::from))]),
    });
    events.rows(process, &mut next_row, "compute", compute.collect(), |_, _| {})?;
    let mut streams: BTreeMap<Option<Sym>, Vec<Slice<'_>>> = BTreeMap::new();
    for (index, comm) in track.comm.iter().enumerate() {
        let text = |sym: Option<Sym>| sym.map(|sym| json!(names.get(sym)));
        streams.entry(comm.stream).or_default().push(Slice {
            name: names.get(comm.op),
            category: "comm",
            start_ns: common_ns(comm.start_ns),
            end_ns: common_ns(comm.end_ns),
            index,
            args: arguments([
                ("bytes", comm.bytes.map(Value::from)),
                ("comm", text(comm.comm)),
                ("seq", comm.seq.map(Value::from)),
                ("comm_size", comm.comm_size.map(Value::from)),
                ("comm_rank", comm.comm_rank.map(Value::from)),
                ("dtype", text(comm.dtype)),
                ("peer", comm.peer.map(Value::from)),
                ("step", comm.step.map(Value::from)),
            ]),
        });
    }
    let mut rows = vec![0; track.comm.len()];
    for (stream, slices) in streams {
        let name = match stream {
            Some(stream) => format!("comm {}", names.get(stream)),
            None => "comm".to_owned(),
        };
        events.rows(process, &mut next_row, &name, slices, |index, row| {
            if let Some(slot) = rows.get_mut(index) {
                *slot = u32::try_from(row).unwrap_or(u32::MAX);
            }
        })?;
    }
    Ok(rows)
}

fn arguments<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Comm, Compute};

    fn events(timeline: &Timeline) -> Vec<Value> {
        let mut out = Vec::new();
        write_chrome(timeline, &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        document["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn overlapping_slices_go_to_rows_of_their_own_and_nested_ones_do_not() {
        let mut timeline = Timeline::default();
        let mut track = Track::new(3, Some(1));
        let name = timeline.names.intern("a \"quoted\" name");
        for (start_ns, end_ns) in [(100, 200), (120, 180), (150, 250), (200, 210), (300, 290)] {
            track.compute.push(Compute { name, start_ns, end_ns, step: Some(4) });
        }
        timeline.tracks.push(track);
        let slices: Vec<(i64, f64, f64)> = events(&timeline)
            .iter()
            .filter(|event| event["ph"] == "X")
            .map(|event| {
                assert_eq!(event["name"], "a \"quoted\" name");
                assert_eq!(event["args"]["step"], 4);
                let number = |key: &str| event[key].as_f64().unwrap();
                (event["tid"].as_i64().unwrap(), number("ts"), number("dur"))
            })
            .collect();
        assert_eq!(slices, [(0, 0.0, 0.1), (0, 0.02, 0.06), (1, 0.05, 0.1), (0, 0.1, 0.01), (0, 0.2, 0.0)]);
    }

    #[test]
    fn each_stream_has_its_row_and_each_track_its_process() {
        let mut timeline = Timeline::default();
        let op = timeline.names.intern("all_reduce");
        for rank in 0..2 {
            let mut track = Track::new(rank, None);
            for stream in ["s0", "s1"] {
                let stream = Some(timeline.names.intern(stream));
                track.comm.push(Comm { stream, bytes: Some(8), ..Comm::new(op, i64::MIN, i64::MAX) });
            }
            timeline.tracks.push(track);
        }
        let events = events(&timeline);
        let named = |kind: &str| -> Vec<String> {
            events
                .iter()
                .filter(|event| event["name"] == kind)
                .map(|event| event["args"]["name"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(named("process_name"), ["rank 0", "rank 1"]);
        assert_eq!(named("thread_name"), ["comm s0", "comm s1", "comm s0", "comm s1"]);
        let places: Vec<_> = events
            .iter()
            .filter(|event| event["ph"] == "X")
            .map(|event| (event["pid"].as_i64(), event["tid"].as_i64()))
            .collect();
        assert_eq!(places, [(Some(0), Some(0)), (Some(0), Some(1)), (Some(1), Some(0)), (Some(1), Some(1))]);
    }
}
