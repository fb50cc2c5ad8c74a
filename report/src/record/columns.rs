//! Rows to the columns of one record batch.

use super::schema::per_peer_item;
use super::{Row, RowKind};
use arrow_array::builder::{
    ArrayBuilder, Int8Builder, Int16Builder, Int64Builder, ListBuilder, StringBuilder, UInt32Builder,
    UInt64Builder,
};
use arrow_array::{ArrayRef, DictionaryArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, SchemaRef};
use std::collections::HashMap;
use std::sync::Arc;

/// Most rows of one batch.
pub(super) const MAX_ROWS: usize = 65_536;

/// Most numbers per rank of the communicator in one batch: 8 MiB.
const MAX_PEER_NUMBERS: usize = 1 << 20;

/// A text column keeps its dictionary from batch to batch, so that it is written only when something
/// was added, up to this many entries. A column with more distinct texts than that (a label per
/// request, say) starts over with every batch: it costs what the batch uses and no more memory.
const KEPT_ENTRIES: usize = 1024;

/// Most entries that a dictionary with 16-bit keys can have.
const MAX_ENTRIES: usize = i16::MAX as usize;

/// The row does not fit into this batch: a dictionary or the batch is full.
#[derive(Debug)]
pub(super) struct Full;

/// The columns of the batch that is being filled.
#[derive(Debug)]
pub(super) struct Columns {
    rows: usize,
    kind: Int8Builder,
    kind_values: ArrayRef,
    name: TextColumn,
    label: TextColumn,
    start_ns: Int64Builder,
    dur_ns: Int64Builder,
    bytes: UInt64Builder,
    comm: TextColumn,
    comm_size: UInt32Builder,
    comm_rank: UInt32Builder,
    seq: UInt64Builder,
    peer: UInt32Builder,
    dtype: TextColumn,
    stream: TextColumn,
    device: UInt32Builder,
    thread: UInt32Builder,
    step: Int64Builder,
    span: UInt64Builder,
    untimed: TextColumn,
    value: Int64Builder,
    phase: TextColumn,
    token_bytes: UInt64Builder,
    sent_bytes: ListBuilder<UInt64Builder>,
    received_bytes: ListBuilder<UInt64Builder>,
}

impl Columns {
    pub(super) fn new() -> Self {
        Self {
            rows: 0,
            kind: Int8Builder::new(),
            kind_values: Arc::new(StringArray::from_iter_values(RowKind::ALL.map(RowKind::as_str))),
            name: TextColumn::new(),
            label: TextColumn::new(),
            start_ns: Int64Builder::new(),
            dur_ns: Int64Builder::new(),
            bytes: UInt64Builder::new(),
            comm: TextColumn::new(),
            comm_size: UInt32Builder::new(),
            comm_rank: UInt32Builder::new(),
            seq: UInt64Builder::new(),
            peer: UInt32Builder::new(),
            dtype: TextColumn::new(),
            stream: TextColumn::new(),
            device: UInt32Builder::new(),
            thread: UInt32Builder::new(),
            step: Int64Builder::new(),
            span: UInt64Builder::new(),
            untimed: TextColumn::new(),
            value: Int64Builder::new(),
            phase: TextColumn::new(),
            token_bytes: UInt64Builder::new(),
            sent_bytes: per_peer(),
            received_bytes: per_peer(),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds `row`, or nothing of it.
    pub(super) fn push(&mut self, row: &Row<'_>) -> Result<(), Full> {
        let peer_numbers = self.sent_bytes.values_ref().len() + self.received_bytes.values_ref().len();
        if self.rows >= MAX_ROWS || peer_numbers >= MAX_PEER_NUMBERS {
            return Err(Full);
        }
        // All keys first: a full dictionary must leave every column at the same length.
        let name = self.name.key(Some(row.name))?;
        let label = self.label.key(row.label)?;
        let comm = self.comm.key(row.comm)?;
        let dtype = self.dtype.key(row.dtype)?;
        let stream = self.stream.key(row.stream)?;
        let untimed = self.untimed.key(row.untimed)?;
        let phase = self.phase.key(row.phase)?;
        self.kind.append_value(row.kind.code());
        self.name.keys.append_option(name);
        self.label.keys.append_option(label);
        self.start_ns.append_option(row.start_ns);
        self.dur_ns.append_option(row.dur_ns);
        self.bytes.append_option(row.bytes);
        self.comm.keys.append_option(comm);
        self.comm_size.append_option(row.comm_size);
        self.comm_rank.append_option(row.comm_rank);
        self.seq.append_option(row.seq);
        self.peer.append_option(row.peer);
        self.dtype.keys.append_option(dtype);
        self.stream.keys.append_option(stream);
        self.device.append_option(row.device);
        self.thread.append_option(row.thread);
        self.step.append_option(row.step);
        self.span.append_option(row.span);
        self.untimed.keys.append_option(untimed);
        self.value.append_option(row.value);
        self.phase.keys.append_option(phase);
        self.token_bytes.append_option(row.token_bytes);
        append(&mut self.sent_bytes, row.sent_bytes);
        append(&mut self.received_bytes, row.received_bytes);
        self.rows += 1;
        Ok(())
    }

    /// The rows so far as a batch of `schema`; the columns are empty afterwards.
    pub(super) fn take(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        self.rows = 0;
        let kind = DictionaryArray::try_new(self.kind.finish(), Arc::clone(&self.kind_values))?;
        RecordBatch::try_new(
            Arc::clone(schema),
            vec![
                Arc::new(kind),
                self.name.take()?,
                self.label.take()?,
                Arc::new(self.start_ns.finish()),
                Arc::new(self.dur_ns.finish()),
                Arc::new(self.bytes.finish()),
                self.comm.take()?,
                Arc::new(self.comm_size.finish()),
                Arc::new(self.comm_rank.finish()),
                Arc::new(self.seq.finish()),
                Arc::new(self.peer.finish()),
                self.dtype.take()?,
                self.stream.take()?,
                Arc::new(self.device.finish()),
                Arc::new(self.thread.finish()),
                Arc::new(self.step.finish()),
                Arc::new(self.span.finish()),
                self.untimed.take()?,
                Arc::new(self.value.finish()),
                self.phase.take()?,
                Arc::new(self.token_bytes.finish()),
                Arc::new(self.sent_bytes.finish()),
                Arc::new(self.received_bytes.finish()),
            ],
        )
    }
}

fn per_peer() -> ListBuilder<UInt64Builder> {
    ListBuilder::new(UInt64Builder::new()).with_field(per_peer_item())
}

fn append(column: &mut ListBuilder<UInt64Builder>, bytes: Option<&[u64]>) {
    column.values().append_slice(bytes.unwrap_or_default());
    column.append(bytes.is_some());
}

/// A dictionary-encoded column.
#[derive(Debug)]
struct TextColumn {
    keys: Int16Builder,
    texts: Vec<Arc<str>>,
    index: HashMap<Arc<str>, i16>,
    last: usize,
    /// The dictionary as it was last written; `None` since a text was added.
    values: Option<ArrayRef>,
}

impl TextColumn {
    fn new() -> Self {
        Self { keys: Int16Builder::new(), texts: Vec::new(), index: HashMap::new(), last: 0, values: None }
    }

    fn key(&mut self, text: Option<&str>) -> Result<Option<i16>, Full> {
        let Some(text) = text else { return Ok(None) };
        if self.texts.get(self.last).is_some_and(|last| **last == *text) {
            return Ok(Some(self.last as i16));
        }
        let key = match self.index.get(text) {
            Some(&key) => key,
            None if self.texts.len() >= MAX_ENTRIES => return Err(Full),
            None => {
                let key = self.texts.len() as i16;
                let text: Arc<str> = text.into();
                self.texts.push(Arc::clone(&text));
                self.index.insert(text, key);
                self.values = None;
                key
            }
        };
        self.last = key as usize;
        Ok(Some(key))
    }

    fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = match &self.values {
            Some(values) => Arc::clone(values),
            None => {
                let mut builder = StringBuilder::new();
                self.texts.iter().for_each(|text| builder.append_value(text));
                let values: ArrayRef = Arc::new(builder.finish());
                self.values = Some(Arc::clone(&values));
                values
            }
        };
        if self.texts.len() > KEPT_ENTRIES {
            self.texts.clear();
            self.index.clear();
            self.values = None;
        }
        Ok(Arc::new(DictionaryArray::try_new(self.keys.finish(), values)?))
    }
}
