//! The columns of a record file.

use arrow_schema::{DataType, Field, Schema};

/// Version of the columns' names, types and meaning. If you change any of them, raise this.
pub const SCHEMA_VERSION: u32 = 1;

/// The Arrow schema, without the header's metadata.
///
/// One column per field of [`Row`](super::Row), under the same name. Texts are dictionary-encoded.
/// `kind` and `name` are never null.
pub fn schema() -> Schema {
    Schema::new(vec![
        Field::new("kind", text(DataType::Int8), false),
        Field::new("name", text(DataType::Int16), false),
        Field::new("label", text(DataType::Int16), true),
        Field::new("start_ns", DataType::Int64, true),
        Field::new("dur_ns", DataType::Int64, true),
        Field::new("bytes", DataType::UInt64, true),
        Field::new("comm", text(DataType::Int16), true),
        Field::new("comm_size", DataType::UInt32, true),
        Field::new("comm_rank", DataType::UInt32, true),
        Field::new("seq", DataType::UInt64, true),
        Field::new("peer", DataType::UInt32, true),
        Field::new("dtype", text(DataType::Int16), true),
        Field::new("stream", text(DataType::Int16), true),
        Field::new("device", DataType::UInt32, true),
        Field::new("thread", DataType::UInt32, true),
        Field::new("step", DataType::Int64, true),
        Field::new("span", DataType::UInt64, true),
        Field::new("untimed", text(DataType::Int16), true),
        Field::new("value", DataType::Int64, true),
    ])
}

// Signed keys, as the Arrow format recommends for the sake of readers without unsigned integers.
fn text(key: DataType) -> DataType {
    DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8))
}
