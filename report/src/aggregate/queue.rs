//! Intervals that wait for the watermark.

use crate::read::lanes::LaneKey;
use crate::timeline::Sym;
use std::cmp::Reverse;

/// Starts and ends that wait at most. A span that stays open holds the watermark back; beyond this
/// many, the earlier half is swept regardless.
const MAX_POINTS: usize = 1 << 18;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Compute,
    Comm,
}

/// An interval on its way.
#[derive(Debug)]
pub(super) struct Interval {
    /// Index of its track.
    pub track: u32,
    pub lane: Option<LaneKey>,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Its start, or the watermark if it came too late for that.
    pub swept_from_ns: i64,
    pub step: Option<i64>,
    /// What only communication has.
    pub call: Option<Box<Call>>,
    /// What only compute has.
    pub span: Option<Span>,
}

impl Interval {
    /// Whether nothing of it lies behind the watermark.
    pub fn is_empty(&self) -> bool {
        self.end_ns <= self.swept_from_ns
    }
}

/// What only compute has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub name: Sym,
    pub label: Option<Sym>,
    /// Communication of the lane before the interval.
    pub cut_at_start_ns: u64,
}

/// What only communication has.
#[derive(Debug)]
pub(super) struct Call {
    pub op: Sym,
    /// Position of the op in the track's summary.
    pub slot: usize,
    /// Whether each rank waits for all others.
    pub synchronizing: bool,
    pub bytes: Option<u64>,
    pub comm: Option<Sym>,
    pub seq: Option<u64>,
    pub comm_size: Option<u32>,
    pub dtype: Option<Sym>,
    /// Compute time of the track before the interval.
    pub covered_at_start_ns: u64,
}

/// The start or the end of an interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub at_ns: i64,
    pub begins: bool,
    pub id: u32,
    end_ns: i64,
}

/// Intervals that wait for the watermark.
#[derive(Debug, Default)]
pub(super) struct Queue {
    points: Vec<Point>,
    intervals: Vec<Option<Interval>>,
    free: Vec<u32>,
}

impl Queue {
    pub fn push(&mut self, interval: Interval) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.intervals.push(None);
            self.intervals.len() as u32 - 1
        });
        let (at_ns, end_ns) = (interval.swept_from_ns, interval.end_ns);
        self.points.push(Point { at_ns, begins: true, id, end_ns });
        if !interval.is_empty() {
            self.points.push(Point { at_ns: end_ns, begins: false, id, end_ns });
        }
        self.intervals[id as usize] = Some(interval);
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut Interval> {
        self.intervals.get_mut(id as usize)?.as_mut()
    }

    pub fn remove(&mut self, id: u32) {
        if let Some(slot) = self.intervals.get_mut(id as usize)
            && slot.take().is_some()
        {
            self.free.push(id);
        }
    }

    /// Takes the points before `before_ns` (all without it) in the order of a sweep: what ends at an
    /// instant before what begins there, and of what begins, the longest first, so that an interval is
    /// there when another begins within it.
    pub fn take_before(&mut self, before_ns: Option<i64>) -> Vec<Point> {
        let mut ready = match before_ns {
            Some(before_ns) => self.points.extract_if(.., |point| point.at_ns < before_ns).collect(),
            None => std::mem::take(&mut self.points),
        };
        ready.sort_by_key(|point| (point.at_ns, point.begins, Reverse(point.end_ns)));
        ready
    }

    /// A watermark that lets half of a full queue go; `None` while it is not full.
    pub fn forced_watermark(&self) -> Option<i64> {
        if self.points.len() < MAX_POINTS {
            return None;
        }
        let mut times: Vec<i64> = self.points.iter().map(|point| point.at_ns).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        Some(median.saturating_add(1))
    }
}
