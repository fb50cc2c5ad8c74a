//! What a reader takes away in ten seconds, and what each op costs.

use super::layout::{Column, Page, counted};
use super::nccl;
use crate::advise::{Explanation, HotspotEvent, explain, explain_durations};
use crate::analyze::{RankReport, Report, Wall};
use crate::units;
use std::collections::BTreeSet;

pub(super) fn headline(page: &mut Page, report: &Report) {
    if report.ranks.is_empty() {
        if nccl::headline(page, report) {
            return;
        }
        page.line("commtrace: no intervals were read");
        page.entry("What to do", &report.followup.reason);
        return;
    }
    let ranks: BTreeSet<u32> = report.ranks.iter().map(|rank| rank.rank).collect();
    let steps: BTreeSet<i64> =
        report.ranks.iter().flat_map(|rank| rank.steps.iter().map(|step| step.step)).collect();
    let placed: Vec<(u32, &Wall)> =
        report.ranks.iter().filter_map(|rank| Some((rank.rank, rank.wall.as_ref()?))).collect();
    let mut title = format!("commtrace: {}", counted(ranks.len() as u64, "rank", "ranks"));
    if !steps.is_empty() {
        title += &format!(", {}", counted(steps.len() as u64, "step", "steps"));
    }
    if !placed.is_empty() {
        let span = placed.iter().map(|(_, wall)| wall.span_ms).fold(0.0, f64::max);
        title += &format!(", {} from first to last interval", units::ms(span));
    }
    page.line(&title);
    page.line("");

    if placed.is_empty() {
        durations(page, report)
    } else {
        walls(page, &placed, ranks.len() > 1)
    }
    if let Some(priority) = &report.hotspots.priority {
        page.entry("Hotspot", &hotspot(report, &priority.collective));
        if let Some(waits) = waits(report, &priority.collective) {
            page.entry("", &waits);
        }
    }
    page.entry("Decision", &format!("{}: {}", report.followup.decision, report.followup.reason));
    page.entry("Try next", &try_next(report));
    if !report.warnings.is_empty() {
        page.entry("Warnings", &format!("{}, at the end of this report", report.warnings.len()));
    }
}

/// What the rank that lost most lost: the one with the largest exposed time.
fn walls(page: &mut Page, placed: &[(u32, &Wall)], several: bool) {
    let worst =
        placed.iter().reduce(|worst, one| if one.1.exposed_ms > worst.1.exposed_ms { one } else { worst });
    let Some(&(rank, wall)) = worst else { return };
    let share = |part: f64, whole: f64| units::percent(if whole > 0.0 { part / whole } else { 0.0 });
    let of_rank = if several { format!(" on rank {rank}") } else { String::new() };
    page.entry(
        "Communication",
        &format!(
            "{}{of_rank}, {} of its span; calls side by side count once",
            units::ms(wall.comm_ms),
            share(wall.comm_ms, wall.span_ms)
        ),
    );
    page.entry(
        "Exposed",
        &format!(
            "{}, {} of its span: communication with no compute beside it",
            units::ms(wall.exposed_ms),
            share(wall.exposed_ms, wall.span_ms)
        ),
    );
    page.entry(
        "Overlap",
        &format!("{} of the communication time is hidden by compute", share(wall.overlap_ms, wall.comm_ms)),
    );
    let least =
        placed.iter().reduce(|least, one| if one.1.exposed_ms < least.1.exposed_ms { one } else { least });
    if let Some((least_rank, least)) = least.filter(|least| least.0 != rank) {
        page.entry(
            "Across ranks",
            &format!(
                "exposed from {} (rank {least_rank}) to {} (rank {rank})",
                units::ms(least.exposed_ms),
                units::ms(wall.exposed_ms),
            ),
        );
    }
}

/// What is known where communication has no place in time.
fn durations(page: &mut Page, report: &Report) {
    let time = |rank: &RankReport| rank.summary.total_comm_time;
    let most = report.ranks.iter().reduce(|most, rank| if time(rank) > time(most) { rank } else { most });
    let Some(most) = most else { return };
    let of_rank = if report.ranks.len() > 1 { format!(" on rank {}", most.rank) } else { String::new() };
    page.entry(
        "Communication",
        &format!(
            "{}{of_rank}, sum of {}",
            units::ms(time(most)),
            counted(most.summary.num_comm_events, "call", "calls")
        ),
    );
    page.entry("Exposed", "unknown: the input says how long communication took and not when");
}

fn hotspot(report: &Report, op: &str) -> String {
    let Some(event) = report.hotspot_events.iter().find(|event| event.collective == op) else {
        return op.to_string();
    };
    let mut text = format!(
        "{op}: summed over {2}, {0} exposed of {1}",
        units::known(event.exposed_comm_ms, units::ms),
        units::ms(event.total_comm_ms),
        counted(event.sync_count, "call", "calls")
    );
    if let Some(bytes) = event.payload_bytes {
        text += &format!(", {}", units::bytes(bytes));
    }
    if let (Some(rank), true) = (event.rank, report.ranks.len() > 1) {
        text += &format!(" (rank {rank})");
    }
    text
}

/// How the hotspot's time divides, in the mean of the ranks.
fn waits(report: &Report, op: &str) -> Option<String> {
    let across = report.cross_rank.as_ref()?.ops.iter().find(|across| across.collective == op)?;
    Some(format!(
        "mean of all ranks: {} waiting for the last rank, {} transfer ({})",
        units::ms(across.wait_ms),
        units::ms(across.transfer_ms),
        across.verdict.as_str()
    ))
}

fn try_next(report: &Report) -> String {
    let mitigation = &report.mitigation;
    let target = mitigation.target.as_ref().map(|op| format!(" for {op}")).unwrap_or_default();
    let measure = mitigation.next_measurements.join(", ");
    format!("{}{target}; then measure {measure}", mitigation.strategy)
}

/// The pattern behind the chosen strategy.
pub(super) fn what_to_try(page: &mut Page, report: &Report) {
    if report.ranks.is_empty() && nccl::has_facts(report) {
        return;
    }
    let hotspots = &report.hotspots;
    let explanation = match (hotspots.priority.is_none(), hotspots.num_events) {
        (true, 1..) => explain_durations(),
        _ => explain(report.mitigation.strategy),
    };
    page.heading(&format!("What to try: {}", report.mitigation.strategy));
    pattern(page, explanation);
    if let Some(related) = explanation.related {
        page.line("");
        pattern(page, related);
    }
}

fn pattern(page: &mut Page, explanation: &Explanation) {
    page.entry("Pattern", explanation.mode);
    page.entry("Shows as", explanation.evidence);
    let mut name = "Candidates";
    for action in explanation.actions {
        page.entry(name, action);
        name = "";
    }
    page.entry("Measure again", &explanation.remeasure.join(", "));
    page.entry("May cost", explanation.costs);
}

/// Each op's figures, of the rank where it is exposed most.
pub(super) fn operations(page: &mut Page, report: &Report) {
    if report.hotspot_events.is_empty() {
        return;
    }
    let several = report.ranks.len() > 1;
    page.heading(if several {
        "Operations (each of the rank where it is exposed most; sums over calls)"
    } else {
        "Operations (sums over calls)"
    });
    let mut columns = vec![
        Column::Words("op"),
        Column::Figures("calls"),
        Column::Figures("time"),
        Column::Figures("exposed"),
        Column::Figures("overlap"),
        Column::Figures("bytes"),
        Column::Figures("mean call"),
        Column::Figures("imbalance"),
    ];
    if several {
        columns.push(Column::Figures("rank"));
    }
    let mut events: Vec<&HotspotEvent> = report.hotspot_events.iter().collect();
    let key = |event: &HotspotEvent| event.exposed_comm_ms.unwrap_or(event.total_comm_ms);
    events.sort_by(|a, b| key(b).total_cmp(&key(a)));
    let rows = events
        .into_iter()
        .map(|event| {
            let mut row = vec![
                event.collective.clone(),
                event.sync_count.to_string(),
                units::ms(event.total_comm_ms),
                units::known(event.exposed_comm_ms, units::ms),
                units::known(event.overlap_ratio, units::percent),
                event.payload_bytes.map_or_else(|| "unknown".to_string(), units::bytes),
                units::ms(event.total_comm_ms / event.sync_count.max(1) as f64),
                event.rank_imbalance_ratio.map_or_else(|| "unknown".to_string(), units::percent),
            ];
            if several {
                row.push(event.rank.map_or_else(String::new, |rank| rank.to_string()));
            }
            row
        })
        .collect();
    page.table(&columns, rows, "operations");
}
