//! The report as text and HTML for people and as JSON for programs.

mod html;
mod plot;
mod rows;
mod scale;
mod text;

pub use html::html;
pub use text::text;

use super::BenchReport;
use commtrace_report::render::counted;

/// The report as one indented JSON object, with a final newline. Every number in it is finite.
pub fn json(report: &BenchReport) -> String {
    // Writing to memory fails only for map keys that are no strings, and there are none.
    let mut out = serde_json::to_string_pretty(report).unwrap_or_default();
    out.push('\n');
    out
}

/// What was found, in numbers.
fn headline(report: &BenchReport) -> String {
    let mut files: Vec<&str> =
        report.groups.iter().flat_map(|group| &group.curves).map(|curve| curve.file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    let mut parts = vec![
        format!(
            "{} of collectives in {}",
            counted(files.len() as u64, "record", "records"),
            counted(report.groups.len() as u64, "group", "groups")
        ),
        format!("{} of the overlap experiment", report.overlap.len()),
    ];
    let others = [
        (report.failed.len(), "failed candidate", "failed candidates"),
        (report.nccl_tests.len(), "table of nccl-tests", "tables of nccl-tests"),
        (report.left_out.len(), "file not used", "files not used"),
    ];
    for (count, one, many) in others {
        if count > 0 {
            parts.push(counted(count as u64, one, many));
        }
    }
    format!("commtrace bench: {}.", parts.join(", "))
}
