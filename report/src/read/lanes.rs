//! Which communication is cut out of which compute.
//!
//! A blocking collective inside a compute span stalls that span: its time is communication, not
//! compute that hides it. Host-timed intervals of one thread and GPU-timed intervals of one stream of
//! one device cannot truly run side by side, so within such a lane, communication wins.

use crate::timeline::Sym;
use std::collections::HashMap;
use std::hash::Hash;

/// What intervals have in common that cannot run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LaneKey<S = Sym> {
    /// A thread of the host.
    Thread(u32),
    /// A stream of a device.
    Stream {
        /// The device.
        device: u32,
        /// The stream.
        stream: S,
    },
}

impl<S> LaneKey<S> {
    /// The lane of an interval, `None` if it is not known.
    pub fn of(device: Option<u32>, stream: Option<S>, thread: Option<u32>) -> Option<Self> {
        match device {
            Some(device) => stream.map(|stream| Self::Stream { device, stream }),
            None => thread.map(Self::Thread),
        }
    }
}

/// A lane of a [`Lanes`] table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane(u32);

/// The communication of each lane.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    index: HashMap<LaneKey, u32>,
    comm: Vec<Vec<(i64, i64)>>,
}

impl Lanes {
    /// The lane of `key`, added if it is new.
    pub fn lane(&mut self, key: LaneKey) -> Lane {
        let next = self.comm.len() as u32;
        let lane = *self.index.entry(key).or_insert(next);
        if lane == next {
            self.comm.push(Vec::new());
        }
        Lane(lane)
    }

    /// Notes a communication interval. One that is empty or reversed cuts nothing.
    pub fn add_comm(&mut self, lane: Lane, start_ns: i64, end_ns: i64) {
        if start_ns < end_ns {
            self.comm[lane.0 as usize].push((start_ns, end_ns));
        }
    }

    /// Ready to cut, once all communication was added.
    pub fn finish(mut self) -> Cutter {
        let mut nested = 0;
        for intervals in &mut self.comm {
            intervals.sort_unstable_by_key(|&(start, end)| (start, std::cmp::Reverse(end)));
            nested += enclosing(intervals);
            merge(intervals);
        }
        Cutter { comm: self.comm, nested }
    }
}

/// The communication of each lane as disjoint ascending intervals.
#[derive(Debug)]
pub(crate) struct Cutter {
    comm: Vec<Vec<(i64, i64)>>,
    /// Communication intervals in which another of the same lane began.
    pub nested: u64,
}

impl Cutter {
    /// What is left of a compute interval of `lane`, in ascending order: nothing if communication
    /// covers it; the interval itself if it is empty or reversed.
    pub fn cut(&self, lane: Option<Lane>, start_ns: i64, end_ns: i64, mut emit: impl FnMut(i64, i64)) {
        let comm: &[(i64, i64)] = match lane {
            Some(lane) if start_ns < end_ns => &self.comm[lane.0 as usize],
            _ => &[],
        };
        let first = comm.partition_point(|&(_, end)| end <= start_ns);
        let mut from = start_ns;
        for &(start, end) in comm[first..].iter().take_while(|&&(start, _)| start < end_ns) {
            if from < start {
                emit(from, start);
            }
            from = end;
        }
        if from < end_ns || end_ns <= start_ns {
            emit(from, end_ns);
        }
    }
}

/// How many of the sorted intervals have another one begin within them.
fn enclosing(sorted: &[(i64, i64)]) -> u64 {
    let mut count = 0;
    // End of each interval that may still enclose one, and whether it was counted.
    let mut stack: Vec<(i64, bool)> = Vec::new();
    for &(start, end) in sorted {
        while stack.pop_if(|(end, _)| *end <= start).is_some() {}
        if let Some((_, counted)) = stack.last_mut()
            && !std::mem::replace(counted, true)
        {
            count += 1;
        }
        stack.push((end, false));
    }
    count
}

fn merge(sorted: &mut Vec<(i64, i64)>) {
    sorted.dedup_by(|next, kept| {
        let touches = next.0 <= kept.1;
        if touches {
            kept.1 = kept.1.max(next.1);
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(comm: &[(i64, i64)], start: i64, end: i64) -> (Vec<(i64, i64)>, u64) {
        let mut lanes = Lanes::default();
        let lane = lanes.lane(LaneKey::Thread(0));
        comm.iter().for_each(|&(start, end)| lanes.add_comm(lane, start, end));
        let cutter = lanes.finish();
        let mut left = Vec::new();
        cutter.cut(Some(lane), start, end, |start, end| left.push((start, end)));
        (left, cutter.nested)
    }

    #[test]
    fn communication_is_cut_out() {
        assert_eq!(cut(&[], 0, 10).0, [(0, 10)]);
        assert_eq!(cut(&[(2, 4), (6, 7)], 0, 10).0, [(0, 2), (4, 6), (7, 10)]);
        assert_eq!(cut(&[(0, 4)], 0, 10).0, [(4, 10)]);
        assert_eq!(cut(&[(4, 10)], 0, 10).0, [(0, 4)]);
        assert_eq!(cut(&[(0, 10)], 0, 10).0, []);
        assert_eq!(cut(&[(-5, 20)], 0, 10).0, []);
        assert_eq!(cut(&[(-5, 0), (10, 12)], 0, 10).0, [(0, 10)]);
        assert_eq!(cut(&[(-5, 3), (8, 12)], 0, 10).0, [(3, 8)]);
    }

    #[test]
    fn empty_and_reversed_intervals() {
        assert_eq!(cut(&[(0, 10)], 5, 5).0, [(5, 5)]);
        assert_eq!(cut(&[(0, 10)], 7, 5).0, [(7, 5)]);
        assert_eq!(cut(&[(5, 5), (7, 3)], 0, 10), (vec![(0, 10)], 0));
    }

    #[test]
    fn nested_communication_is_counted_by_its_outer_span() {
        assert_eq!(cut(&[(0, 2), (2, 4)], 0, 10).1, 0);
        assert_eq!(cut(&[(0, 8), (1, 2), (3, 4)], 0, 10), (vec![(8, 10)], 1));
        assert_eq!(cut(&[(0, 8), (1, 5), (3, 4)], 0, 10).1, 2);
        assert_eq!(cut(&[(1, 2), (0, 8), (9, 10)], 0, 10), (vec![(8, 9)], 1));
    }
}
