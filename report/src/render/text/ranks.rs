//! Figures per rank.

use super::layout::{Column, Page};
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
