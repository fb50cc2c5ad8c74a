//! A report as one self-contained HTML page: no script, no network, readable in light and dark.

mod charts;
mod page;
mod routing;

use super::clocks;
use crate::advise::{HotspotEvent, explain, explain_durations};
use crate::analyze::{OpAcrossRanks, Report, Straggler, WaitFigures};
use crate::units;
use page::Page;

pub use page::{Page as HtmlPage, escape};

/// Rows of a table that has one per rank or input; what is left out is said.
const MAX_ROWS: usize = 256;

/// Renders `report` as an HTML page with charts of where each rank's time went and of exposed time per
/// step. Texts from the input are escaped.
///
/// ```
/// use commtrace_report::analyze::{AnalyzeOptions, analyze};
/// use commtrace_report::render::html;
/// use commtrace_report::timeline::Timeline;
/// let page = html(&analyze(&Timeline::default(), &AnalyzeOptions::default()));
/// assert!(page.starts_with("<!doctype html>"));
/// ```
pub fn html(report: &Report) -> String {
    let mut page = Page::new("commtrace report");
    page.heading(1, "Where communication time was exposed");
    page.paragraph(&super::headline(report));
    if let Some(facts) = super::text::nccl_facts(report) {
        page.heading(2, "What NCCL's tools tell");
        page.markup(&format!("<pre>{}</pre>", escape(&facts)));
    }
    out_of_step(&mut page, report);
    advice(&mut page, report);
    charts::ranks(&mut page, report);
    operations(&mut page, report);
    stragglers(&mut page, report);
    across_ranks(&mut page, report);
    routing::routing(&mut page, report);
    charts::steps(&mut page, report);
    sources(&mut page, report);
    page.finish()
}

fn out_of_step(page: &mut Page, report: &Report) {
    let Some(desync) = report.cross_rank.as_ref().map(|across| &across.desync).filter(|all| !all.is_empty())
    else {
        return;
    };
    page.heading(2, "Out of step");
    page.paragraph("Causes first; `commtrace doctor` says more.");
    let shown: Vec<String> = desync.iter().take(MAX_ROWS).map(super::text::desync_sentence).collect();
    page.list(&shown);
    if desync.len() > MAX_ROWS {
        page.paragraph(&format!("{} more are not shown.", desync.len() - MAX_ROWS));
    }
}

fn advice(page: &mut Page, report: &Report) {
    page.heading(2, "What to try");
    let target = report.mitigation.target.as_ref().map(|op| format!(" for {op}")).unwrap_or_default();
    page.facts(&[
        ("Decision", format!("{}: {}", report.followup.decision, report.followup.reason)),
        ("Strategy", format!("{}{target}", report.mitigation.strategy)),
        ("Measure next", report.mitigation.next_measurements.join(", ")),
    ]);
    let hotspots = &report.hotspots;
    let mut explanation = Some(match (hotspots.priority.is_none(), hotspots.num_events) {
        (true, 1..) => explain_durations(),
        _ => explain(report.mitigation.strategy),
    });
    while let Some(pattern) = explanation {
        page.heading(3, pattern.mode);
        page.paragraph(pattern.evidence);
        page.list(pattern.actions);
        page.facts(&[
            ("Measure again", pattern.remeasure.join(", ")),
            ("May cost", pattern.costs.to_owned()),
        ]);
        explanation = pattern.related;
    }
}

fn operations(page: &mut Page, report: &Report) {
    if report.hotspot_events.is_empty() {
        return;
    }
    page.heading(2, "Operations");
    page.paragraph("Sums over calls, each of the rank on which the operation is exposed most.");
    let columns = ["op", "calls", "time", "exposed", "overlap", "bytes", "imbalance", "rank"];
    let mut events: Vec<_> = report.hotspot_events.iter().collect();
    let cost = |event: &HotspotEvent| event.exposed_comm_ms.unwrap_or(event.total_comm_ms);
    events.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    let rows = events.into_iter().map(|event| {
        let unknown = || "unknown".to_owned();
        vec![
            event.collective.clone(),
            event.sync_count.to_string(),
            units::ms(event.total_comm_ms),
            units::known(event.exposed_comm_ms, units::ms),
            units::known(event.overlap_ratio, units::percent),
            event.payload_bytes.map_or_else(unknown, units::bytes),
            event.rank_imbalance_ratio.map_or_else(unknown, units::percent),
            event.rank.map_or_else(String::new, |rank| rank.to_string()),
        ]
    });
    page.table(&columns, rows.collect(), MAX_ROWS);
}

fn stragglers(page: &mut Page, report: &Report) {
    let Some(across) = report.cross_rank.as_ref().filter(|across| !across.stragglers.is_empty()) else {
        return;
    };
    page.heading(2, "Stragglers");
    page.paragraph("Ranks that make others wait, clearly more than chance explains; worst first.");
    page.list(&across.stragglers.iter().map(Straggler::in_words).collect::<Vec<_>>());
    let columns = [
        "rank",
        "arrived last",
        "collectives",
        "caused wait",
        "own wait",
        "late by",
        "span",
        "when",
        "steps",
    ];
    let rows = across.stragglers.iter().map(|one| {
        vec![
            one.rank.to_string(),
            one.arrived_last.to_string(),
            one.collectives.to_string(),
            units::ms(one.caused_wait_ms),
            units::ms(one.suffered_wait_ms),
            units::ms(one.late_ms),
            one.span.clone().unwrap_or_else(|| "outside recorded spans".to_owned()),
            one.pattern.as_str().replace('_', " "),
            format!("{} of {}", one.late_steps, one.steps),
        ]
    });
    page.table(&columns, rows.collect(), MAX_ROWS);
}

fn across_ranks(page: &mut Page, report: &Report) {
    let Some(across) = report.cross_rank.as_ref().filter(|across| !across.ops.is_empty()) else { return };
    page.heading(2, "Across ranks");
    page.paragraph(
        "Sums over matched collectives of the mean over ranks: waiting for the last rank, and moving bytes. \
         Imbalance is the share of the collectives' time that is lost because the same ranks come late again \
         and again.",
    );
    let columns =
        ["op", "matched", "wait", "transfer", "exposed wait", "exposed transfer", "imbalance", "verdict"];
    let rows = across.ops.iter().map(|op| {
        vec![
            op.collective.clone(),
            op.matched.to_string(),
            units::ms(op.wait_ms),
            units::ms(op.transfer_ms),
            units::ms(op.exposed_wait_ms),
            units::ms(op.exposed_transfer_ms),
            units::percent(op.rank_imbalance_ratio),
            op.verdict.as_str().to_owned(),
        ]
    });
    page.table(&columns, rows.collect(), MAX_ROWS);
    page.paragraph(&clocks::sentence(across));
    if clocks::differ(across) {
        page.table(&clocks::COLUMNS, clocks::rows(across), MAX_ROWS);
    }
    let hotspot = report.hotspots.priority.as_ref().map(|priority| priority.collective.as_str());
    if let Some(op) = across.ops.iter().find(|op| Some(op.collective.as_str()) == hotspot) {
        broken_down(page, op);
    }
}

/// The hotspot by communicator and payload.
fn broken_down(page: &mut Page, op: &OpAcrossRanks) {
    let columns = |first| {
        [first, "matched", "wait", "transfer", "exposed wait", "exposed transfer", "busbw GB/s", "verdict"]
    };
    let row = |name: String, figures: &WaitFigures| {
        vec![
            name,
            figures.matched.to_string(),
            units::ms(figures.wait_ms),
            units::ms(figures.transfer_ms),
            units::ms(figures.exposed_wait_ms),
            units::ms(figures.exposed_transfer_ms),
            units::known(figures.bandwidth.busbw_gbs, units::gbs),
            figures.verdict.as_str().to_owned(),
        ]
    };
    page.heading(3, &format!("{} by payload", op.collective));
    let rows = op.by_size.iter().map(|size| row(size.size.clone(), &size.figures));
    page.table(&columns("payload"), rows.collect(), MAX_ROWS);
    if op.by_communicator.len() > 1 {
        page.heading(3, &format!("{} by communicator", op.collective));
        let rows = op.by_communicator.iter().map(|one| row(one.comm.clone(), &one.figures));
        page.table(&columns("communicator"), rows.collect(), MAX_ROWS);
    }
}

fn sources(page: &mut Page, report: &Report) {
    if !report.warnings.is_empty() {
        page.heading(2, "Warnings");
        page.list(&report.warnings);
    }
    if report.inputs.is_empty() {
        return;
    }
    page.heading(2, "Inputs");
    let counts = |counts: &indexmap::IndexMap<String, u64>| {
        counts.iter().map(|(kind, count)| format!("{kind}: {count}")).collect::<Vec<_>>().join(", ")
    };
    let rows = report.inputs.iter().map(|input| {
        vec![
            input.path.clone(),
            input.format.clone(),
            input.events.to_string(),
            counts(&input.skipped),
            counts(&input.anomalies),
        ]
    });
    page.table(&["path", "format", "events", "skipped", "anomalies"], rows.collect(), MAX_ROWS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::{AnalyzeOptions, analyze};
    use crate::timeline::{Comm, Compute, Step, Timeline, Track};

    fn report() -> Report {
        let mut timeline = Timeline::default();
        let forward = timeline.names.intern("forward");
        let op = timeline.names.intern("<script>alert('&')</script>");
        for rank in 0..3 {
            let mut track = Track::new(rank, None);
            for step in 0..4_i64 {
                let start_ns = step * 10_000_000;
                let at = |ms: i64| start_ns + ms * 1_000_000;
                track.steps.push(Step { step, start_ns, end_ns: at(10) });
                let step = Some(step);
                track.compute.push(Compute { name: forward, start_ns, end_ns: at(5), step });
                track.comm.push(Comm { step, ..Comm::new(op, at(4), at(7 + i64::from(rank))) });
            }
            timeline.tracks.push(track);
        }
        analyze(&timeline, &AnalyzeOptions::default())
    }

    #[test]
    fn texts_of_the_input_cannot_become_markup() {
        let page = html(&report());
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"));
    }

    #[test]
    fn bars_are_as_long_as_the_time_they_stand_for() {
        let report = report();
        let page = html(&report);
        let widths: f64 = page
            .split("<rect ")
            .filter(|rect| rect.contains("height=\"18\""))
            .map(|rect| rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap())
            .map(|width| width.parse::<f64>().unwrap())
            .sum();
        let span: f64 = report.ranks.iter().filter_map(|rank| rank.wall).map(|wall| wall.span_ms).sum();
        let longest =
            report.ranks.iter().filter_map(|rank| rank.wall).map(|wall| wall.span_ms).fold(0.0, f64::max);
        assert!((widths - span / longest * 780.0).abs() < 0.1, "{widths}");
        // Rank 2 lost most: 4 ms of every step.
        assert!(page.contains("step 3: 4.00 ms on rank 2"), "{page}");
    }

    #[test]
    fn facts_of_nccl_are_on_the_page_and_escaped() {
        use crate::nccl::{LogWarning, NcclLog};
        let warning = LogWarning { message: "port <b>down</b>".into(), count: 1, ..LogWarning::default() };
        let log = NcclLog { messages: 1, warnings: vec![warning], warning_count: 1, ..NcclLog::default() };
        let input = crate::timeline::Input { nccl_log: Some(Box::new(log)), ..Default::default() };
        let timeline = Timeline { inputs: vec![input], ..Timeline::default() };
        let page = html(&analyze(&timeline, &AnalyzeOptions::default()));
        assert!(page.contains("port &lt;b&gt;down&lt;/b&gt;"), "{page}");
    }

    #[test]
    fn an_empty_report_and_a_large_one_are_pages_too() {
        assert!(
            html(&analyze(&Timeline::default(), &AnalyzeOptions::default())).ends_with("</body></html>\n")
        );
        let mut large = report();
        let rank = large.ranks[0].clone();
        large.ranks =
            (0..1000).map(|number| crate::analyze::RankReport { rank: number, ..rank.clone() }).collect();
        let page = html(&large);
        assert!(page.contains("The 64 of 1000 with the most exposed time"));
        assert!(page.len() < 200_000, "{}", page.len());
    }
}
