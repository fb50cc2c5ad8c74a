//! The record file: one Arrow IPC stream per rank and process.
//!
//! This module is the format's single source: the columns, their meaning and the version stand here,
//! the writer beside them in `writer`, the reader in [`crate::read`]. If a column is added, removed or
//! changes its meaning, raise [`SCHEMA_VERSION`].
//!
//! A file is append only. Schema metadata holds what is known when it is created ([`Header`]); what is
//! learned later is a row of kind [`RowKind::Meta`]. A file without a final `end` row was not closed
//! regularly; every batch before the cut is still readable.

mod columns;
mod exchange;
mod header;
mod row;
mod schema;
mod writer;

pub use exchange::{MAX_PEERS, fold_peers};
pub use header::{Header, HeaderError, file_name};
pub use row::{Row, RowKind, meta};
pub(crate) use schema::COLUMNS_OF_VERSION_1;
pub use schema::{SCHEMA_VERSION, schema};
pub use writer::{RecordError, RecordWriter};
