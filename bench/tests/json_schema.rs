//! The JSON Schema of the record: the file in the repository is that of the types, and it describes every key.

use commtrace_bench::schema::record_schema;
use serde_json::Value;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/bench.schema.json");

#[test]
fn the_schema_in_the_repository_is_that_of_the_types() {
    let generated = record_schema();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(FILE, &generated).expect("the folder of schemas can be written");
    }
    let committed = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        committed == generated,
        "schemas/bench.schema.json is not that of the types any more. Write it again with:\n\
         UPDATE_EXPECT=1 cargo test -p commtrace-bench --all-features --test json_schema"
    );
}

/// Every key is documented: its description is the type's documentation.
#[test]
fn every_key_has_a_description() {
    let schema: Value = serde_json::from_str(&record_schema()).unwrap();
    let types = schema["$defs"].as_object().expect("types are defined").iter();
    let types = types.map(|(name, object)| (name.as_str(), object)).chain([("Record", &schema)]);
    let without: Vec<String> = types
        .flat_map(|(name, object)| {
            let properties = object["properties"].as_object().into_iter().flatten();
            properties
                .filter(|(_, property)| property.get("description").is_none())
                .map(move |(key, _)| format!("{name}.{key}"))
        })
        .collect();
    assert!(without.is_empty(), "without a description: {without:?}");
}
