//! JSON.

use crate::analyze::Report;
use crate::analyze::desync::Diagnosis;
use serde::Serialize;

/// The report as one indented JSON object, keys in their documented order, with a final newline.
///
/// [`Report::warnings`] are not in it. Every number that [`analyze`](crate::analyze::analyze) makes is
/// finite; in a report built by hand, NaN and infinities become `null`.
pub fn json(report: &Report) -> String {
    pretty(report)
}

/// The state of a run as one indented JSON object, with a final newline. [`Diagnosis::warnings`] are not in
/// it.
pub fn diagnosis_json(diagnosis: &Diagnosis) -> String {
    pretty(diagnosis)
}

fn pretty(value: &impl Serialize) -> String {
    // Writing to memory fails only for map keys that are no strings, and all of ours are.
    let mut out = serde_json::to_string_pretty(value).unwrap_or_default();
    out.push('\n');
    out
}
