//! JSON.

use crate::analyze::Report;

/// The report as one indented JSON object, keys in their documented order, with a final newline.
///
/// [`Report::warnings`] are not in it. Every number that [`analyze`](crate::analyze::analyze) makes is
/// finite; in a report built by hand, NaN and infinities become `null`.
pub fn json(report: &Report) -> String {
    // Writing to memory fails only for map keys that are no strings, and all of ours are.
    let mut out = serde_json::to_string_pretty(report).unwrap_or_default();
    out.push('\n');
    out
}
