//! The JSON Schema of the [`Record`].

use crate::record::Record;
use schemars::generate::SchemaSettings;

/// The schema of a record (JSON Schema, draft 2020-12), generated from [`Record`] and the types in it, with their
/// documentation as descriptions; indented, with a final newline.
pub fn record_schema() -> String {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let schema = generator.into_root_schema_for::<Record>();
    // Writing to memory fails only for map keys that are no strings, and a schema's are.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
