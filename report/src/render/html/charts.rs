//! Charts as inline SVG.

use super::page::{Page, escape};
use crate::analyze::{RankReport, Report, Wall};
use crate::units;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Bars of the chart per rank; beyond that the ranks with the most exposed time are shown.
const MAX_BARS: usize = 64;

const WIDTH: f64 = 900.0;
const LABEL: f64 = 120.0;
const BAR: f64 = 18.0;

/// A bar per rank: compute alone, compute and communication, communication alone, neither.
pub(super) fn ranks(page: &mut Page, report: &Report) {
    let mut shown: Vec<(&RankReport, &Wall)> =
        report.ranks.iter().filter_map(|rank| Some((rank, rank.wall.as_ref()?))).collect();
    let longest = shown.iter().map(|(_, wall)| wall.span_ms).fold(0.0, f64::max);
    if longest <= 0.0 {
        return;
    }
    page.heading(2, "Where each rank's time went");
    page.markup(
        "<p><span class=\"key compute\"></span>compute<span class=\"key overlap\"></span>communication hidden by \
         compute<span class=\"key exposed\"></span>exposed communication<span class=\"key idle\"></span>neither</p>",
    );
    if shown.len() > MAX_BARS {
        shown.sort_by(|(_, a), (_, b)| b.exposed_ms.total_cmp(&a.exposed_ms));
        shown.truncate(MAX_BARS);
        page.paragraph(&format!(
            "The {MAX_BARS} of {} with the most exposed time; all are in the JSON report.",
            report.ranks.len()
        ));
    }
    let height = shown.len() as f64 * BAR * 1.4;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"time per rank\">"
    );
    for (row, (rank, wall)) in shown.iter().enumerate() {
        let top = row as f64 * BAR * 1.4;
        let name = match rank.device {
            Some(device) => format!("rank {} gpu {device}", rank.rank),
            None => format!("rank {}", rank.rank),
        };
        let _ = write!(svg, "<text x=\"0\" y=\"{}\">{}</text>", top + BAR * 0.75, escape(&name));
        let parts = [
            ("compute", "compute alone", (wall.compute_ms - wall.overlap_ms).max(0.0)),
            ("overlap", "communication hidden by compute", wall.overlap_ms),
            ("exposed", "exposed communication", wall.exposed_ms),
            ("idle", "neither", wall.idle_ms),
        ];
        let mut left = LABEL;
        for (class, meaning, ms) in parts {
            let width = ms / longest * (WIDTH - LABEL);
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{left:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" height=\"{BAR}\">\
                 <title>{meaning}: {}</title></rect>",
                units::ms(ms)
            );
            left += width;
        }
    }
    svg.push_str("</svg>");
    page.markup(&svg);
}

/// Columns of the chart per step; beyond that neighbours share one, which shows their maximum.
const MAX_COLUMNS: usize = 300;

/// Exposed time per step, of the rank that lost most in it.
pub(super) fn steps(page: &mut Page, report: &Report) {
    let mut worst: BTreeMap<i64, (f64, u32)> = BTreeMap::new();
    for rank in &report.ranks {
        for step in &rank.steps {
            let entry = worst.entry(step.step).or_insert((step.exposed_ms, rank.rank));
            if step.exposed_ms > entry.0 {
                *entry = (step.exposed_ms, rank.rank);
            }
        }
    }
    let highest = worst.values().map(|(ms, _)| *ms).fold(0.0, f64::max);
    if worst.len() < 2 || highest <= 0.0 {
        return;
    }
    page.heading(2, "Exposed communication per step");
    page.paragraph(&format!(
        "Of the rank that lost most in the step; the highest is {}.",
        units::ms(highest)
    ));
    let steps: Vec<(i64, f64, u32)> = worst.into_iter().map(|(step, (ms, rank))| (step, ms, rank)).collect();
    let columns: Vec<(i64, f64, u32)> = steps
        .chunks(steps.len().div_ceil(MAX_COLUMNS))
        .filter_map(|group| group.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)))
        .collect();
    const HEIGHT: f64 = 160.0;
    let width = WIDTH / columns.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"exposed time per step\">",
        HEIGHT + 18.0
    );
    for (index, (step, ms, rank)) in columns.iter().enumerate() {
        let height = ms / highest * HEIGHT;
        let _ = write!(
            svg,
            "<rect class=\"exposed\" x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{height:.2}\">\
             <title>step {step}: {} on rank {rank}</title></rect>",
            index as f64 * width,
            HEIGHT - height,
            (width * 0.9).max(0.5),
            units::ms(*ms)
        );
    }
    let (first, last) = (steps[0].0, steps[steps.len() - 1].0);
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{HEIGHT}\" y2=\"{HEIGHT}\"/>\
         <text x=\"0\" y=\"{0}\">step {first}</text>\
         <text x=\"{WIDTH}\" y=\"{0}\" text-anchor=\"end\">step {last}</text></svg>",
        HEIGHT + 15.0
    );
    page.markup(&svg);
}
