//! The single collectives that cost most.

use super::WorstCollective;
use super::accumulate::Collective;
use super::tally::Measured;
use std::cmp::Ordering;

/// Collectives that are listed.
const LISTED: usize = 10;

/// The collectives with the most exposed time so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Worst {
    found: Vec<WorstCollective>,
}

fn cost(one: &WorstCollective) -> f64 {
    one.exposed_wait_ms + one.exposed_transfer_ms
}

/// The worst first; what costs the same by op, communicator and number, so that the order of events does
/// not matter.
fn order(a: &WorstCollective, b: &WorstCollective) -> Ordering {
    let name = |one: &WorstCollective| (one.step, one.seq);
    cost(b)
        .total_cmp(&cost(a))
        .then_with(|| (&a.collective, &a.comm).cmp(&(&b.collective, &b.comm)))
        .then_with(|| name(a).cmp(&name(b)))
}

impl Worst {
    pub(super) fn offer(&mut self, collective: &Collective<'_>, one: &Measured) {
        let exposed_ms = (one.exposed_wait_ns + one.exposed_transfer_ns) / 1e6;
        // The common case makes no copy of the names.
        if self.found.len() == LISTED && self.found.last().is_some_and(|last| exposed_ms < cost(last)) {
            return;
        }
        self.found.push(WorstCollective {
            collective: collective.op.to_owned(),
            comm: collective.comm.to_owned(),
            seq: collective.seq,
            step: collective.step(),
            bytes: one.bytes,
            wait_ms: one.wait_ns / 1e6,
            transfer_ms: one.transfer_ns / 1e6,
            exposed_wait_ms: one.exposed_wait_ns / 1e6,
            exposed_transfer_ms: one.exposed_transfer_ns / 1e6,
            arrival_spread_ms: one.spread_ns as f64 / 1e6,
            last_rank: one.last_rank,
        });
        self.found.sort_by(order);
        self.found.truncate(LISTED);
    }

    pub(super) fn finish(&self) -> Vec<WorstCollective> {
        self.found.clone()
    }
}
