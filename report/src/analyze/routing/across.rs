//! From the sums of the ranks to figures over all of them.

use super::sums::{per_second, ratio};
use super::{ExchangeFigures, ExpertRouting, HEAVIEST, MATRIX_RANKS, PairBytes, RankExchanges};
use crate::analyze::RankReport;
use crate::timeline::RoutingPhase;
use indexmap::IndexMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// One rank's sums of a communicator.
struct Member<'a> {
    rank: u32,
    sums: &'a RankExchanges,
    /// Nothing of them is known to be lost.
    whole: bool,
}

type Key<'a> = (Option<&'a str>, u32, &'a str, Option<RoutingPhase>);

/// The figures over `ranks`; `None` if fewer than two ranks have calls with counts.
pub(crate) fn expert_routing(ranks: &[RankReport]) -> Option<ExpertRouting> {
    let routed: Vec<_> = ranks.iter().filter_map(|report| Some((report, report.routing.as_ref()?))).collect();
    let distinct: BTreeSet<u32> = routed.iter().map(|(report, _)| report.rank).collect();
    if distinct.len() < 2 {
        return None;
    }
    let mut groups: IndexMap<Key<'_>, Vec<Member<'_>>> = IndexMap::new();
    for (report, routing) in &routed {
        let whole = !routing.lost_records && routing.without_peer_bytes == 0;
        for sums in &routing.exchanges {
            let key = (sums.comm.as_deref(), sums.comm_size, sums.collective.as_str(), sums.phase);
            groups.entry(key).or_default().push(Member { rank: report.rank, sums, whole });
        }
    }
    let mut by_communicator: Vec<ExchangeFigures> = groups.values().map(|members| figures(members)).collect();
    by_communicator.sort_by_key(|one| Reverse(one.cross_rank_bytes));
    let dispatches = || groups.iter().filter(|(key, _)| key.3 == Some(RoutingPhase::Dispatch));
    let sum =
        |of: fn(&RankExchanges) -> Option<u64>| sum_of(dispatches().flat_map(|(_, members)| members), of);
    let dispatched_tokens = sum(|sums| sums.sent_tokens);
    let without_peer_bytes: u64 = routed.iter().map(|(_, routing)| routing.without_peer_bytes).sum();
    let uncounted = sum(|sums| Some(sums.without_token_count)).unwrap_or(0) > 0;
    let all_known = !uncounted && dispatches().all(|(_, members)| is_complete(members));
    let hottest = all_known.then(|| hottest(dispatches().flat_map(|(_, members)| members))).flatten();
    let seconds = routed.iter().filter_map(|(report, _)| report.wall).map(|wall| wall.span_ms / 1e3);
    let all_tokens = dispatched_tokens.filter(|_| !uncounted && without_peer_bytes == 0);
    Some(ExpertRouting {
        dispatch_payload_bytes: sum(|sums| Some(sums.sent_bytes)),
        dispatch_cross_rank_bytes: sum(|sums| Some(sums.sent_to_others_bytes)),
        dispatched_tokens,
        cross_rank_token_ratio: ratio(sum(|sums| sums.sent_to_others_tokens), dispatched_tokens),
        expert_load_skew: hottest.map(|hottest| hottest.1),
        hottest_rank: hottest.map(|hottest| hottest.0),
        throughput_tokens_per_s: per_second(all_tokens, seconds.reduce(f64::max)),
        complete: by_communicator.iter().all(|one| one.complete),
        without_token_count: routed.iter().map(|(_, routing)| routing.without_token_count).sum(),
        without_peer_bytes,
        by_communicator,
    })
}

fn sum_of<'a>(
    members: impl Iterator<Item = &'a Member<'a>>,
    of: fn(&RankExchanges) -> Option<u64>,
) -> Option<u64> {
    members
        .filter_map(|member| of(member.sums))
        .fold(None, |sum: Option<u64>, one| Some(sum.unwrap_or(0).saturating_add(one)))
}

/// Whether these are all ranks of the communicator, with as many calls each, and nothing is missing.
fn is_complete(members: &[Member<'_>]) -> bool {
    let Some(first) = members.first() else { return false };
    let places: BTreeSet<u32> = members.iter().map(|member| member.sums.comm_rank).collect();
    first.sums.comm.is_some()
        && places.len() == members.len()
        && members.len() == first.sums.comm_size as usize
        && members.iter().all(|member| member.whole && member.sums.calls == first.sums.calls)
}

/// The rank that received the most tokens, and how many more than the mean.
fn hottest<'a>(members: impl Iterator<Item = &'a Member<'a>>) -> Option<(u32, f64)> {
    let mut tokens: BTreeMap<u32, u64> = BTreeMap::new();
    for member in members {
        let sum = tokens.entry(member.rank).or_default();
        *sum = sum.saturating_add(member.sums.received_tokens.unwrap_or(0));
    }
    most_over_mean(tokens.iter().map(|(&rank, &tokens)| (rank, tokens)))
}

/// Whose number is the largest, the first of several, and how many times the mean it is; `None` if all are 0.
fn most_over_mean(numbers: impl Iterator<Item = (u32, u64)> + Clone) -> Option<(u32, f64)> {
    let (sum, count) = numbers
        .clone()
        .fold((0_u128, 0_u128), |(sum, count), (_, number)| (sum + u128::from(number), count + 1));
    let (rank, most) = numbers.min_by_key(|&(rank, number)| (Reverse(number), rank))?;
    (sum > 0).then(|| (rank, most as f64 * count as f64 / sum as f64))
}

fn figures(members: &[Member<'_>]) -> ExchangeFigures {
    let Some(first) = members.first() else { return ExchangeFigures::default() };
    let sum = |of: fn(&RankExchanges) -> Option<u64>| sum_of(members.iter(), of);
    let complete = is_complete(members);
    let most = |of: fn(&RankExchanges) -> u64| {
        let numbers = members.iter().map(|member| (member.rank, of(member.sums)));
        most_over_mean(numbers).filter(|_| complete)
    };
    let (sent, received) = (most(|sums| sums.sent_bytes), most(|sums| sums.received_bytes));
    let tokens = sum(|sums| sums.sent_tokens);
    let of_place: BTreeMap<u32, u32> =
        members.iter().map(|member| (member.sums.comm_rank, member.rank)).collect();
    let (ranks, bytes_by_pair) = matrix(members).filter(|_| complete).unzip();
    ExchangeFigures {
        comm: first.sums.comm.clone(),
        comm_size: first.sums.comm_size,
        collective: first.sums.collective.clone(),
        phase: first.sums.phase,
        exchanges: members.iter().map(|member| member.sums.calls).max().unwrap_or(0),
        complete,
        bytes: sum(|sums| Some(sums.sent_bytes)).unwrap_or(0),
        cross_rank_bytes: sum(|sums| Some(sums.sent_to_others_bytes)).unwrap_or(0),
        sent_imbalance: sent.map(|sent| sent.1),
        most_sent_rank: sent.map(|sent| sent.0),
        received_imbalance: received.map(|received| received.1),
        most_received_rank: received.map(|received| received.0),
        tokens,
        cross_rank_token_ratio: ratio(sum(|sums| sums.sent_to_others_tokens), tokens),
        heaviest_pairs: heaviest_pairs(members, &of_place),
        ranks: ranks.unwrap_or_default(),
        bytes_by_pair,
    }
}

/// The pairs of different ranks, both of which were read, with the most bytes.
fn heaviest_pairs(members: &[Member<'_>], of_place: &BTreeMap<u32, u32>) -> Vec<PairBytes> {
    let pairs_of = |member: &Member<'_>| {
        let source = member.rank;
        let others = member.sums.sent_to.iter().filter(|to| to.peer != member.sums.comm_rank);
        let pair = |to: &super::PeerBytes| {
            Some(PairBytes { source, destination: *of_place.get(&to.peer)?, bytes: to.bytes })
        };
        others.filter_map(pair).collect::<Vec<_>>()
    };
    let mut pairs: Vec<PairBytes> = members.iter().flat_map(pairs_of).collect();
    pairs.sort_by_key(|pair| (Reverse(pair.bytes), pair.source, pair.destination));
    pairs.truncate(HEAVIEST);
    pairs
}

/// The ranks, and the bytes from each to each.
fn matrix(members: &[Member<'_>]) -> Option<(Vec<u32>, Vec<Vec<u64>>)> {
    let size = members.first()?.sums.comm_size as usize;
    if size > MATRIX_RANKS {
        return None;
    }
    let mut in_order: Vec<&Member<'_>> = members.iter().collect();
    in_order.sort_by_key(|member| member.sums.comm_rank);
    let row = |member: &&Member<'_>| {
        let mut row = vec![0; size];
        for to in &member.sums.sent_to {
            if let Some(cell) = row.get_mut(to.peer as usize) {
                *cell = to.bytes;
            }
        }
        row
    };
    let rows = in_order.iter().map(row).collect();
    Some((in_order.iter().map(|member| member.rank).collect(), rows))
}
