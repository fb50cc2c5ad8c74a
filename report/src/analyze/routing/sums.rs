//! Sums of one rank, call by call.

use super::{HEAVIEST, MATRIX_RANKS, PeerBytes, RankExchanges, RankRouting};
use crate::analyze::RankReport;
use crate::record::MAX_PEERS;
use crate::timeline::{Exchange, Names, RoutingPhase, Sym, Timeline, Track};
use indexmap::IndexMap;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Communicators, ops and phases of one rank that have sums. Calls on further ones are counted as calls without
/// bytes for each rank.
const MOST_KEYS: usize = 1024;

/// The op whose parts may differ, so that it always has counts when it is recorded by a communicator of ours.
const UNEQUAL_PARTS: &str = "all_to_all_v";

/// What is known of a call beside its counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoutedCall {
    pub(crate) op: Sym,
    pub(crate) comm: Option<Sym>,
    pub(crate) comm_size: Option<u32>,
    pub(crate) comm_rank: Option<u32>,
}

/// Sums of one rank, in bounded memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct RoutingSums {
    by_key: IndexMap<Key, Sums>,
    without_peer_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    op: Sym,
    comm: Option<Sym>,
    comm_size: u32,
    comm_rank: u32,
    phase: Option<RoutingPhase>,
}

#[derive(Debug, Clone, Default)]
struct Sums {
    calls: u64,
    sent: Split,
    received: Split,
    sent_tokens: Split,
    received_tokens: Split,
    with_tokens: u64,
    /// Bytes for each rank; empty in communicators in which they are not recorded one by one.
    sent_to: Vec<u64>,
}

/// What is the rank's own, and what is of others.
#[derive(Debug, Clone, Copy, Default)]
struct Split {
    own: u64,
    others: u64,
}

impl Split {
    fn of(bytes: &[u64], own: usize) -> Self {
        let all = bytes.iter().fold(0_u64, |sum, &bytes| sum.saturating_add(bytes));
        let own = bytes.get(own).copied().unwrap_or(0);
        Self { own, others: all.saturating_sub(own) }
    }

    fn add(&mut self, other: Self) {
        self.own = self.own.saturating_add(other.own);
        self.others = self.others.saturating_add(other.others);
    }

    fn in_units_of(self, unit: u64) -> Self {
        Self { own: self.own / unit.max(1), others: self.others / unit.max(1) }
    }

    fn total(self) -> u64 {
        self.own.saturating_add(self.others)
    }
}

impl RoutingSums {
    /// Adds a call, of which may be known how it spreads over ranks.
    pub(crate) fn add(&mut self, call: RoutedCall, exchange: Option<Exchange<'_>>, names: &Names) {
        let Some(exchange) = exchange else {
            self.without_peer_bytes += u64::from(names.get(call.op) == UNEQUAL_PARTS);
            return;
        };
        let own =
            call.comm_size.zip(call.comm_rank).filter(|(size, rank)| rank < size && exchange.fits(*size));
        let Some((comm_size, comm_rank)) = own else {
            self.without_peer_bytes += 1;
            return;
        };
        let key = Key { op: call.op, comm: call.comm, comm_size, comm_rank, phase: exchange.phase };
        if self.by_key.len() >= MOST_KEYS && !self.by_key.contains_key(&key) {
            self.without_peer_bytes += 1;
            return;
        }
        let one_by_one = comm_size as usize <= MAX_PEERS;
        let own = if one_by_one { comm_rank as usize } else { 0 };
        let (sent, received) = (Split::of(exchange.sent_bytes, own), Split::of(exchange.received_bytes, own));
        let sums = self.by_key.entry(key).or_default();
        sums.calls += 1;
        sums.sent.add(sent);
        sums.received.add(received);
        if let Some(unit) = exchange.token_bytes {
            sums.with_tokens += 1;
            sums.sent_tokens.add(sent.in_units_of(unit));
            sums.received_tokens.add(received.in_units_of(unit));
        }
        if one_by_one {
            sums.sent_to.resize(exchange.sent_bytes.len(), 0);
            for (sum, bytes) in sums.sent_to.iter_mut().zip(exchange.sent_bytes) {
                *sum = sum.saturating_add(*bytes);
            }
        }
    }

    /// The figures; `None` if no call has counts.
    pub(crate) fn finish(&self, names: &Names) -> Option<RankRouting> {
        if self.by_key.is_empty() {
            return None;
        }
        let exchanges: Vec<RankExchanges> =
            self.by_key.iter().map(|(key, sums)| sums.figures(key, names)).collect();
        let dispatches = || exchanges.iter().filter(|one| one.phase == Some(RoutingPhase::Dispatch));
        let sum = |of: fn(&RankExchanges) -> Option<u64>| {
            dispatches()
                .filter_map(of)
                .fold(None, |sum: Option<u64>, one| Some(sum.unwrap_or(0).saturating_add(one)))
        };
        let dispatched_tokens = sum(|one| one.sent_tokens);
        Some(RankRouting {
            dispatch_payload_bytes: sum(|one| Some(one.sent_bytes)),
            dispatch_cross_rank_bytes: sum(|one| Some(one.sent_to_others_bytes)),
            dispatched_tokens,
            cross_rank_token_ratio: ratio(sum(|one| one.sent_to_others_tokens), dispatched_tokens),
            throughput_tokens_per_s: None,
            without_token_count: exchanges.iter().map(|one| one.without_token_count).sum(),
            without_peer_bytes: self.without_peer_bytes,
            lost_records: false,
            exchanges,
        })
    }
}

impl Sums {
    fn figures(&self, key: &Key, names: &Names) -> RankExchanges {
        let tokens = |tokens: u64| (self.with_tokens > 0).then_some(tokens);
        let mut sent_to: Vec<PeerBytes> =
            (0..).zip(&self.sent_to).map(|(peer, &bytes)| PeerBytes { peer, bytes }).collect();
        sent_to.retain(|peer| peer.bytes > 0);
        if self.sent_to.len() > MATRIX_RANKS {
            sent_to.sort_by_key(|peer| (Reverse(peer.bytes), peer.peer));
            sent_to.truncate(HEAVIEST);
        }
        RankExchanges {
            comm: key.comm.map(|comm| names.get(comm).to_owned()),
            comm_size: key.comm_size,
            comm_rank: key.comm_rank,
            collective: names.get(key.op).to_owned(),
            phase: key.phase,
            calls: self.calls,
            sent_bytes: self.sent.total(),
            sent_to_others_bytes: self.sent.others,
            received_bytes: self.received.total(),
            sent_tokens: tokens(self.sent_tokens.total()),
            sent_to_others_tokens: tokens(self.sent_tokens.others),
            received_tokens: tokens(self.received_tokens.total()),
            without_token_count: if key.phase.is_some() { self.calls - self.with_tokens } else { 0 },
            sent_to,
        }
    }
}

/// `part` of `whole`; `None` of nothing.
pub(super) fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let (part, whole) = part.zip(whole).filter(|&(_, whole)| whole > 0)?;
    Some(part as f64 / whole as f64)
}

/// The sums of a track's calls.
pub(crate) fn rank_routing(track: &Track, names: &Names) -> Option<RankRouting> {
    if !track.comm.has_exchanges() && !track.unplaced.has_exchanges() {
        return None;
    }
    let mut sums = RoutingSums::default();
    let calls = track.comm.iter_exchanges().chain(track.unplaced.iter_exchanges());
    for (comm, exchange) in calls {
        let call =
            RoutedCall { op: comm.op, comm: comm.comm, comm_size: comm.comm_size, comm_rank: comm.comm_rank };
        sums.add(call, exchange, names);
    }
    sums.finish(names)
}

/// Adds how many tokens a rank dispatched per second.
pub(crate) fn add_throughput(report: &mut RankReport) {
    let seconds = report.wall.map(|wall| wall.span_ms / 1e3);
    if let Some(routing) = &mut report.routing {
        let all = routing
            .dispatched_tokens
            .filter(|_| routing.without_token_count + routing.without_peer_bytes == 0);
        routing.throughput_tokens_per_s = per_second(all, seconds);
    }
}

pub(super) fn per_second(tokens: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    let (tokens, seconds) = tokens.zip(seconds).filter(|&(_, seconds)| seconds > 0.0)?;
    Some(tokens as f64 / seconds)
}

/// Marks the ranks of processes that lost records. Losses are counted per process, in the file of one of its ranks.
pub(crate) fn mark_losses(ranks: &mut [RankReport], timeline: &Timeline) {
    let inputs = || timeline.inputs.iter();
    let lossy = || inputs().filter(|input| input.dropped + input.peer_bytes_dropped > 0);
    let of_same_process = |rank: Option<u32>, input: &crate::timeline::Input| match (&input.process, rank) {
        (Some(process), Some(_)) => lossy().any(|other| {
            let same = other.process.as_ref();
            same.is_some_and(|same| {
                (&same.boot_id, same.pid, same.start_unix_ns)
                    == (&process.boot_id, process.pid, process.start_unix_ns)
            })
        }),
        _ => input.dropped + input.peer_bytes_dropped > 0,
    };
    let lost: BTreeSet<u32> =
        inputs().filter(|input| of_same_process(input.rank, input)).filter_map(|input| input.rank).collect();
    for report in ranks {
        if let Some(routing) = &mut report.routing {
            routing.lost_records |= lost.contains(&report.rank);
        }
    }
}
