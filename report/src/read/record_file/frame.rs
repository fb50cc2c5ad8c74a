//! The messages of an Arrow IPC stream, each checked against the bytes that are there before anything
//! is allocated or decoded: sizes in a torn or damaged file can be anything.

use arrow_buffer::Buffer;
use arrow_ipc::{FieldNode, Message, RecordBatch, root_as_message};
use std::io::{self, Read};

/// Largest metadata of a message. Ours is about a kilobyte.
const MAX_METADATA: u64 = 16 << 20;

/// Most rows of a batch that are believed. Our writer's bound is 65,536.
const MAX_ROWS: i64 = 1 << 26;

/// LZ4 cannot expand a byte to more than this.
const LZ4_MAX_RATIO: u64 = 255;

/// A message whose metadata is valid and whose body is complete.
#[derive(Debug)]
pub(super) struct Frame {
    /// Where it begins in the file.
    pub at: u64,
    metadata: Vec<u8>,
    /// The body.
    pub body: Buffer,
}

impl Frame {
    /// The message's metadata.
    pub fn message(&self) -> Result<Message<'_>, String> {
        root_as_message(&self.metadata).map_err(|error| error.to_string())
    }
}

/// What comes next in the stream.
#[derive(Debug)]
pub(super) enum Next {
    Frame(Frame),
    /// The end-of-stream marker.
    End {
        /// Bytes behind it.
        trailing: u64,
    },
    /// The file ends between two messages.
    EndOfFile,
    /// The file ends within a message: its writer was killed, or the disk was full.
    Torn {
        at: u64,
        /// Whether what is there could be the beginning of the end-of-stream marker.
        maybe_end: bool,
    },
    /// No message begins here.
    Damaged {
        at: u64,
        what: String,
    },
}

/// The messages of a stream of known length.
#[derive(Debug)]
pub(super) struct Frames<R> {
    input: R,
    at: u64,
    length: u64,
}

impl<R: Read> Frames<R> {
    pub fn new(input: R, length: u64) -> Self {
        Self { input, at: 0, length }
    }

    /// The next message.
    pub fn next(&mut self) -> io::Result<Next> {
        self.read(|input, length| {
            // Bounded by the bytes that the file still has.
            let mut body = vec![0; length as usize];
            input.read_exact(&mut body)?;
            Ok(Buffer::from_vec(body))
        })
    }

    /// The next message, its body passed by `skip` and left empty.
    pub fn next_skipping(&mut self, skip: impl FnOnce(&mut R, u64) -> io::Result<()>) -> io::Result<Next> {
        self.read(|input, length| skip(input, length).map(|()| Buffer::from_vec(Vec::<u8>::new())))
    }

    fn read(&mut self, body: impl FnOnce(&mut R, u64) -> io::Result<Buffer>) -> io::Result<Next> {
        let at = self.at;
        let result = self.read_message(body);
        match result {
            // The file became shorter while it was read.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Ok(Next::Torn { at, maybe_end: false })
            }
            other => other,
        }
    }

    fn read_message(&mut self, body: impl FnOnce(&mut R, u64) -> io::Result<Buffer>) -> io::Result<Next> {
        let at = self.at;
        let damaged = |what: String| Ok(Next::Damaged { at, what });
        let left = self.length.saturating_sub(at);
        if left == 0 {
            return Ok(Next::EndOfFile);
        }
        let mut prefix = [0; 8];
        let present = left.min(8) as usize;
        self.input.read_exact(&mut prefix[..present])?;
        let marker = present.min(4);
        if prefix[..marker] != [0xff; 4][..marker] {
            return damaged("no message begins here".into());
        }
        if present < 8 {
            let maybe_end = prefix[marker..present].iter().all(|&byte| byte == 0);
            return Ok(Next::Torn { at, maybe_end });
        }
        let size = u64::from(u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]));
        let left = left - 8;
        if size == 0 {
            self.at += 8;
            return Ok(Next::End { trailing: left });
        }
        if size > MAX_METADATA {
            return damaged(format!("a message of {size} bytes of metadata is not one of ours"));
        }
        if size > left {
            return Ok(Next::Torn { at, maybe_end: false });
        }
        let mut metadata = vec![0; size as usize];
        self.input.read_exact(&mut metadata)?;
        let length = match root_as_message(&metadata) {
            Ok(message) => message.bodyLength(),
            Err(error) => return damaged(format!("the message's metadata is invalid: {error}")),
        };
        let Ok(length) = u64::try_from(length) else {
            return damaged(format!("a message of {length} bytes"));
        };
        if length > left - size {
            return Ok(Next::Torn { at, maybe_end: false });
        }
        let body = body(&mut self.input, length)?;
        self.at += 8 + size + length;
        Ok(Next::Frame(Frame { at, metadata, body }))
    }
}

/// What a column is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A value of this many bytes per row.
    Values(u64),
    /// A list of such values per row.
    Lists(u64),
}

impl Shape {
    /// Arrays that it is stored as, of two buffers each.
    fn arrays(self) -> usize {
        match self {
            Self::Values(_) => 1,
            Self::Lists(_) => 2,
        }
    }
}

/// Whether the columns of `batch`, which have these `shapes`, lie within `body` and have the sizes that its
/// rows need: the decoder takes that for granted, and a size in a damaged file may be petabytes.
pub(super) fn check_columns(batch: &RecordBatch<'_>, body: &[u8], shapes: &[Shape]) -> Result<(), String> {
    let rows = check_count(batch.length())?;
    let arrays: usize = shapes.iter().map(|shape| shape.arrays()).sum();
    let nodes = batch.nodes().filter(|nodes| nodes.len() == arrays);
    let nodes = nodes.ok_or("a batch with another number of columns")?;
    let buffers = batch.buffers().ok_or("a batch without columns")?;
    if buffers.len() != 2 * arrays {
        return Err(format!("a batch of {} buffers", buffers.len()));
    }
    let size = |buffer: usize| decoded_size(batch, buffers.get(buffer), body);
    let mut array = 0;
    for &shape in shapes {
        check_node(nodes.get(array), rows)?;
        check_validity(size(2 * array)?, rows)?;
        let values = size(2 * array + 1)?;
        match shape {
            Shape::Values(width) => check_values(values, rows, width)?,
            Shape::Lists(width) => {
                check_offsets(values, rows)?;
                let inner = nodes.get(array + 1);
                let count = check_count(inner.length())?;
                check_node(inner, count)?;
                check_validity(size(2 * array + 2)?, count)?;
                check_values(size(2 * array + 3)?, count, width)?;
            }
        }
        array += shape.arrays();
    }
    Ok(())
}

/// As [`check_columns`] for the texts of a dictionary.
pub(super) fn check_texts(batch: &RecordBatch<'_>, body: &[u8]) -> Result<(), String> {
    let rows = check_count(batch.length())?;
    batch.nodes().into_iter().flatten().try_for_each(|node| check_node(node, rows))?;
    let buffers = batch.buffers().filter(|buffers| buffers.len() == 3);
    let buffers = buffers.ok_or("a dictionary that is not of texts")?;
    check_validity(decoded_size(batch, buffers.get(0), body)?, rows)?;
    check_offsets(decoded_size(batch, buffers.get(1), body)?, rows)?;
    decoded_size(batch, buffers.get(2), body).map(|_| ())
}

fn check_count(rows: i64) -> Result<u64, String> {
    u64::try_from(rows).ok().filter(|_| rows <= MAX_ROWS).ok_or_else(|| format!("a batch of {rows} rows"))
}

fn check_node(node: &FieldNode, rows: u64) -> Result<(), String> {
    let fits = |number: i64| u64::try_from(number).is_ok_and(|number| number <= rows);
    if u64::try_from(node.length()) != Ok(rows) || !fits(node.null_count()) {
        return Err(format!(
            "a column of {} rows, {} of them null, in a batch of {rows} rows",
            node.length(),
            node.null_count()
        ));
    }
    Ok(())
}

/// Where each text or list begins and ends.
fn check_offsets(size: u64, rows: u64) -> Result<(), String> {
    // No offsets at all stand for no rows.
    if size == 0 && rows == 0 { Ok(()) } else { check_values(size, rows + 1, 4) }
}

/// A bit per row, or nothing where no row is null.
fn check_validity(size: u64, rows: u64) -> Result<(), String> {
    if size != 0 && size < rows.div_ceil(8) {
        return Err(format!("{size} bytes of validity for {rows} rows"));
    }
    Ok(())
}

fn check_values(size: u64, rows: u64, width: u64) -> Result<(), String> {
    if size < rows * width || !size.is_multiple_of(width) {
        return Err(format!("a column of {size} bytes for {rows} values of {width}"));
    }
    Ok(())
}

/// The size of a column's buffer once decompressed.
fn decoded_size(batch: &RecordBatch<'_>, buffer: &arrow_ipc::Buffer, body: &[u8]) -> Result<u64, String> {
    let bytes = usize::try_from(buffer.offset())
        .ok()
        .zip(usize::try_from(buffer.length()).ok())
        .and_then(|(offset, length)| body.get(offset..offset.checked_add(length)?))
        .ok_or("a column that lies outside its message")?;
    if bytes.is_empty() || batch.compression().is_none() {
        return Ok(bytes.len() as u64);
    }
    let Some((prefix, data)) = bytes.split_first_chunk::<8>() else {
        return Err("a compressed column without its length".into());
    };
    let size = i64::from_le_bytes(*prefix);
    // The bytes behind are not compressed.
    if size == -1 {
        return Ok(data.len() as u64);
    }
    let most = (data.len() as u64).saturating_mul(LZ4_MAX_RATIO);
    match u64::try_from(size) {
        Ok(size) if size <= most => Ok(size),
        _ => Err(format!("a column that claims {size} bytes, compressed to {}", data.len())),
    }
}
