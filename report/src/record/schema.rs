//! The columns of a record file.

use arrow_schema::{DataType, Field, FieldRef, Schema};
use std::sync::Arc;

/// Version of the columns' names, types and meaning. If you change any of them, raise this.
///
/// Version 2 added the last four columns, version 1 ends with `value`.
pub const SCHEMA_VERSION: u32 = 2;

/// How many columns there were in version 1.
pub(crate) const COLUMNS_OF_VERSION_1: usize = 19;

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
        Field::new("phase", text(DataType::Int16), true),
        Field::new("token_bytes", DataType::UInt64, true),
        Field::new("sent_bytes", per_peer(), true),
        Field::new("received_bytes", per_peer(), true),
    ])
}

// Signed keys, as the Arrow format recommends for the sake of readers without unsigned integers.
fn text(key: DataType) -> DataType {
    DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8))
}

fn per_peer() -> DataType {
    DataType::List(per_peer_item())
}

/// The item of the columns that have a number for each rank of the communicator.
pub(super) fn per_peer_item() -> FieldRef {
    Arc::new(Field::new("item", DataType::UInt64, false))
}
