//! Intervals that are written as a beginning and an end.

use super::category::Category;
use super::event::Event;
use super::json::Value;
use std::collections::HashMap;

/// Beginnings that wait for their ends, at most; a file of beginnings alone must not fill the memory.
const MOST: usize = 1 << 20;

/// A beginning. What its end needs is kept, unless the interval is of no interest.
#[derive(Debug)]
pub(super) struct Begun {
    pub name: Vec<u8>,
    pub start_ns: i64,
    /// `None` if the interval is of no interest.
    pub kept: Option<(Category, Vec<u8>)>,
}

/// The beginnings of all rows.
#[derive(Debug, Default)]
pub(super) struct Open {
    rows: HashMap<Vec<u8>, Vec<Begun>>,
    waiting: usize,
}

/// The row of an event: events of one thread nest (`B`, `E`); those of one id form a row of their own
/// (`b`, `e`).
pub(super) fn row(event: &Event<'_>) -> Vec<u8> {
    let parts: [Option<Value<'_>>; 4] = match event.phase {
        b'B' | b'E' => [event.process, event.thread, None, None],
        _ => [event.process, None, event.category, event.id],
    };
    let mut key = Vec::new();
    for part in parts {
        key.extend_from_slice(part.map_or(b"", Value::raw));
        key.push(0);
    }
    key
}

impl Open {
    /// Notes a beginning; false if there are too many of them.
    pub fn begin(&mut self, row: Vec<u8>, begun: Begun) -> bool {
        let fits = self.waiting < MOST;
        if fits {
            self.rows.entry(row).or_default().push(begun);
            self.waiting += 1;
        }
        fits
    }

    /// The beginning that an end of this row belongs to: the last one, or if the end has a name, the
    /// last one of that name.
    pub fn end(&mut self, row: &[u8], name: Option<&[u8]>) -> Option<Begun> {
        let waiting = self.rows.get_mut(row)?;
        let begun = match name.filter(|name| !name.is_empty()) {
            None => waiting.pop()?,
            Some(name) => {
                let at = waiting.iter().rposition(|begun| begun.name == name)?;
                waiting.remove(at)
            }
        };
        if waiting.is_empty() {
            self.rows.remove(row);
        }
        self.waiting -= 1;
        Some(begun)
    }

    /// Beginnings of interest that never ended.
    pub fn left(&self) -> u64 {
        self.rows.values().flatten().filter(|begun| begun.kept.is_some()).count() as u64
    }
}
