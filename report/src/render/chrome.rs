//! A timeline in the Chrome trace event format, which Perfetto and `chrome://tracing` open.
//!
//! Format: "Trace Event Format" of the Chromium project: complete events (`ph: X`) with `ts` and `dur`
//! in microseconds, here with three decimals so that nanoseconds are kept.

use crate::timeline::{Names, Sym, Timeline, Track};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes `timeline` as one JSON object: a process per rank and device, with a row of steps, rows of
/// compute and rows of communication per stream. Times count from the earliest start.
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
    let zero = timeline.tracks.iter().filter_map(earliest).min().unwrap_or(0);
    out.write_all(br#"{"displayTimeUnit":"ns","traceEvents":["#)?;
    let mut events = Events { out, zero, first: true };
    for (index, track) in timeline.tracks.iter().enumerate() {
        // Two devices of one rank are two processes, in the order of the tracks.
        let process = index as u64;
        let name = match track.device {
            Some(device) => format!("rank {} device {device}", track.rank),
            None => format!("rank {}", track.rank),
        };
        events.metadata(process, None, "process_name", json!({ "name": name }))?;
        events.metadata(process, None, "process_sort_index", json!({ "sort_index": index }))?;
        write_track(&mut events, &timeline.names, process, track)?;
    }
    events.out.write_all(b"\n]}\n")
}

fn earliest(track: &Track) -> Option<i64> {
    let steps = track.steps.iter().map(|step| step.start_ns);
    let starts = track.compute.starts_ns().iter().chain(track.comm.starts_ns()).copied();
    steps.chain(starts).min()
}

/// An interval of a row, before it is written.
struct Slice<'a> {
    name: &'a str,
    category: &'static str,
    start_ns: i64,
    end_ns: i64,
    args: Map<String, Value>,
}

fn write_track<W: Write>(
    events: &mut Events<'_, W>,
    names: &Names,
    process: u64,
    track: &Track,
) -> io::Result<()> {
    let mut next_row = 0;
    let steps = track.steps.iter().map(|step| Slice {
        name: "step",
        category: "step",
        start_ns: step.start_ns,
        end_ns: step.end_ns,
        args: arguments([("step", Some(json!(step.step)))]),
    });
    events.rows(process, &mut next_row, "steps", steps.collect())?;
    let compute = track.compute.iter().map(|compute| Slice {
        name: names.get(compute.name),
        category: "compute",
        start_ns: compute.start_ns,
        end_ns: compute.end_ns,
        args: arguments([("step", compute.step.map(Value::from))]),
    });
    events.rows(process, &mut next_row, "compute", compute.collect())?;
    let mut streams: BTreeMap<Option<Sym>, Vec<Slice<'_>>> = BTreeMap::new();
    for comm in track.comm.iter() {
        let text = |sym: Option<Sym>| sym.map(|sym| json!(names.get(sym)));
        streams.entry(comm.stream).or_default().push(Slice {
            name: names.get(comm.op),
            category: "comm",
            start_ns: comm.start_ns,
            end_ns: comm.end_ns,
            args: arguments([
                ("bytes", comm.bytes.map(Value::from)),
                ("comm", text(comm.comm)),
                ("seq", comm.seq.map(Value::from)),
                ("dtype", text(comm.dtype)),
                ("peer", comm.peer.map(Value::from)),
                ("step", comm.step.map(Value::from)),
            ]),
        });
    }
    for (stream, slices) in streams {
        let name = match stream {
            Some(stream) => format!("comm {}", names.get(stream)),
            None => "comm".to_owned(),
        };
        events.rows(process, &mut next_row, &name, slices)?;
    }
    Ok(())
}

fn arguments<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

struct Events<'a, W> {
    out: &'a mut W,
    zero: i64,
    first: bool,
}

impl<W: Write> Events<'_, W> {
    fn separate(&mut self) -> io::Result<()> {
        let separator: &[u8] = if self.first { b"\n" } else { b",\n" };
        self.first = false;
        self.out.write_all(separator)
    }

    fn metadata(&mut self, process: u64, row: Option<u64>, name: &str, args: Value) -> io::Result<()> {
        self.separate()?;
        let row = row.map(|row| format!(r#""tid":{row},"#)).unwrap_or_default();
        write!(self.out, r#"{{"ph":"M","pid":{process},{row}"name":"{name}","args":{args}}}"#)
    }

    /// Writes `slices` on as few rows as nesting allows, numbered from `next_row`.
    fn rows(
        &mut self,
        process: u64,
        next_row: &mut u64,
        name: &str,
        mut slices: Vec<Slice<'_>>,
    ) -> io::Result<()> {
        // What starts together is nested by length, the longest outside.
        slices.sort_by_key(|slice| (slice.start_ns, std::cmp::Reverse(slice.end_ns)));
        // Per row, the ends of the slices that are open at this point, outermost first.
        let mut open: Vec<Vec<i64>> = Vec::new();
        for slice in &slices {
            let end_ns = slice.end_ns.max(slice.start_ns);
            let fits = |ends: &mut Vec<i64>| {
                while ends.last().is_some_and(|&end| end <= slice.start_ns) {
                    ends.pop();
                }
                ends.last().is_none_or(|&end| end_ns <= end)
            };
            let index = match open.iter_mut().position(fits) {
                Some(index) => index,
                None => {
                    let row = *next_row + open.len() as u64;
                    self.metadata(process, Some(row), "thread_name", json!({ "name": name }))?;
                    self.metadata(process, Some(row), "thread_sort_index", json!({ "sort_index": row }))?;
                    open.push(Vec::new());
                    open.len() - 1
                }
            };
            open[index].push(end_ns);
            self.slice(process, *next_row + index as u64, slice)?;
        }
        *next_row += open.len() as u64;
        Ok(())
    }

    fn slice(&mut self, process: u64, row: u64, slice: &Slice<'_>) -> io::Result<()> {
        self.separate()?;
        let start = microseconds(i128::from(slice.start_ns) - i128::from(self.zero));
        let length = microseconds((i128::from(slice.end_ns) - i128::from(slice.start_ns)).max(0));
        let (name, args) = (json!(slice.name), Value::Object(slice.args.clone()));
        write!(
            self.out,
            r#"{{"ph":"X","pid":{process},"tid":{row},"cat":"{}","name":{name},"ts":{start},"dur":{length},"args":{args}}}"#,
            slice.category
        )
    }
}

/// Nanoseconds as decimal microseconds, exact. `ns` is not negative.
fn microseconds(ns: i128) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
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
