//! How tokens are routed to experts, and how evenly exchanges load the ranks.

use super::layout::{Column, Page, counted};
use crate::analyze::{ExchangeFigures, ExpertRouting, RankRouting, Report};
use crate::units;

/// Pairs of ranks that are named.
const NAMED: usize = 3;

pub(super) fn routing(page: &mut Page, report: &Report) {
    if let Some(routing) = report.cross_rank.as_ref().and_then(|across| across.routing.as_deref()) {
        across(page, routing);
    } else if let Some(routing) = report.ranks.iter().find_map(|rank| rank.routing.as_deref()) {
        one_rank(page, routing);
    }
}

fn across(page: &mut Page, routing: &ExpertRouting) {
    page.heading("Expert routing and exchanges between ranks");
    dispatches(page, routing.dispatch_payload_bytes, routing.dispatch_cross_rank_bytes);
    tokens(
        page,
        (routing.dispatched_tokens, routing.cross_rank_token_ratio, routing.throughput_tokens_per_s),
    );
    if let (Some(skew), Some(rank)) = (routing.expert_load_skew, routing.hottest_rank) {
        page.entry(
            "Expert load",
            &format!("skew {skew:.2}: rank {rank} gets that many times the mean number of tokens"),
        );
    } else if routing.dispatched_tokens.is_some() {
        page.entry("Expert load", "unknown: not all ranks' tokens of all dispatches are known");
    }
    let columns = [
        Column::Words("communicator"),
        Column::Words("op"),
        Column::Words("phase"),
        Column::Figures("calls"),
        Column::Figures("bytes"),
        Column::Figures("to other\nranks"),
        Column::Figures("most sent\n/ mean"),
        Column::Figures("by\nrank"),
        Column::Figures("most received\n/ mean"),
        Column::Figures("by\nrank"),
    ];
    page.table(&columns, routing.by_communicator.iter().map(row).collect(), "communicators and phases");
    pairs(page, routing);
    if !routing.complete {
        page.note(
            "Where ranks were not all read, do not have as many calls each, or lost records, nothing is said about \
             balance, and sums are those of what was recorded.",
        );
    }
    uncounted(page, routing.without_token_count, routing.without_peer_bytes);
}

fn row(one: &ExchangeFigures) -> Vec<String> {
    let times = |figure: Option<f64>| units::known(figure, |times| format!("{times:.2}"));
    let rank = |rank: Option<u32>| rank.map_or_else(String::new, |rank| rank.to_string());
    vec![
        one.comm.clone().unwrap_or_else(|| "unknown".to_owned()),
        one.collective.clone(),
        one.phase.map_or_else(String::new, |phase| phase.as_str().to_owned()),
        one.exchanges.to_string(),
        units::bytes(one.bytes),
        units::bytes(one.cross_rank_bytes),
        times(one.sent_imbalance),
        rank(one.most_sent_rank),
        times(one.received_imbalance),
        rank(one.most_received_rank),
    ]
}

fn pairs(page: &mut Page, routing: &ExpertRouting) {
    let Some(heaviest) = routing.by_communicator.first().filter(|one| one.comm_size > 2) else { return };
    let pairs: Vec<String> = heaviest
        .heaviest_pairs
        .iter()
        .take(NAMED)
        .map(|pair| format!("{} to {}: {}", pair.source, pair.destination, units::bytes(pair.bytes)))
        .collect();
    if !pairs.is_empty() {
        page.note(&format!("Most bytes between two ranks in the first line: {}.", pairs.join(", ")));
    }
}

/// What a single rank knows.
fn one_rank(page: &mut Page, routing: &RankRouting) {
    page.heading("Expert routing and exchanges, of one rank");
    dispatches(page, routing.dispatch_payload_bytes, routing.dispatch_cross_rank_bytes);
    tokens(
        page,
        (routing.dispatched_tokens, routing.cross_rank_token_ratio, routing.throughput_tokens_per_s),
    );
    for one in &routing.exchanges {
        page.bullet(&format!(
            "{}{} on {}: {}, {} sent ({} to other ranks), {} received",
            one.collective,
            one.phase.map_or_else(String::new, |phase| format!(" ({})", phase.as_str())),
            one.comm.as_deref().unwrap_or("an unknown communicator"),
            counted(one.calls, "call", "calls"),
            units::bytes(one.sent_bytes),
            units::bytes(one.sent_to_others_bytes),
            units::bytes(one.received_bytes),
        ));
    }
    uncounted(page, routing.without_token_count, routing.without_peer_bytes);
}

fn dispatches(page: &mut Page, payload: Option<u64>, cross_rank: Option<u64>) {
    if let (Some(payload), Some(cross_rank)) = (payload, cross_rank) {
        let (payload, cross_rank) = (units::bytes(payload), units::bytes(cross_rank));
        page.entry("Dispatched", &format!("{payload}, {cross_rank} of it to other ranks"));
    }
}

fn tokens(page: &mut Page, (tokens, ratio, throughput): (Option<u64>, Option<f64>, Option<f64>)) {
    let Some(tokens) = tokens else { return };
    let ratio = units::known(ratio, units::percent);
    let throughput = throughput.map_or_else(String::new, |rate| format!(", {rate:.0} per second"));
    page.entry("Tokens", &format!("{tokens}, {ratio} of them to other ranks{throughput}"));
}

fn uncounted(page: &mut Page, without_token_count: u64, without_peer_bytes: u64) {
    if without_token_count > 0 {
        page.note(&format!(
            "Tokens of {} were not counted: the elements for each rank are no multiple of the elements per token.",
            counted(without_token_count, "call", "calls")
        ));
    }
    if without_peer_bytes > 0 {
        page.note(&format!(
            "{} without bytes for each rank, in no figure here.",
            counted(without_peer_bytes, "call is", "calls are")
        ));
    }
}
