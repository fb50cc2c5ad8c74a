//! Waits across ranks: how matched collectives add up.

use super::bootstrap::{Block, join, lower_bound};
use super::interval::{Cover, duration_ns};
use super::{OpAcrossRanks, Verdict};
use indexmap::{IndexMap, IndexSet};
use std::collections::BTreeMap;

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
        let exposed = |from, to| duration_ns(from, to) - compute.overlap_ns(from, to);
        Self {
            rank,
            device,
            start_ns,
            end_ns,
            exposed_wait_ns: exposed(start_ns, turn),
            exposed_transfer_ns: exposed(turn, end_ns),
        }
    }

    fn wait_ns(&self, last_arrival_ns: i64) -> u64 {
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

/// Adds matched collectives up, in memory that does not grow with their number.
#[derive(Debug, Clone)]
pub struct CrossRankAccumulator {
    ops: IndexMap<String, OpSums>,
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
        Self { ops: IndexMap::new(), max_blocks: max_blocks.max(2) }
    }

    /// Fixes the place of `op` in the order of the result. An op that stays without a matched
    /// collective does not appear.
    pub fn declare(&mut self, op: &str) {
        if !self.ops.contains_key(op) {
            self.ops.insert(op.to_string(), OpSums::default());
        }
    }

    /// Adds one collective. `complete` says whether `members` are all of its communicator's ranks.
    /// Fewer than two members are ignored: they tell nothing about waiting.
    pub fn add(&mut self, op: &str, position: Position, members: &[Member], complete: bool) {
        let Some(last) = last_arrival_ns(members.iter().map(|member| member.start_ns)) else { return };
        if members.len() < 2 {
            return;
        }
        self.declare(op);
        let Some(sums) = self.ops.get_mut(op) else { return };
        let sums = if complete { &mut sums.complete } else { &mut sums.partial };
        sums.add(position, members, last, self.max_blocks);
    }

    /// The figures so far, and how many events of incomplete collectives are not in them because there
    /// are complete ones.
    pub fn finish(&self) -> (Vec<OpAcrossRanks>, u64) {
        let mut left_out = 0;
        let mut ops = Vec::new();
        for (op, sums) in &self.ops {
            if sums.complete.matched > 0 {
                left_out += sums.partial.events;
                ops.push(sums.complete.finish(op, false));
            } else if sums.partial.matched > 0 {
                ops.push(sums.partial.finish(op, true));
            }
        }
        (ops, left_out)
    }
}

/// Numbers (blocks times members) that one op keeps at most.
const MAX_CELLS: usize = 1 << 20;

/// Series 0 are steps, the others communicators; then the number within, divided by the stride.
type BlockId = (u64, i64);

#[derive(Debug, Clone)]
struct Sums {
    matched: u64,
    events: u64,
    wait_ns: f64,
    transfer_ns: f64,
    exposed_wait_ns: f64,
    exposed_transfer_ns: f64,
    spread_ns: u128,
    longest_ns: u128,
    members: IndexSet<(u32, Option<u32>)>,
    blocks: BTreeMap<BlockId, Block>,
    stride: i64,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            matched: 0,
            events: 0,
            wait_ns: 0.0,
            transfer_ns: 0.0,
            exposed_wait_ns: 0.0,
            exposed_transfer_ns: 0.0,
            spread_ns: 0,
            longest_ns: 0,
            members: IndexSet::new(),
            blocks: BTreeMap::new(),
            stride: 1,
        }
    }
}

impl Sums {
    fn add(&mut self, position: Position, members: &[Member], last_arrival: i64, max_blocks: usize) {
        let (mut wait, mut transfer, mut exposed_wait, mut exposed_transfer) =
            (0_u128, 0_u128, 0_u128, 0_u128);
        let mut longest = 0;
        let mut first_arrival = last_arrival;
        let (series, number) = match position {
            Position::Step(step) => (0, step),
            Position::Sequence { comm, seq } => (1 + u64::from(comm), i64::try_from(seq).unwrap_or(i64::MAX)),
        };
        let block = self.blocks.entry((series, number.div_euclid(self.stride))).or_default();
        for member in members {
            let duration = duration_ns(member.start_ns, member.end_ns);
            let member_wait = member.wait_ns(last_arrival);
            let index = self.members.insert_full((member.rank, member.device)).0;
            if block.waits.len() <= index {
                block.waits.resize(index + 1, 0.0);
            }
            block.waits[index] += member_wait as f64;
            wait += u128::from(member_wait);
            transfer += u128::from(duration - member_wait);
            exposed_wait += u128::from(member.exposed_wait_ns.min(member_wait));
            exposed_transfer += u128::from(member.exposed_transfer_ns.min(duration - member_wait));
            longest = longest.max(duration);
            first_arrival = first_arrival.min(member.start_ns);
        }
        block.longest += longest as f64;
        self.longest_ns += u128::from(longest);
        self.spread_ns += u128::from(last_arrival.abs_diff(first_arrival));
        let mean = |sum: u128| sum as f64 / members.len() as f64;
        self.wait_ns += mean(wait);
        self.transfer_ns += mean(transfer);
        self.exposed_wait_ns += mean(exposed_wait);
        self.exposed_transfer_ns += mean(exposed_transfer);
        self.matched += 1;
        self.events += members.len() as u64;
        self.limit_blocks(max_blocks);
    }

    /// Joins adjacent blocks until they fit.
    fn limit_blocks(&mut self, max_blocks: usize) {
        let most = max_blocks.min(MAX_CELLS / self.members.len().max(1)).max(2);
        while self.blocks.len() > most && self.stride <= i64::MAX / 2 {
            let halved = std::mem::take(&mut self.blocks);
            self.stride *= 2;
            for ((series, number), block) in halved {
                self.blocks.entry((series, number.div_euclid(2))).or_default().add(&block);
            }
        }
    }

    /// Blocks for the bootstrap, and their sum. Where no step is known, neighbours in a sequence may
    /// belong to one step and are not independent: n of them are drawn in blocks of the cube root of n
    /// (P. Hall, J. L. Horowitz, B.-Y. Jing, On blocking rules for the bootstrap with dependent data,
    /// Biometrika 82, 1995).
    fn bootstrap_blocks(&self) -> (Vec<Block>, Block) {
        let mut all = Block::default();
        let mut series: BTreeMap<u64, Vec<Block>> = BTreeMap::new();
        for (&(number, _), block) in &self.blocks {
            all.add(block);
            let mut block = block.clone();
            block.waits.resize(self.members.len(), 0.0);
            series.entry(number).or_default().push(block);
        }
        all.waits.resize(self.members.len(), 0.0);
        let blocks = series
            .into_iter()
            .flat_map(|(number, blocks)| match number {
                0 => blocks,
                _ => join(&blocks, (blocks.len() as f64).cbrt() as usize),
            })
            .collect();
        (blocks, all)
    }

    fn finish(&self, op: &str, partial: bool) -> OpAcrossRanks {
        let (blocks, all) = self.bootstrap_blocks();
        let spread = if self.longest_ns == 0 {
            0.0
        } else {
            (self.spread_ns as f64 / self.longest_ns as f64).min(1.0)
        };
        OpAcrossRanks {
            collective: op.to_string(),
            matched: self.matched,
            partial,
            wait_ms: self.wait_ns / 1e6,
            transfer_ms: self.transfer_ns / 1e6,
            exposed_wait_ms: self.exposed_wait_ns / 1e6,
            exposed_transfer_ms: self.exposed_transfer_ns / 1e6,
            rank_imbalance_ratio: all.imbalance(),
            rank_imbalance_lower: lower_bound(&blocks, self.members.len()),
            bootstrap_blocks: blocks.len() as u64,
            arrival_spread_ratio: spread,
            verdict: Verdict::of(self.matched, partial, self.wait_ns, self.transfer_ns),
        }
    }
}
