//! Waits across ranks.

use super::layout::{Column, Page, counted};
use crate::analyze::{CrossRank, OpAcrossRanks, PointToPoint, Report, SizeWaits};
use crate::units;

/// Unmatched collectives and pairs of ranks that are named.
const NAMED: usize = 5;

pub(super) fn across(page: &mut Page, report: &Report) {
    let Some(across) = &report.cross_rank else { return };
    if !across.ops.is_empty() {
        ops(page, across);
        let hotspot = report.hotspots.priority.as_ref().map(|priority| priority.collective.as_str());
        let hotspot = across.ops.iter().find(|op| Some(op.collective.as_str()) == hotspot);
        if let Some(op) = hotspot {
            communicators(page, op);
            sizes(page, op);
        }
        worst(page, across);
    }
    if let Some(messages) = &across.point_to_point {
        point_to_point(page, messages);
    }
    unmatched(page, across);
}

fn ops(page: &mut Page, across: &CrossRank) {
    page.heading("Waits across ranks (sums over matched collectives of the mean over ranks)");
    let columns = [
        Column::Words("op"),
        Column::Figures("matched"),
        Column::Figures("wait"),
        Column::Figures("transfer"),
        Column::Figures("exposed\nwait"),
        Column::Figures("exposed\ntransfer"),
        Column::Figures("imba-\nlance"),
        Column::Figures("at\nleast"),
        Column::Figures("arrival\nspread"),
        Column::Words("verdict"),
    ];
    let rows = across
        .ops
        .iter()
        .map(|op| {
            vec![
                op.collective.clone(),
                op.matched.to_string(),
                format!("{}{}", if op.partial { ">= " } else { "" }, units::ms(op.wait_ms)),
                units::ms(op.transfer_ms),
                units::ms(op.exposed_wait_ms),
                units::ms(op.exposed_transfer_ms),
                units::percent(op.rank_imbalance_ratio),
                op.rank_imbalance_lower.map_or_else(|| "unknown".to_string(), units::percent),
                units::percent(op.arrival_spread_ratio),
                op.verdict.as_str().trim_end_matches("-dominated").to_string(),
            ]
        })
        .collect();
    page.table(&columns, rows, "operations");
    page.note(
        "Wait: until the last rank arrived; transfer: after that; the verdict says which dominates. Imbalance: of \
         the time in these collectives, the share that is lost because the same ranks come late again and \
         again, and what it is at least (95 % sure). Arrival spread: the share lost to late ranks, the same \
         ones or others each time.",
    );
}

/// The communicator that costs most, where there are several.
fn communicators(page: &mut Page, op: &OpAcrossRanks) {
    let [worst, _, ..] = &op.by_communicator[..] else { return };
    let figures = &worst.figures;
    page.note(&format!(
        "Of {} communicators, {} ({}) costs most in {}: {} exposed wait and {} exposed transfer ({}).",
        op.by_communicator.len(),
        worst.comm,
        counted(worst.comm_size.into(), "rank", "ranks"),
        op.collective,
        units::ms(figures.exposed_wait_ms),
        units::ms(figures.exposed_transfer_ms),
        figures.verdict.as_str()
    ));
}

/// The hotspot by payload, as nccl-tests lists it.
fn sizes(page: &mut Page, op: &OpAcrossRanks) {
    if op.by_size.iter().all(|size| size.figures.bandwidth.algbw_gbs.is_none()) {
        return;
    }
    page.heading(&format!("{} by payload", op.collective));
    let columns = [
        Column::Words("payload"),
        Column::Figures("matched"),
        Column::Figures("mean wait"),
        Column::Figures("mean latency"),
        Column::Figures("algbw\nGB/s"),
        Column::Figures("busbw\nGB/s"),
        Column::Figures("busbw as a\nrank sees it"),
        Column::Words("verdict"),
    ];
    let row = |size: &SizeWaits| {
        let figures = &size.figures;
        let count = figures.matched.max(1) as f64;
        let bandwidth = &figures.bandwidth;
        let rate = |value: Option<f64>| units::known(value, units::gbs);
        vec![
            size.size.clone(),
            figures.matched.to_string(),
            units::ms(figures.wait_ms / count),
            units::ms(bandwidth.latency_ms / count),
            rate(bandwidth.algbw_gbs),
            rate(bandwidth.busbw_gbs),
            rate(bandwidth.own_busbw_gbs),
            figures.verdict.as_str().trim_end_matches("-dominated").to_string(),
        ]
    };
    page.table(&columns, op.by_size.iter().rev().map(row).collect(), "smaller payloads");
    page.note(
        "Latency is that of the rank that came last and waited for nobody; bandwidths are of it, as nccl-tests \
         counts them. A rank that waits sees less.",
    );
}

fn worst(page: &mut Page, across: &CrossRank) {
    let Some(worst) = across.worst.first() else { return };
    let seq = worst.seq.map(|seq| format!(", number {seq}")).unwrap_or_default();
    let step = worst.step.map(|step| format!(" in step {step}")).unwrap_or_default();
    page.note(&format!(
        "The most expensive call: {} of {}{seq}{step}, {} exposed wait and {} exposed transfer; rank {} came last, \
         {} after the first.",
        worst.collective,
        worst.comm,
        units::ms(worst.exposed_wait_ms),
        units::ms(worst.exposed_transfer_ms),
        worst.last_rank,
        units::ms(worst.arrival_spread_ms)
    ));
}

fn point_to_point(page: &mut Page, messages: &PointToPoint) {
    if messages.matched == 0 {
        return;
    }
    page.heading("Messages between two ranks");
    let unmatched = match messages.unmatched_events {
        0 => String::new(),
        count => format!("; of {} the other side is not known", counted(count, "call", "calls")),
    };
    page.line(&format!("  {}{unmatched}", counted(messages.matched, "message matched", "messages matched")));
    let (Some(late_sender_ms), Some(late_receiver_ms)) = (messages.late_sender_ms, messages.late_receiver_ms)
    else {
        return;
    };
    page.note(&format!(
        "Receivers waited {} for senders that came late, senders {} for receivers.",
        units::ms(late_sender_ms),
        units::ms(late_receiver_ms)
    ));
    for pair in messages.worst.iter().take(NAMED) {
        let (Some(sender), Some(receiver)) = (pair.late_sender_ms, pair.late_receiver_ms) else { continue };
        if sender + receiver > 0.0 {
            page.bullet(&format!(
                "rank {} to rank {} on {}: {}, late sender {}, late receiver {}",
                pair.source,
                pair.destination,
                pair.comm,
                counted(pair.matched, "message", "messages"),
                units::ms(sender),
                units::ms(receiver)
            ));
        }
    }
}

fn unmatched(page: &mut Page, across: &CrossRank) {
    if across.unmatched_events == 0 {
        return;
    }
    if across.ops.is_empty() {
        page.heading("Waits across ranks");
    }
    page.note(&format!(
        "{} could not be matched across ranks and {} not in these figures:",
        counted(across.unmatched_events, "event", "events"),
        if across.unmatched_events == 1 { "is" } else { "are" }
    ));
    for unmatched in across.unmatched.iter().take(NAMED) {
        let place = match (&unmatched.comm, unmatched.seq) {
            (Some(comm), Some(seq)) => format!(" of {comm}, number {seq}"),
            _ => String::new(),
        };
        let (reason, ranks) = (unmatched.reason.as_str(), rank_list(&unmatched.ranks));
        page.bullet(&format!("{}{place}: {reason} ({ranks})", unmatched.op));
    }
}

fn rank_list(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(shown.len());
    let (noun, list) = (if ranks.len() == 1 { "rank" } else { "ranks" }, shown.join(", "));
    if more > 0 { format!("{noun} {list} and {more} more") } else { format!("{noun} {list}") }
}
