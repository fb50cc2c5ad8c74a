//! The matched collectives of one op, added up.

use super::accumulate::{Collective, Member, Position};
use super::bootstrap::{Block, join, lower_bound};
use super::breakdown::Breakdown;
use super::matching::bytes_may_differ;
use super::tally::{Measured, Tally};
use super::{OpAcrossRanks, WaitFigures};
use indexmap::IndexSet;
use std::collections::BTreeMap;

/// Batches that consecutive steps are joined into for the bootstrap.
const BATCHES: usize = 10;

/// Numbers (blocks times members) that one op keeps at most.
const MAX_CELLS: usize = 1 << 20;

/// Series 0 are steps, the others communicators; then the number within, divided by the stride.
type BlockId = (u64, i64);

/// The matched collectives of one op.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    tally: Tally,
    pub(super) events: u64,
    members: IndexSet<(u32, Option<u32>)>,
    /// Payloads per member, `None` where one is not known.
    bytes: Vec<Option<u64>>,
    breakdown: Breakdown,
    blocks: BTreeMap<BlockId, Block>,
    stride: i64,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            tally: Tally::default(),
            events: 0,
            members: IndexSet::new(),
            bytes: Vec::new(),
            breakdown: Breakdown::default(),
            blocks: BTreeMap::new(),
            stride: 1,
        }
    }
}

impl Sums {
    pub(super) fn matched(&self) -> u64 {
        self.tally.matched
    }

    pub(super) fn add(
        &mut self,
        collective: &Collective<'_>,
        one: &Measured,
        members: &[Member],
        max_blocks: usize,
    ) {
        let (series, number) = match collective.position {
            Position::Step(step) => (0, step),
            Position::Sequence { comm, seq } => (1 + u64::from(comm), i64::try_from(seq).unwrap_or(i64::MAX)),
        };
        let block = self.blocks.entry((series, number.div_euclid(self.stride))).or_default();
        block.longest += one.longest_ns as f64;
        let mut waits = Vec::with_capacity(members.len());
        for member in members {
            let index = self.members.insert_full((member.rank, member.device)).0;
            let wait_ns = member.wait_ns(one.last_arrival_ns);
            block.add_wait(index, wait_ns as f64);
            waits.push((index, wait_ns));
            if self.bytes.len() <= index {
                self.bytes.resize(index + 1, Some(0));
            }
            let sum = &mut self.bytes[index];
            *sum = sum.zip(member.bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        self.tally.add(one);
        self.events += members.len() as u64;
        self.breakdown.add((collective.comm, collective.comm_size), collective.step(), one, &waits);
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

    /// Blocks for the bootstrap, their sum, and the number of steps that they stand for.
    ///
    /// Where no step is known, neighbours in a sequence may belong to one step: n of them count as
    /// blocks of the cube root of n (P. Hall, J. L. Horowitz, B.-Y. Jing, On blocking rules for the
    /// bootstrap with dependent data, Biometrika 82, 1995). Steps are not independent either: a rank that
    /// the machine keeps busy is late for several of them in a row. So consecutive ones are joined into
    /// about [`BATCHES`] batches, the method of batch means (C. Alexopoulos, A. F. Seila, Output Data
    /// Analysis, in: Handbook of Simulation, 1998, which advises 10 to 30).
    fn bootstrap_blocks(&self) -> (Vec<Block>, Block, usize) {
        let mut all = Block::default();
        let mut series: BTreeMap<u64, Vec<Block>> = BTreeMap::new();
        for (&(number, _), block) in &self.blocks {
            all.add(block);
            let mut block = block.clone();
            block.waits.resize(self.members.len(), 0.0);
            series.entry(number).or_default().push(block);
        }
        all.waits.resize(self.members.len(), 0.0);
        let (mut blocks, mut steps) = (Vec::new(), 0);
        for (number, of_series) in series {
            let step = if number == 0 { 1 } else { (of_series.len() as f64).cbrt() as usize };
            steps += of_series.len().div_ceil(step.max(1));
            blocks.extend(join(&of_series, step.max(of_series.len().div_ceil(BATCHES))));
        }
        (blocks, all, steps)
    }

    /// The imbalance within one step, if steps were kept apart.
    fn step_imbalance(&self, step: i64) -> Option<f64> {
        let block = self.blocks.get(&(0, step)).filter(|_| self.stride == 1)?;
        (block.waits.len() == self.members.len()).then(|| block.imbalance())
    }

    /// Largest sum of payloads of a member over their mean; `None` where a payload is not known.
    fn bytes_imbalance(&self) -> Option<f64> {
        let known: Vec<u64> = self.bytes.iter().copied().collect::<Option<_>>()?;
        let total: u128 = known.iter().map(|&bytes| u128::from(bytes)).sum();
        let largest = *known.iter().max()?;
        (total > 0).then(|| largest as f64 * known.len() as f64 / total as f64)
    }

    pub(super) fn finish(&self, op: &str, partial: bool) -> OpAcrossRanks {
        let (blocks, all, steps) = self.bootstrap_blocks();
        let WaitFigures {
            matched,
            wait_ms,
            transfer_ms,
            exposed_wait_ms,
            exposed_transfer_ms,
            arrival_spread_ratio,
            verdict,
            bandwidth,
        } = self.tally.figures(partial);
        OpAcrossRanks {
            collective: op.to_string(),
            matched,
            partial,
            wait_ms,
            transfer_ms,
            exposed_wait_ms,
            exposed_transfer_ms,
            rank_imbalance_ratio: all.imbalance(),
            rank_imbalance_lower: lower_bound(&blocks, self.members.len()),
            bootstrap_steps: steps as u64,
            bootstrap_blocks: blocks.len() as u64,
            arrival_spread_ratio,
            verdict,
            uncertainty_ms: 0.0,
            bandwidth,
            bytes_imbalance: self.bytes_imbalance().filter(|_| bytes_may_differ(op)),
            by_communicator: self.breakdown.by_communicator(partial),
            by_size: self.breakdown.by_size(partial),
            by_step: self.breakdown.by_step(partial, |step| self.step_imbalance(step)),
            not_broken_down: self.breakdown.left_out(),
        }
    }
}
