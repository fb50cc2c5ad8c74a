//! The messages of an Arrow IPC stream, each checked against the bytes that are there before anything
//! is allocated or decoded: sizes in a torn or damaged file can be anything.

use arrow_buffer::Buffer;
use arrow_ipc::{Message, RecordBatch, root_as_message};
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
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Next::Torn { at }),
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
            return Ok(Next::Torn { at });
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
            return Ok(Next::Torn { at });
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
            return Ok(Next::Torn { at });
        }
        let body = body(&mut self.input, length)?;
        self.at += 8 + size + length;
        Ok(Next::Frame(Frame { at, metadata, body }))
    }
}

/// Whether everything that `batch` refers to lies within `body` and is of a size that its bytes can
/// have, so that decoding it neither panics nor allocates beyond a multiple of the file.
pub(super) fn check(batch: &RecordBatch<'_>, body: &[u8]) -> Result<(), String> {
    let rows = batch.length();
    if !(0..=MAX_ROWS).contains(&rows) {
        return Err(format!("a batch of {rows} rows"));
    }
    for node in batch.nodes().into_iter().flatten() {
        if node.length() != rows || !(0..=rows).contains(&node.null_count()) {
            return Err(format!(
                "a column of {} rows, {} of them null, in a batch of {rows} rows",
                node.length(),
                node.null_count()
            ));
        }
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let bytes = usize::try_from(buffer.offset())
            .ok()
            .zip(usize::try_from(buffer.length()).ok())
            .and_then(|(offset, length)| body.get(offset..offset.checked_add(length)?))
            .ok_or("a column that lies outside its message")?;
        if bytes.is_empty() || batch.compression().is_none() {
            continue;
        }
        let Some((prefix, data)) = bytes.split_first_chunk::<8>() else {
            return Err("a compressed column without its length".into());
        };
        // -1 says that the bytes behind are not compressed.
        let size = i64::from_le_bytes(*prefix);
        let most = (data.len() as u64).saturating_mul(LZ4_MAX_RATIO);
        if size != -1 && !u64::try_from(size).is_ok_and(|size| size <= most) {
            return Err(format!("a column that claims {size} bytes, compressed to {}", data.len()));
        }
    }
    Ok(())
}
