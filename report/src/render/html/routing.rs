//! How tokens are routed to experts, and how evenly exchanges load the ranks.

use super::MAX_ROWS;
use super::page::Page;
use crate::analyze::{ExchangeFigures, Report};
use crate::units;

/// Ranks up to which bytes for each pair are shown.
const SHOWN: usize = 16;

pub(super) fn routing(page: &mut Page, report: &Report) {
    let routing = report.cross_rank.as_ref().and_then(|across| across.routing.as_deref());
    let Some(routing) = routing else { return };
    page.heading(2, "Expert routing and exchanges between ranks");
    let bytes = |bytes: Option<u64>| units::known(bytes, units::bytes);
    let number = |number: Option<f64>| units::known(number, |number| format!("{number:.2}"));
    let skew = match routing.hottest_rank {
        Some(rank) => format!("{} (rank {rank})", number(routing.expert_load_skew)),
        None => number(routing.expert_load_skew),
    };
    page.facts(&[
        ("dispatch_payload_bytes", bytes(routing.dispatch_payload_bytes)),
        ("of it to other ranks", bytes(routing.dispatch_cross_rank_bytes)),
        ("cross_rank_token_ratio", units::known(routing.cross_rank_token_ratio, units::percent)),
        ("expert_load_skew", skew),
        (
            "throughput_tokens_per_s",
            units::known(routing.throughput_tokens_per_s, |rate| format!("{rate:.0}")),
        ),
    ]);
    let columns = [
        "communicator",
        "op",
        "phase",
        "calls",
        "bytes",
        "to other ranks",
        "most sent / mean",
        "most received / mean",
    ];
    let rows = routing.by_communicator.iter().map(|one| {
        vec![
            one.comm.clone().unwrap_or_else(|| "unknown".to_owned()),
            one.collective.clone(),
            one.phase.map_or_else(String::new, |phase| phase.as_str().to_owned()),
            one.exchanges.to_string(),
            units::bytes(one.bytes),
            units::bytes(one.cross_rank_bytes),
            number(one.sent_imbalance),
            number(one.received_imbalance),
        ]
    });
    page.table(&columns, rows.collect(), MAX_ROWS);
    if let Some(first) = routing.by_communicator.first() {
        pairs(page, first);
    }
}

/// Bytes from each rank to each.
fn pairs(page: &mut Page, one: &ExchangeFigures) {
    let Some(rows) = one.bytes_by_pair.as_ref().filter(|rows| rows.len() <= SHOWN) else { return };
    page.heading(3, &format!("Bytes of {} from rank (row) to rank (column)", one.collective));
    let names: Vec<String> = one.ranks.iter().map(u32::to_string).collect();
    let columns: Vec<&str> = std::iter::once("").chain(names.iter().map(String::as_str)).collect();
    let rows = names.iter().zip(rows).map(|(name, row)| {
        std::iter::once(name.clone()).chain(row.iter().map(|&bytes| units::bytes(bytes))).collect()
    });
    page.table(&columns, rows.collect(), MAX_ROWS);
}
