//! Steps, condensed to the slowest few and the mean.

use super::layout::{Column, Page};
use crate::analyze::{Report, StepFigures};
use crate::units;
use std::collections::BTreeMap;

/// Steps that are listed.
const SLOWEST: usize = 5;

pub(super) fn steps(page: &mut Page, report: &Report) {
    // A step takes as long as its slowest rank.
    let mut slowest: BTreeMap<i64, (u32, &StepFigures)> = BTreeMap::new();
    for rank in &report.ranks {
        for step in &rank.steps {
            let entry = slowest.entry(step.step).or_insert((rank.rank, step));
            if step.span_ms > entry.1.span_ms {
                *entry = (rank.rank, step);
            }
        }
    }
    if slowest.is_empty() {
        return;
    }
    let count = slowest.len();
    let mut steps: Vec<(u32, &StepFigures)> = slowest.into_values().collect();
    let mean = |figure: fn(&StepFigures) -> f64| {
        units::ms(steps.iter().map(|(_, step)| figure(step)).sum::<f64>() / count as f64)
    };
    let mean_row = vec![
        "mean".to_string(),
        String::new(),
        mean(|step| step.span_ms),
        mean(|step| step.compute_ms),
        mean(|step| step.comm_ms),
        mean(|step| step.overlap_ms),
        mean(|step| step.exposed_ms),
    ];
    steps.sort_by(|a, b| b.1.span_ms.total_cmp(&a.1.span_ms));
    let rows = steps
        .iter()
        .take(SLOWEST)
        .map(|(rank, step)| {
            vec![
                step.step.to_string(),
                rank.to_string(),
                units::ms(step.span_ms),
                units::ms(step.compute_ms),
                units::ms(step.comm_ms),
                units::ms(step.overlap_ms),
                units::ms(step.exposed_ms),
            ]
        })
        .chain([mean_row])
        .collect();
    page.heading(&format!(
        "Steps (the slowest {} of {count}, and the mean of all; each of its slowest rank)",
        SLOWEST.min(count)
    ));
    let columns = [
        Column::Figures("step"),
        Column::Figures("rank"),
        Column::Figures("span"),
        Column::Figures("compute"),
        Column::Figures("comm"),
        Column::Figures("overlap"),
        Column::Figures("exposed"),
    ];
    page.table_in_full(&columns, rows);
}
