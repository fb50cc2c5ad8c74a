//! The generic input: intervals in milliseconds as JSON.
//!
//! ```json
//! {"ranks": [{"rank": 0,
//!   "compute": [{"name": "forward", "start": 0.0, "end": 2.0}],
//!   "comm": [{"op": "all_reduce", "start": 1.0, "end": 2.5, "bytes": 131072}]}]}
//! ```
//!
//! A rank may have `device`, `host` (ranks with the same one share a clock) and `steps`
//! (`[{"step": 0, "start": 0.0, "end": 5.0}]`). A communication interval may have `comm`, `seq`,
//! `comm_size`, `comm_rank`, `stream`, `dtype` and `peer`, both kinds of interval `step`; `null` stands
//! for unknown. Further keys are ignored. A bare object with `compute` and `comm` is rank 0.
//!
//! The document is read as a stream: besides the columns that result, it needs no memory.

mod document;
mod place;
mod records;
mod value;
mod write;

pub use write::write_timeline_json;

use super::builder::Builder;
use super::progress::Meter;
#[cfg(not(feature = "import"))]
use super::progress::Metered;
use super::{ReadError, ReadOptions};
use crate::timeline::Input;
use document::{Document, Reader};
use serde::de::DeserializeSeed;
use serde_json::error::Category;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

const BUFFER: usize = 1 << 17;

/// Reads `path` into `builder`; `meter` hears what is read of it.
pub(super) fn read(
    path: &Path,
    options: &ReadOptions,
    meter: Option<&Meter<'_>>,
    builder: &mut Builder,
) -> Result<(), ReadError> {
    let mut input = open(path, meter).map_err(ReadError::io(path))?;
    skip_byte_order_mark(&mut input).map_err(ReadError::io(path))?;
    let mut reader = Reader::new(builder, options);
    let mut json = serde_json::Deserializer::from_reader(input);
    let result = Document(&mut reader).deserialize(&mut json).and_then(|()| json.end());
    let (counts, place) = reader.finish();
    if let Err(error) = result {
        if error.classify() == Category::Io {
            return Err(ReadError::Io { path: path.to_owned(), source: error.into() });
        }
        let (line, column) = (error.line(), error.column());
        // The message ends with the position, which the caller gets as numbers.
        let text = error.to_string();
        let text = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
        let what = match not_finite(path, line, column) {
            Some(found) if error.is_syntax() => {
                format!("{found} is not a time or a number in JSON; numbers must be finite")
            }
            _ => text.to_owned(),
        };
        let what = if place.is_empty() { what } else { format!("{place}: {what}") };
        return Err(ReadError::Json { path: path.to_owned(), line, column, what });
    }
    builder.input(Input {
        path: path.display().to_string(),
        format: "timeline-json".to_owned(),
        events: counts.events,
        anomalies: counts.anomalies,
        rank: counts.only_rank,
        ..Input::default()
    });
    Ok(())
}

/// The content of `path`, decompressed if need be.
#[cfg(feature = "import")]
fn open<'m>(path: &Path, meter: Option<&'m Meter<'m>>) -> io::Result<BufReader<impl Read + use<'m>>> {
    Ok(BufReader::with_capacity(BUFFER, super::compress::open(path, meter)?.reader))
}

#[cfg(not(feature = "import"))]
fn open<'m>(path: &Path, meter: Option<&'m Meter<'m>>) -> io::Result<BufReader<impl Read + use<'m>>> {
    Ok(BufReader::with_capacity(BUFFER, Metered::new(std::fs::File::open(path)?, meter)))
}

fn skip_byte_order_mark(input: &mut impl BufRead) -> io::Result<()> {
    if input.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        input.consume(3);
    }
    Ok(())
}

/// The `NaN` or `Infinity` that stands at a position where JSON expects a value: other languages'
/// writers put them there.
fn not_finite(path: &Path, line: usize, column: usize) -> Option<String> {
    const WORDS: [&[u8]; 6] = [b"NaN", b"nan", b"-Inf", b"-inf", b"Inf", b"inf"];
    let mut input = open(path, None).ok()?;
    skip_byte_order_mark(&mut input).ok()?;
    for _ in 1..line {
        input.skip_until(b'\n').ok()?;
    }
    let before = column.saturating_sub(3) as u64;
    io::copy(&mut input.by_ref().take(before), &mut io::sink()).ok()?;
    let mut near = Vec::new();
    input.take(12).read_to_end(&mut near).ok()?;
    // The position is within the word, how far depends on where the parser gave up.
    let at = (0..near.len().min(3)).find(|&at| WORDS.iter().any(|word| near[at..].starts_with(word)))?;
    let word = near[at..].iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'-');
    Some(word.map(|&byte| char::from(byte)).collect())
}
