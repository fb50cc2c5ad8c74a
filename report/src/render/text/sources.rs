//! Where the figures come from and what is missing in them.

use super::layout::{Column, Page, counted};
use crate::analyze::Report;
use crate::units;
use indexmap::IndexMap;

pub(super) fn untimed(page: &mut Page, report: &Report) {
    let ranks: Vec<_> = report.ranks.iter().filter(|rank| rank.untimed.count > 0).collect();
    if ranks.is_empty() {
        return;
    }
    page.heading("Communication without a time (not in the figures above)");
    let columns = [
        Column::Figures("rank"),
        Column::Figures("records"),
        Column::Figures("bytes"),
        Column::Words("reasons"),
    ];
    let rows = ranks
        .into_iter()
        .map(|rank| {
            vec![
                rank.rank.to_string(),
                rank.untimed.count.to_string(),
                units::bytes(rank.untimed.bytes),
                tally(&rank.untimed.reasons),
            ]
        })
        .collect();
    page.table(&columns, rows, "ranks");
}

pub(super) fn inputs(page: &mut Page, report: &Report) {
    if report.inputs.is_empty() {
        return;
    }
    page.heading("Inputs");
    let odd = report.inputs.iter().any(|input| !input.skipped.is_empty() || !input.anomalies.is_empty());
    let mut columns = vec![Column::Words("path"), Column::Words("format"), Column::Figures("events")];
    if odd {
        columns.extend([Column::Words("skipped"), Column::Words("anomalies")]);
    }
    // If not all are shown, those with something missing are.
    let mut inputs: Vec<_> = report.inputs.iter().collect();
    if inputs.len() > page.max_rows {
        inputs.sort_by_key(|input| input.skipped.is_empty() && input.anomalies.is_empty());
    }
    let rows = inputs
        .into_iter()
        .map(|input| {
            let mut row = vec![input.path.clone(), input.format.clone(), input.events.to_string()];
            if odd {
                row.extend([tally(&input.skipped), tally(&input.anomalies)]);
            }
            row
        })
        .collect();
    page.table(&columns, rows, "inputs");
}

/// What rules over names made of the events of all inputs: a name pattern misclassifies, so it can be
/// checked.
pub(super) fn rules(page: &mut Page, report: &Report) {
    let mut sums: IndexMap<(&str, &str, &str), (u64, f64)> = IndexMap::new();
    for rule in report.inputs.iter().flat_map(|input| &input.rules) {
        let key = (rule.rule.as_str(), rule.kind.as_str(), rule.op.as_deref().unwrap_or_default());
        let (events, time_ms) = sums.entry(key).or_default();
        *events += rule.events;
        *time_ms += rule.time_ms;
    }
    if sums.is_empty() {
        return;
    }
    sums.sort_by(|_, a, _, b| b.1.total_cmp(&a.1));
    page.heading("What events were taken for, by their names");
    let columns = [
        Column::Words("rule"),
        Column::Words("taken for"),
        Column::Words("op"),
        Column::Figures("events"),
        Column::Figures("time"),
    ];
    let rows = sums
        .into_iter()
        .map(|((rule, kind, op), (events, time_ms))| {
            vec![rule.to_owned(), kind.to_owned(), op.to_owned(), events.to_string(), units::ms(time_ms)]
        })
        .collect();
    page.table(&columns, rows, "rules with less time");
}

pub(super) fn warnings(page: &mut Page, report: &Report) {
    if report.warnings.is_empty() {
        return;
    }
    page.heading(&counted(report.warnings.len() as u64, "warning", "warnings"));
    for warning in &report.warnings {
        page.bullet(warning);
    }
}

/// `3 captured, 1 lost`.
fn tally(counts: &IndexMap<String, u64>) -> String {
    let parts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    parts.join(", ")
}
