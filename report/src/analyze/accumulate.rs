//! Waits across ranks: how matched collectives add up.

use super::interval::{Cover, duration_ns};
use super::sums::Sums;
use super::tally::Measured;
use super::worst::Worst;
use super::{OpAcrossRanks, WorstCollective};
use indexmap::IndexMap;

/// One rank's part in a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Global rank.
    pub rank: u32,
    /// Device, to tell several members of one rank apart.
    pub device: Option<u32>,
    /// Arrival.
    pub start_ns: i64,
    /// End (exclusive).
    pub end_ns: i64,
    /// The part of the wait without compute beside it.
    pub exposed_wait_ns: u64,
    /// The part of the transfer without compute beside it.
    pub exposed_transfer_ns: u64,
    /// Payload as nccl-tests counts it, if known.
    pub bytes: Option<u64>,
}

impl Member {
    /// The part `[start_ns, end_ns)` of a rank whose compute is `compute`, in a collective whose last
    /// rank arrives at `last_arrival_ns`.
    pub fn new(
        (rank, device): (u32, Option<u32>),
        (start_ns, end_ns): (i64, i64),
        last_arrival_ns: i64,
        compute: &Cover,
    ) -> Self {
        let turn = end_ns.min(last_arrival_ns).max(start_ns);
        let (hidden_wait_ns, hidden_transfer_ns) =
            compute.overlaps_around_ns(start_ns, turn, end_ns.max(turn));
        Self {
            rank,
            device,
            start_ns,
            end_ns,
            exposed_wait_ns: duration_ns(start_ns, turn) - hidden_wait_ns,
            exposed_transfer_ns: duration_ns(turn, end_ns) - hidden_transfer_ns,
            bytes: None,
        }
    }

    pub(super) fn wait_ns(&self, last_arrival_ns: i64) -> u64 {
        duration_ns(self.start_ns, self.end_ns.min(last_arrival_ns))
    }
}

/// The last of some arrivals; `None` if there is none.
pub fn last_arrival_ns(starts_ns: impl IntoIterator<Item = i64>) -> Option<i64> {
    starts_ns.into_iter().max()
}

/// Where a collective belongs, for the bootstrap over steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// In this step.
    Step(i64),
    /// In no known step: the number in its communicator, and a number for the communicator.
    Sequence {
        /// Any number that tells communicators apart.
        comm: u32,
        /// The number in the communicator.
        seq: u64,
    },
}

/// What is known of a collective beside its members' times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collective<'a> {
    /// The op.
    pub op: &'a str,
    /// The communicator.
    pub comm: &'a str,
    /// Ranks of the communicator, those that were not recorded included.
    pub comm_size: u32,
    /// Its number in the communicator, if that was recorded.
    pub seq: Option<u64>,
    /// Where it belongs.
    pub position: Position,
    /// Whether the members that are given are all of the communicator's.
    pub complete: bool,
}

impl Collective<'_> {
    pub(super) fn step(&self) -> Option<i64> {
        match self.position {
            Position::Step(step) => Some(step),
            Position::Sequence { .. } => None,
        }
    }
}

/// Adds matched collectives up, in memory that does not grow with their number.
#[derive(Debug, Clone)]
pub struct CrossRankAccumulator {
    ops: IndexMap<String, OpSums>,
    worst: Worst,
    max_blocks: usize,
}

#[derive(Debug, Clone, Default)]
struct OpSums {
    complete: Sums,
    partial: Sums,
}

impl Default for CrossRankAccumulator {
    fn default() -> Self {
        Self::with_max_blocks(4096)
    }
}

impl CrossRankAccumulator {
    /// An accumulator that keeps at most `max_blocks` blocks per op for the bootstrap; if there are more
    /// steps, blocks of adjacent steps.
    pub fn with_max_blocks(max_blocks: usize) -> Self {
        Self { ops: IndexMap::new(), worst: Worst::default(), max_blocks: max_blocks.max(2) }
    }

    /// Fixes the place of `op` in the order of the result. An op that stays without a matched
    /// collective does not appear.
    pub fn declare(&mut self, op: &str) {
        if !self.ops.contains_key(op) {
            self.ops.insert(op.to_string(), OpSums::default());
        }
    }

    /// Adds one collective. Fewer than two members are ignored: they tell nothing about waiting.
    pub fn add(&mut self, collective: &Collective<'_>, members: &[Member]) {
        if members.len() < 2 {
            return;
        }
        let Some(one) = Measured::of(collective.op, collective.comm_size, members) else { return };
        self.declare(collective.op);
        let Some(sums) = self.ops.get_mut(collective.op) else { return };
        let sums = if collective.complete { &mut sums.complete } else { &mut sums.partial };
        sums.add(collective, &one, members, self.max_blocks);
        self.worst.offer(collective, &one);
    }

    /// The collectives that cost the most exposed time, the worst first.
    pub fn worst(&self) -> Vec<WorstCollective> {
        self.worst.finish()
    }

    /// The figures so far, and how many events of incomplete collectives are not in them because there
    /// are complete ones.
    pub fn finish(&self) -> (Vec<OpAcrossRanks>, u64) {
        let mut left_out = 0;
        let mut ops = Vec::new();
        for (op, sums) in &self.ops {
            if sums.complete.matched() > 0 {
                left_out += sums.partial.events;
                ops.push(sums.complete.finish(op, false));
            } else if sums.partial.matched() > 0 {
                ops.push(sums.partial.finish(op, true));
            }
        }
        (ops, left_out)
    }
}
