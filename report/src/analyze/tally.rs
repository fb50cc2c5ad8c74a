//! Waits, transfers and bandwidths of some matched collectives, added up.

use super::accumulate::Member;
use super::interval::duration_ns;
use super::{Bandwidth, Verdict, WaitFigures, ms_from_ns};
use crate::nccl::{algbw_gbs, busbw_factor};

/// One collective: means over its ranks, and what tells its ranks apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) wait_ns: f64,
    pub(super) transfer_ns: f64,
    pub(super) exposed_wait_ns: f64,
    pub(super) exposed_transfer_ns: f64,
    /// The ranks' own durations.
    duration_ns: f64,
    /// From the first to the last arrival.
    pub(super) spread_ns: u64,
    pub(super) longest_ns: u64,
    shortest_ns: u64,
    /// The largest payload of a rank.
    pub(super) bytes: Option<u64>,
    /// What algorithm bandwidth is multiplied by to give bus bandwidth.
    bus_factor: Option<f64>,
    /// The rank that arrived last.
    pub(super) last_rank: u32,
    pub(super) last_arrival_ns: i64,
}

impl Measured {
    /// Measures a collective of `op` over `size` ranks; `None` without members.
    pub(super) fn of(op: &str, size: u32, members: &[Member]) -> Option<Self> {
        let last = members.iter().max_by_key(|member| member.start_ns)?;
        let (mut wait, mut transfer, mut exposed_wait, mut exposed_transfer) =
            (0_u128, 0_u128, 0_u128, 0_u128);
        let (mut longest_ns, mut shortest_ns) = (0, u64::MAX);
        let mut first_arrival_ns = last.start_ns;
        for member in members {
            let duration = duration_ns(member.start_ns, member.end_ns);
            let waited = member.wait_ns(last.start_ns);
            wait += u128::from(waited);
            transfer += u128::from(duration - waited);
            exposed_wait += u128::from(member.exposed_wait_ns.min(waited));
            exposed_transfer += u128::from(member.exposed_transfer_ns.min(duration - waited));
            longest_ns = longest_ns.max(duration);
            shortest_ns = shortest_ns.min(duration);
            first_arrival_ns = first_arrival_ns.min(member.start_ns);
        }
        let mean = |sum: u128| sum as f64 / members.len() as f64;
        Some(Self {
            wait_ns: mean(wait),
            transfer_ns: mean(transfer),
            exposed_wait_ns: mean(exposed_wait),
            exposed_transfer_ns: mean(exposed_transfer),
            duration_ns: mean(wait + transfer),
            spread_ns: last.start_ns.abs_diff(first_arrival_ns),
            longest_ns,
            shortest_ns,
            bytes: members.iter().filter_map(|member| member.bytes).max(),
            bus_factor: busbw_factor(op, size),
            last_rank: last.rank,
            last_arrival_ns: last.start_ns,
        })
    }
}

/// Sums over collectives.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) matched: u64,
    wait_ns: f64,
    transfer_ns: f64,
    exposed_wait_ns: f64,
    exposed_transfer_ns: f64,
    spread_ns: u128,
    pub(super) longest_ns: u128,
    shortest_ns: u128,
    sized: Sized,
}

/// Sums over collectives whose payload is known.
#[derive(Debug, Clone, Default)]
struct Sized {
    matched: u64,
    bytes: u64,
    shortest_ns: u128,
    duration_ns: f64,
    /// Bytes that cross each rank's link, and whether that is known of all.
    bus_bytes: f64,
    no_factor: bool,
}

impl Tally {
    pub(super) fn add(&mut self, one: &Measured) {
        self.matched += 1;
        self.wait_ns += one.wait_ns;
        self.transfer_ns += one.transfer_ns;
        self.exposed_wait_ns += one.exposed_wait_ns;
        self.exposed_transfer_ns += one.exposed_transfer_ns;
        self.spread_ns += u128::from(one.spread_ns);
        self.longest_ns += u128::from(one.longest_ns);
        self.shortest_ns += u128::from(one.shortest_ns);
        let Some(bytes) = one.bytes else { return };
        self.sized.matched += 1;
        self.sized.bytes = self.sized.bytes.saturating_add(bytes);
        self.sized.shortest_ns += u128::from(one.shortest_ns);
        self.sized.duration_ns += one.duration_ns;
        match one.bus_factor {
            Some(factor) => self.sized.bus_bytes += bytes as f64 * factor,
            None => self.sized.no_factor = true,
        }
    }

    pub(super) fn figures(&self, partial: bool) -> WaitFigures {
        WaitFigures {
            matched: self.matched,
            wait_ms: self.wait_ns / 1e6,
            transfer_ms: self.transfer_ns / 1e6,
            exposed_wait_ms: self.exposed_wait_ns / 1e6,
            exposed_transfer_ms: self.exposed_transfer_ns / 1e6,
            arrival_spread_ratio: match self.longest_ns {
                0 => 0.0,
                longest => (self.spread_ns as f64 / longest as f64).min(1.0),
            },
            verdict: Verdict::of(self.matched, partial, self.wait_ns, self.transfer_ns),
            bandwidth: self.bandwidth(),
        }
    }

    fn bandwidth(&self) -> Bandwidth {
        let sized = &self.sized;
        let known = sized.matched > 0;
        let algbw = |time_ms: f64| algbw_gbs(sized.bytes, time_ms).filter(|_| known);
        let share =
            (known && !sized.no_factor && sized.bytes > 0).then(|| sized.bus_bytes / sized.bytes as f64);
        let shortest = algbw(ms_from_ns(sized.shortest_ns));
        let own = algbw(sized.duration_ns / 1e6);
        Bandwidth {
            latency_ms: ms_from_ns(self.shortest_ns),
            bytes: known.then_some(sized.bytes),
            algbw_gbs: shortest,
            busbw_gbs: shortest.zip(share).map(|(algbw, share)| algbw * share),
            own_algbw_gbs: own,
            own_busbw_gbs: own.zip(share).map(|(algbw, share)| algbw * share),
        }
    }
}
