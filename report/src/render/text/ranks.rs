//! Figures per rank, and waits across ranks.

use super::layout::{Column, Page, counted};
use crate::analyze::{RankReport, Report, Wall};
use crate::units;

pub(super) fn ranks(page: &mut Page, report: &Report) {
    if report.ranks.is_empty() {
        return;
    }
    page.heading("Ranks");
    page.note(
        "\"Sum\" adds up every call, also calls that ran side by side: what the ops cost. \"Wall\" counts \
         each instant once: what the run lost.",
    );
    let with_device = report.ranks.iter().any(|rank| rank.device.is_some());
    let mut columns = vec![Column::Figures("rank")];
    if with_device {
        columns.push(Column::Figures("device"));
    }
    columns.extend([
        Column::Figures("calls"),
        Column::Figures("sum comm"),
        Column::Figures("sum exposed"),
        Column::Figures("overlap"),
        Column::Figures("wall comm"),
        Column::Figures("wall exposed"),
        Column::Figures("compute"),
        Column::Figures("idle"),
        Column::Figures("span"),
    ]);
    // If not all are shown, those that lost most are.
    let mut ranks: Vec<&RankReport> = report.ranks.iter().collect();
    if ranks.len() > page.max_rows {
        let exposed = |rank: &RankReport| rank.wall.map_or(0.0, |wall| wall.exposed_ms);
        ranks.sort_by(|a, b| exposed(b).total_cmp(&exposed(a)));
    }
    let rows = ranks
        .into_iter()
        .map(|rank| {
            let mut row = vec![rank.rank.to_string()];
            if with_device {
                row.push(rank.device.map_or_else(|| "host".to_string(), |device| device.to_string()));
            }
            row.extend([
                rank.summary.num_comm_events.to_string(),
                units::ms(rank.summary.total_comm_time),
                units::known(rank.summary.exposed_comm_time, units::ms),
                units::known(rank.summary.overlap_ratio, units::percent),
            ]);
            let wall: [fn(&Wall) -> f64; 5] = [
                |wall| wall.comm_ms,
                |wall| wall.exposed_ms,
                |wall| wall.compute_ms,
                |wall| wall.idle_ms,
                |wall| wall.span_ms,
            ];
            row.extend(wall.map(|figure| units::known(rank.wall.as_ref().map(figure), units::ms)));
            row
        })
        .collect();
    page.table(&columns, rows, "ranks with less exposed time");
}

pub(super) fn across(page: &mut Page, report: &Report) {
    let Some(across) = &report.cross_rank else { return };
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
        "Wait: until the last rank arrived; transfer: after that. Imbalance: share of the time lost to the \
         same ranks being late, and its lower 95 % bound over steps; arrival spread counts lateness that \
         moves from rank to rank as well. Verdict: what dominates the time.",
    );
    if across.unmatched_events > 0 {
        page.note(&format!(
            "{} could not be matched across ranks and {} not in these figures:",
            counted(across.unmatched_events, "event", "events"),
            if across.unmatched_events == 1 { "is" } else { "are" }
        ));
        for unmatched in across.unmatched.iter().take(5) {
            let place = match (&unmatched.comm, unmatched.seq) {
                (Some(comm), Some(seq)) => format!(" of {comm}, number {seq}"),
                _ => String::new(),
            };
            page.bullet(&format!(
                "{}{place}: {} ({})",
                unmatched.op,
                unmatched.reason.as_str(),
                rank_list(&unmatched.ranks)
            ));
        }
    }
}

fn rank_list(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(shown.len());
    let (noun, list) = (if ranks.len() == 1 { "rank" } else { "ranks" }, shown.join(", "));
    if more > 0 { format!("{noun} {list} and {more} more") } else { format!("{noun} {list}") }
}
