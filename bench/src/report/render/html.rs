//! The report as one self-contained HTML page.

use super::plot::{self, Axis, Measured, Series};
use super::rows;
use crate::report::group::{Curve, Group};
use crate::report::reading::regions_of;
use crate::report::{BenchReport, OverlapFinding, TestsTable};
use commtrace_report::render::{HtmlPage as Page, escape};

/// Rows of a table; what is left out is said.
const MAX_ROWS: usize = 1024;

/// Renders `report` as an HTML page with plots: no script, no network, readable in light and dark. Texts from files are
/// escaped, and each plot's figures are in the table below it too.
pub fn html(report: &BenchReport) -> String {
    let mut page = Page::with_style("commtrace bench report", plot::STYLE);
    page.heading(1, "Latency, knee and bandwidth of collectives");
    page.paragraph(&super::headline(report));
    if report.groups.len() > 1 {
        page.paragraph("Groups differ in workload or hardware: they are not compared with each other.");
    }
    for (index, group) in report.groups.iter().enumerate() {
        collectives(&mut page, &format!("g{index}"), group, &report.nccl_tests);
    }
    for finding in &report.overlap {
        overlap(&mut page, finding);
    }
    for (index, table) in report.nccl_tests.iter().enumerate() {
        nccl_tests(&mut page, &format!("t{index}"), table);
    }
    if !report.failed.is_empty() {
        page.heading(2, "Failed candidates");
        page.list(&report.failed.iter().map(rows::failed).collect::<Vec<_>>());
    }
    if !report.left_out.is_empty() {
        page.heading(2, "Files that were not used");
        let left = report.left_out.iter().map(|left| format!("{}: {}", left.file, left.reason));
        page.list(&left.collect::<Vec<_>>());
    }
    page.finish()
}

fn collectives(page: &mut Page, id: &str, group: &Group, tables: &[TestsTable]) {
    page.heading(2, &format!("Collectives: {}", group.setting.title()));
    page.paragraph(&group.setting.hardware_line());
    page.paragraph(&format!("Evidence: {}.", group.setting.evidence()));
    reading(page, group);
    let labels = group.has_labels();
    for (index, name) in group.collectives().into_iter().enumerate() {
        page.heading(3, name);
        let curves: Vec<&Curve> = group.curves.iter().filter(|curve| curve.collective == name).collect();
        let mut series: Vec<Series<'_>> = curves.iter().map(|curve| of_curve(curve, labels)).collect();
        // Only tables that were found comparable.
        let beside = tables.iter().filter(|table| {
            table.collective.as_deref() == Some(name)
                && !table.beside.is_empty()
                && table.devices == group.setting.gpus
                && table.world_size == Some(group.setting.world_size)
        });
        series.extend(beside.map(of_table));
        plots(page, &format!("{id}c{index}"), name, &series);
        let points = curves.iter().flat_map(|curve| rows::points(curve, labels)).collect();
        page.table(&rows::POINT, points, MAX_ROWS);
        let mut said = Vec::new();
        for curve in curves {
            let label = curve.label(labels);
            said.push(format!("{label}: {}", regions_of(curve)));
            said.extend(rows::fit_line(&curve.shape).map(|fit| format!("{label}, fit: {fit}")));
            said.extend(curve.shape.notes.iter().map(|note| format!("{label}: {note}")));
        }
        page.list(&said);
    }
    if !group.comparisons.is_empty() {
        page.heading(3, "Algorithms");
        page.table(&rows::COMPARISON, group.comparisons.iter().map(rows::comparison).collect(), MAX_ROWS);
    }
    if !group.two_steps.is_empty() {
        page.heading(3, "all_reduce in two steps");
        let steps = group.two_steps.iter().map(|steps| rows::two_steps(group, steps)).collect();
        page.table(&rows::TWO_STEP, steps, MAX_ROWS);
        page.paragraph(rows::TWO_STEPS);
    }
}

/// Chapter 47's table, in which words stand left.
fn reading(page: &mut Page, group: &Group) {
    page.heading(3, "Reading");
    let mut markup =
        "<table class=\"reading\"><thead><tr><th>Observation</th><th>Found</th><th>Meaning and action</th>\
                      </tr></thead><tbody>"
            .to_owned();
    for reading in &group.reading {
        let found: Vec<String> = reading.found.iter().map(|found| escape(found)).collect();
        markup += &format!(
            "<tr><th scope=\"row\">{}<br><small>{}</small></th><td>{}</td><td>{}</td></tr>",
            escape(&reading.observation),
            escape(&reading.fields.join(", ")),
            found.join("<br>"),
            escape(&reading.action)
        );
    }
    page.markup(&(markup + "</tbody></table>"));
}

fn of_curve(curve: &Curve, labels: bool) -> Series<'_> {
    let points = curve.points.iter().map(|point| Measured {
        bytes: point.payload_bytes_per_rank as f64,
        ms: point.median_max_rank_ms,
        p95_ms: Some(point.p95_max_rank_ms),
        busbw_gbps: point.busbw_gbps,
    });
    Series { name: curve.label(labels), shape: Some(&curve.shape), points: points.collect(), hollow: false }
}

fn of_table(table: &TestsTable) -> Series<'_> {
    let points = table.points.iter().map(|point| Measured {
        bytes: point.payload_bytes_per_rank as f64,
        ms: point.mean_ms,
        p95_ms: None,
        busbw_gbps: point.busbw_gbps,
    });
    let name = format!("nccl-tests, mean ({})", table.file);
    Series { name, shape: table.shape.as_ref(), points: points.collect(), hollow: true }
}

fn plots(page: &mut Page, id: &str, collective: &str, series: &[Series<'_>]) {
    page.markup(&plot::legend(series));
    for (axis, name) in [(Axis::Time, "time"), (Axis::Busbw, "busbw")] {
        if let Some(svg) = plot::plot(&format!("{id}-{name}"), collective, axis, series) {
            page.markup(&format!("<figure>{svg}</figure>"));
        }
    }
}

fn overlap(page: &mut Page, finding: &OverlapFinding) {
    page.heading(2, "Overlap experiment");
    page.paragraph(&rows::overlap_title(finding));
    page.paragraph(&finding.setting.hardware_line());
    page.table(&rows::SCHEDULE, rows::schedules(finding), MAX_ROWS);
    let mut said = rows::overlap_conclusion(finding).to_vec();
    said.push(finding.caveat.clone());
    said.push(format!("Evidence: {}.", finding.setting.evidence()));
    page.list(&said);
}

fn nccl_tests(page: &mut Page, id: &str, table: &TestsTable) {
    page.heading(2, "nccl-tests");
    page.paragraph(&rows::tests_title(table));
    plots(page, id, table.collective.as_deref().unwrap_or("nccl-tests"), &[of_table(table)]);
    page.table(&rows::TEST, rows::tests(table), MAX_ROWS);
    let mut said: Vec<String> = table.shape.as_ref().and_then(rows::fit_line).into_iter().collect();
    said.extend(table.shape.iter().flat_map(|shape| shape.notes.iter().cloned()));
    if table.sizes_left_out > 0 {
        said.push(rows::left_out(table));
    }
    if let Some(reason) = &table.not_compared {
        said.push(format!("Not compared with the records: {reason}."));
    }
    page.list(&said);
    if !table.beside.is_empty() {
        page.table(&rows::BESIDE, table.beside.iter().map(rows::beside).collect(), MAX_ROWS);
        page.paragraph(rows::TESTS);
    }
}
