//! Trace events, written one by one.

use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// An interval of a row, before it is written.
pub(super) struct Slice<'a> {
    pub name: &'a str,
    pub category: &'static str,
    pub start_ns: i64,
    pub end_ns: i64,
    /// What its caller knows it by.
    pub index: usize,
    pub args: Map<String, Value>,
}

/// Writes events one by one.
pub(super) struct Events<'a, W> {
    out: &'a mut W,
    zero: i64,
    first: bool,
}

impl<'a, W: Write> Events<'a, W> {
    /// Begins a document whose times count from `zero`.
    pub fn begin(out: &'a mut W, zero: i64) -> io::Result<Self> {
        out.write_all(br#"{"displayTimeUnit":"ns","traceEvents":["#)?;
        Ok(Self { out, zero, first: true })
    }

    /// Ends the document.
    pub fn finish(self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }

    fn separate(&mut self) -> io::Result<()> {
        let separator: &[u8] = if self.first { b"\n" } else { b",\n" };
        self.first = false;
        self.out.write_all(separator)
    }

    pub fn metadata(&mut self, process: u64, row: Option<u64>, name: &str, args: Value) -> io::Result<()> {
        self.separate()?;
        let row = row.map(|row| format!(r#""tid":{row},"#)).unwrap_or_default();
        write!(self.out, r#"{{"ph":"M","pid":{process},{row}"name":"{name}","args":{args}}}"#)
    }

    /// Writes `slices` on as few rows as nesting allows, numbered from `next_row`; `placed` hears the index of
    /// each and its row.
    pub fn rows(
        &mut self,
        process: u64,
        next_row: &mut u64,
        name: &str,
        mut slices: Vec<Slice<'_>>,
        mut placed: impl FnMut(usize, u64),
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
            let row = *next_row + index as u64;
            placed(slice.index, row);
            self.slice(process, row, slice)?;
        }
        *next_row += open.len() as u64;
        Ok(())
    }

    /// Writes an arrow from an instant within a slice to one within another; `id` is no other arrow's. It
    /// binds to the slices that enclose these instants.
    pub fn arrow(&mut self, id: u64, from: (Place, i64), to: (Place, i64)) -> io::Result<()> {
        let sides = [("s", "", from), ("f", r#""bp":"e","#, to)];
        for (phase, bind, ((process, row), at_ns)) in sides {
            self.separate()?;
            let at = microseconds((i128::from(at_ns) - i128::from(self.zero)).max(0));
            write!(
                self.out,
                r#"{{"ph":"{phase}",{bind}"id":{id},"pid":{process},"tid":{row},"cat":"flow","name":"released","ts":{at}}}"#
            )?;
        }
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

/// A process and a row of it.
pub(super) type Place = (u64, u64);

/// Nanoseconds as decimal microseconds, exact. `ns` is not negative.
fn microseconds(ns: i128) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
