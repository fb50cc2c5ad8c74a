//! The report for people on a terminal.

use super::rows;
use crate::report::group::Group;
use crate::report::reading::regions_of;
use crate::report::{BenchReport, OverlapFinding, TestsTable};
use commtrace_report::render::{Column, TextOptions, TextPage as Page};

/// Rows of a table: as many as any list of payloads has.
const MAX_ROWS: usize = 256;

/// The report as text, in lines of at most 100 columns.
pub fn text(report: &BenchReport) -> String {
    let mut page = Page::new(&TextOptions { max_rows: MAX_ROWS, ..TextOptions::default() });
    headline(&mut page, report);
    for group in &report.groups {
        collectives(&mut page, group);
    }
    for finding in &report.overlap {
        overlap(&mut page, finding);
    }
    for table in &report.nccl_tests {
        nccl_tests(&mut page, table);
    }
    if !report.failed.is_empty() {
        page.heading("Failed candidates");
        report.failed.iter().for_each(|failed| page.bullet(&rows::failed(failed)));
    }
    if !report.left_out.is_empty() {
        page.heading("Files that were not used");
        report.left_out.iter().for_each(|left| page.bullet(&format!("{}: {}", left.file, left.reason)));
    }
    page.finish()
}

fn headline(page: &mut Page, report: &BenchReport) {
    page.line(&super::headline(report));
    if report.groups.len() > 1 {
        page.note("Groups differ in workload or hardware: they are not compared with each other.");
    }
}

fn columns<const N: usize>(names: [&'static str; N], words: &[usize]) -> Vec<Column> {
    let column = |(at, name)| if words.contains(&at) { Column::Words(name) } else { Column::Figures(name) };
    names.into_iter().enumerate().map(column).collect()
}

fn collectives(page: &mut Page, group: &Group) {
    page.heading(&format!("Collectives: {}", group.setting.title()));
    page.note(&group.setting.hardware_line());
    let labels = group.has_labels();
    for name in group.collectives() {
        page.heading(name);
        let curves: Vec<_> = group.curves.iter().filter(|curve| curve.collective == name).collect();
        let points = curves.iter().flat_map(|curve| rows::points(curve, labels)).collect();
        page.table(&columns(rows::POINT, &[0, 1, 8]), points, "payloads");
        for curve in curves {
            let label = curve.label(labels);
            page.bullet(&format!("{label}: {}", regions_of(curve)));
            if let Some(fit) = rows::fit_line(&curve.shape) {
                page.bullet(&format!("{label}, fit: {fit}"));
            }
            for note in &curve.shape.notes {
                page.bullet(&format!("{label}: {note}"));
            }
        }
    }
    if !group.comparisons.is_empty() {
        page.heading("Algorithms");
        page.table(
            &columns(rows::COMPARISON, &[0, 2, 3]),
            group.comparisons.iter().map(rows::comparison).collect(),
            "comparisons",
        );
    }
    if !group.two_steps.is_empty() {
        page.heading("all_reduce in two steps");
        let steps = group.two_steps.iter().map(|steps| rows::two_steps(group, steps)).collect();
        page.table(&columns(rows::TWO_STEP, &[0]), steps, "payloads");
        page.note(rows::TWO_STEPS);
    }
    page.heading("Reading");
    for reading in &group.reading {
        page.note(&format!("{} ({})", reading.observation, reading.fields.join(", ")));
        reading.found.iter().for_each(|found| page.bullet(found));
        page.bullet(&reading.action);
    }
}

fn overlap(page: &mut Page, finding: &OverlapFinding) {
    page.heading("Overlap experiment");
    page.note(&rows::overlap_title(finding));
    page.note(&finding.setting.hardware_line());
    page.table(&columns(rows::SCHEDULE, &[0, 3]), rows::schedules(finding), "schedules");
    rows::overlap_conclusion(finding).iter().for_each(|line| page.bullet(line));
    page.bullet(&finding.caveat);
    page.bullet(&format!("Evidence: {}.", finding.setting.evidence()));
}

fn nccl_tests(page: &mut Page, table: &TestsTable) {
    page.heading("nccl-tests");
    page.note(&rows::tests_title(table));
    page.table(&columns(rows::TEST, &[4]), rows::tests(table), "sizes");
    if let Some(fit) = table.shape.as_ref().and_then(rows::fit_line) {
        page.bullet(&format!("fit: {fit}"));
    }
    for note in table.shape.iter().flat_map(|shape| &shape.notes) {
        page.bullet(note);
    }
    if table.sizes_left_out > 0 {
        page.bullet(&rows::left_out(table));
    }
    if let Some(reason) = &table.not_compared {
        page.bullet(&format!("Not compared with the records: {reason}."));
    }
    if !table.beside.is_empty() {
        let beside = table.beside.iter().map(rows::beside).collect();
        page.table(&columns(rows::BESIDE, &[0, 1]), beside, "payloads");
        page.note(rows::TESTS);
    }
}
