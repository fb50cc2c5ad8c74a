//! Messages to batches of rows.

use super::frame::{Frame, Shape, check_columns, check_texts};
use crate::record::{COLUMNS_OF_VERSION_1, Header, HeaderError, RowKind, schema};
use crate::timeline::{Exchange, Names, RoutingPhase, Sym};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowDictionaryKeyType, ArrowPrimitiveType};
use arrow_array::types::{Int8Type, Int16Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, ListArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_buffer::ArrowNativeType;
use arrow_ipc::MessageHeader;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_schema::{DataType, SchemaRef};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Why a message is unusable.
#[derive(Debug)]
pub(super) enum Fault {
    /// The schema is not a record file's.
    Header(HeaderError),
    /// A batch is damaged. Its rows are lost, the messages behind it are not.
    Batch {
        /// The rows that it says it holds.
        rows: u64,
        what: String,
    },
    /// What the messages behind it depend on is damaged.
    Stream(String),
}

/// What a message added.
pub(super) enum Decoded {
    Nothing,
    Batch(Box<Rows>),
}

/// Decodes the messages behind the schema.
pub(super) struct Decoder {
    schema: SchemaRef,
    shapes: Vec<Shape>,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl Decoder {
    /// From the first message, which holds the schema.
    pub fn new(first: &Frame) -> Result<(Self, Header), Fault> {
        let schema = guard(|| {
            let message = first.message()?;
            let Some(schema) = message.header_as_schema() else {
                return Err("the stream does not begin with a schema".into());
            };
            try_fb_to_schema(schema).map_err(|error| error.to_string())
        })
        .map_err(Fault::Stream)?;
        let metadata = schema.metadata().clone().into_iter().collect();
        let header = Header::from_metadata(&metadata).map_err(Fault::Header)?;
        let wanted = self::schema();
        let columns = schema.fields().len();
        if columns != wanted.fields().len() && columns != COLUMNS_OF_VERSION_1 {
            let what = format!("it has {columns} columns, a record file has {}", wanted.fields().len());
            return Err(Fault::Stream(what));
        }
        let mut shapes = Vec::new();
        for (field, wanted) in schema.fields().iter().zip(wanted.fields()) {
            if field.name() != wanted.name() || field.data_type() != wanted.data_type() {
                let what = format!(
                    "it has column `{}` of type {} where a record file has `{}` of type {}",
                    field.name(),
                    field.data_type(),
                    wanted.name(),
                    wanted.data_type()
                );
                return Err(Fault::Stream(what));
            }
            let width = |values: &DataType| values.primitive_width().unwrap_or(1) as u64;
            shapes.push(match field.data_type() {
                DataType::Dictionary(key, _) => Shape::Values(width(key)),
                DataType::List(item) => Shape::Lists(width(item.data_type())),
                other => Shape::Values(width(other)),
            });
        }
        let decoder = Self { schema: Arc::new(schema), shapes, dictionaries: HashMap::new() };
        Ok((decoder, header))
    }

    /// Decodes one message.
    pub fn decode(&mut self, frame: &Frame) -> Result<Decoded, Fault> {
        let message = frame.message().map_err(Fault::Stream)?;
        let version = message.version();
        match message.header_type() {
            MessageHeader::DictionaryBatch => {
                let Some(dictionary) = message.header_as_dictionary_batch() else {
                    return Err(Fault::Stream("a dictionary without content".into()));
                };
                let dictionaries = &mut self.dictionaries;
                guard(|| {
                    let data = dictionary.data().ok_or("a dictionary without data")?;
                    check_texts(&data, &frame.body)?;
                    read_dictionary(&frame.body, dictionary, &self.schema, dictionaries, &version)
                        .map_err(|error| error.to_string())
                })
                // Later batches may refer to it: their texts would be wrong.
                .map_err(Fault::Stream)?;
                Ok(Decoded::Nothing)
            }
            MessageHeader::RecordBatch => {
                let Some(batch) = message.header_as_record_batch() else {
                    return Err(Fault::Stream("a batch without content".into()));
                };
                let rows = u64::try_from(batch.length()).unwrap_or(0);
                guard(|| {
                    check_columns(&batch, &frame.body, &self.shapes)?;
                    let schema = Arc::clone(&self.schema);
                    let batch =
                        read_record_batch(&frame.body, batch, schema, &self.dictionaries, None, &version)
                            .map_err(|error| error.to_string())?;
                    Rows::new(&batch)
                })
                .map(|rows| Decoded::Batch(Box::new(rows)))
                .map_err(|what| Fault::Batch { rows, what })
            }
            other => Err(Fault::Stream(format!("a message of type {other:?} is not one of ours"))),
        }
    }
}

/// Runs `decode`, which hands bytes of a possibly damaged file to the Arrow crates.
///
/// The sizes were checked before, and the crates validate what they decode, but they do not promise
/// not to panic on arbitrary bytes; a damaged record must not take down the program whose report is
/// being made. What `decode` was building is dropped with the error.
fn guard<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err("its content makes the Arrow decoder fail".into()))
}

/// The rows of one batch.
pub(super) struct Rows {
    rows: usize,
    kinds: Vec<Option<RowKind>>,
    kind: DictionaryArray<Int8Type>,
    pub name: Texts,
    pub label: Texts,
    pub start_ns: Numbers<Int64Type>,
    pub dur_ns: Numbers<Int64Type>,
    pub bytes: Numbers<UInt64Type>,
    pub comm: Texts,
    pub comm_size: Numbers<UInt32Type>,
    pub comm_rank: Numbers<UInt32Type>,
    pub seq: Numbers<UInt64Type>,
    pub peer: Numbers<UInt32Type>,
    pub dtype: Texts,
    pub stream: Texts,
    pub device: Numbers<UInt32Type>,
    pub thread: Numbers<UInt32Type>,
    pub step: Numbers<Int64Type>,
    pub span: Numbers<UInt64Type>,
    pub untimed: Texts,
    pub value: Numbers<Int64Type>,
    /// Version 2 of the schema added these.
    pub exchanges: Option<ExchangeRows>,
}

/// The columns that say how calls spread over ranks.
pub(super) struct ExchangeRows {
    pub phase: Texts,
    pub token_bytes: Numbers<UInt64Type>,
    pub sent_bytes: Lists,
    pub received_bytes: Lists,
}

impl Rows {
    fn new(batch: &RecordBatch) -> Result<Self, String> {
        let kind: DictionaryArray<Int8Type> = dictionary(batch, "kind")?;
        let values = kind.values().as_string_opt::<i32>().ok_or("column `kind` holds no text")?;
        let kinds = values.iter().map(|name| name.and_then(RowKind::from_name)).collect();
        Ok(Self {
            rows: batch.num_rows(),
            kinds,
            kind,
            name: Texts::new(batch, "name")?,
            label: Texts::new(batch, "label")?,
            start_ns: Numbers::new(batch, "start_ns")?,
            dur_ns: Numbers::new(batch, "dur_ns")?,
            bytes: Numbers::new(batch, "bytes")?,
            comm: Texts::new(batch, "comm")?,
            comm_size: Numbers::new(batch, "comm_size")?,
            comm_rank: Numbers::new(batch, "comm_rank")?,
            seq: Numbers::new(batch, "seq")?,
            peer: Numbers::new(batch, "peer")?,
            dtype: Texts::new(batch, "dtype")?,
            stream: Texts::new(batch, "stream")?,
            device: Numbers::new(batch, "device")?,
            thread: Numbers::new(batch, "thread")?,
            step: Numbers::new(batch, "step")?,
            span: Numbers::new(batch, "span")?,
            untimed: Texts::new(batch, "untimed")?,
            value: Numbers::new(batch, "value")?,
            exchanges: if batch.num_columns() > COLUMNS_OF_VERSION_1 {
                Some(ExchangeRows {
                    phase: Texts::new(batch, "phase")?,
                    token_bytes: Numbers::new(batch, "token_bytes")?,
                    sent_bytes: Lists::new(batch, "sent_bytes")?,
                    received_bytes: Lists::new(batch, "received_bytes")?,
                })
            } else {
                None
            },
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// How the call of `row` spreads over the ranks of its communicator, if that was recorded.
    pub fn exchange(&self, row: usize) -> Option<Exchange<'_>> {
        let exchanges = self.exchanges.as_ref()?;
        Some(Exchange {
            phase: exchanges.phase.text(row).and_then(RoutingPhase::from_name),
            token_bytes: exchanges.token_bytes.get(row).filter(|&bytes| bytes > 0),
            sent_bytes: exchanges.sent_bytes.get(row)?,
            received_bytes: exchanges.received_bytes.get(row)?,
        })
    }

    /// What the row is about; `None` for a kind that is not known here.
    pub fn kind(&self, row: usize) -> Option<RowKind> {
        self.kinds.get(self.kind.key(row)?).copied().flatten()
    }
}

/// A nullable column of numbers.
pub(super) struct Numbers<T: ArrowPrimitiveType>(PrimitiveArray<T>);

impl<T: ArrowPrimitiveType> Numbers<T> {
    fn new(batch: &RecordBatch, name: &str) -> Result<Self, String> {
        column(batch, name)?
            .as_primitive_opt::<T>()
            .map(|array| Self(array.clone()))
            .ok_or_else(|| format!("column `{name}` is of another type"))
    }

    pub fn get(&self, row: usize) -> Option<T::Native> {
        self.0.is_valid(row).then(|| self.0.value(row))
    }
}

/// A nullable column of lists of numbers.
pub(super) struct Lists {
    lists: ListArray,
    numbers: PrimitiveArray<UInt64Type>,
}

impl Lists {
    fn new(batch: &RecordBatch, name: &str) -> Result<Self, String> {
        let lists = column(batch, name)?.as_list_opt::<i32>();
        let lists = lists.ok_or_else(|| format!("column `{name}` is of another type"))?.clone();
        let numbers = lists.values().as_primitive_opt::<UInt64Type>();
        let numbers = numbers.ok_or_else(|| format!("column `{name}` holds no numbers"))?.clone();
        Ok(Self { lists, numbers })
    }

    pub fn get(&self, row: usize) -> Option<&[u64]> {
        if !self.lists.is_valid(row) {
            return None;
        }
        let bound = |at: usize| usize::try_from(*self.lists.value_offsets().get(at)?).ok();
        self.numbers.values().get(bound(row)?..bound(row + 1)?)
    }
}

/// A nullable column of texts.
pub(super) struct Texts {
    keys: PrimitiveArray<Int16Type>,
    values: StringArray,
    /// Per entry of the dictionary, its symbol, once a row needed it.
    syms: Vec<Option<Sym>>,
}

impl Texts {
    fn new(batch: &RecordBatch, name: &str) -> Result<Self, String> {
        let array: DictionaryArray<Int16Type> = dictionary(batch, name)?;
        let values = array
            .values()
            .as_string_opt::<i32>()
            .ok_or_else(|| format!("column `{name}` holds no text"))?
            .clone();
        Ok(Self { keys: array.keys().clone(), syms: vec![None; values.len()], values })
    }

    /// The text of `row`.
    pub fn text(&self, row: usize) -> Option<&str> {
        let key = self.entry(row)?;
        Some(self.values.value(key))
    }

    /// The text of `row`, interned.
    pub fn sym(&mut self, row: usize, names: &mut Names) -> Option<Sym> {
        let key = self.entry(row)?;
        Some(*self.syms.get_mut(key)?.get_or_insert_with(|| names.intern(self.values.value(key))))
    }

    fn entry(&self, row: usize) -> Option<usize> {
        let key = self.keys.is_valid(row).then(|| self.keys.value(row).as_usize())?;
        (key < self.values.len() && self.values.is_valid(key)).then_some(key)
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, String> {
    batch.column_by_name(name).ok_or_else(|| format!("it has no column `{name}`"))
}

fn dictionary<K: ArrowDictionaryKeyType>(
    batch: &RecordBatch,
    name: &str,
) -> Result<DictionaryArray<K>, String> {
    column(batch, name)?
        .as_dictionary_opt::<K>()
        .cloned()
        .ok_or_else(|| format!("column `{name}` is of another type"))
}
