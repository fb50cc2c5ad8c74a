//! The JSON Schema of what [`render::json`](super::render::json) writes.

use super::BenchReport;
use schemars::generate::SchemaSettings;

/// The schema of a report's JSON (JSON Schema, draft 2020-12), generated from [`BenchReport`] and the types in it, with
/// their documentation as descriptions; indented, with a final newline.
pub fn report_schema() -> String {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let schema = generator.into_root_schema_for::<BenchReport>();
    // Writing to memory fails only for map keys that are no strings, and a schema's are.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
