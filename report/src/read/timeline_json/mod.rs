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
//! The document is read as a stream: besides the columns that result and the record at hand, it needs no
//! memory. A record is at most 64 MiB long.

mod document;
mod place;
mod records;
mod room;
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
use room::{Bounded, MOST, Room};
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
    read_within(Room::new(MOST), path, options, meter, builder)
}

fn read_within(
    room: Room,
    path: &Path,
    options: &ReadOptions,
    meter: Option<&Meter<'_>>,
    builder: &mut Builder,
) -> Result<(), ReadError> {
    let input = Bounded::new(open(path, meter).map_err(ReadError::io(path))?, &room);
    let mut input = BufReader::with_capacity(BUFFER, input);
    skip_byte_order_mark(&mut input).map_err(ReadError::io(path))?;
    let mut reader = Reader::new(builder, options, &room);
    let mut json = serde_json::Deserializer::from_reader(input);
    let result = Document(&mut reader).deserialize(&mut json).and_then(|()| json.end());
    let (counts, place) = reader.finish();
    if let Err(error) = result {
        if room.exceeded() {
            let place =
                if place.is_empty() { "a part of the document".to_owned() } else { place.to_string() };
            let source = io::Error::other(format!("{place} is {}", io::Error::from(error)));
            return Err(ReadError::Io { path: path.to_owned(), source });
        }
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
fn open<'m>(path: &Path, meter: Option<&'m Meter<'m>>) -> io::Result<impl Read + use<'m>> {
    Ok(super::compress::open(path, meter)?.reader)
}

#[cfg(not(feature = "import"))]
fn open<'m>(path: &Path, meter: Option<&'m Meter<'m>>) -> io::Result<impl Read + use<'m>> {
    Ok(Metered::new(std::fs::File::open(path)?, meter))
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
    let mut input = BufReader::with_capacity(BUFFER, open(path, None).ok()?);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads with parts of 1 MiB at most, and gives the number of compute intervals.
    fn read_text(text: &str) -> Result<usize, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any name");
        std::fs::write(&path, text).unwrap();
        let mut builder = Builder::default();
        read_within(Room::new(1 << 20), &path, &ReadOptions::default(), None, &mut builder)
            .map_err(|error| error.to_string())?;
        Ok(builder.finish().tracks.iter().map(|track| track.compute.len()).sum())
    }

    #[test]
    fn what_is_longer_than_any_record_is_refused_before_it_is_held() {
        let long = "x".repeat(3 << 20);
        let numbers = format!("[{}0]", "0,".repeat(1 << 20));
        let one = |name: &str, end: &str| {
            format!(r#"{{"comm":[],"compute":[{{"name":"{name}","start":0,"end":{end}}}]}}"#)
        };
        for (text, place) in [
            (one(&long, "1"), "compute[0], `name` is"),
            (one("f", &numbers), "compute[0], `end` is"),
            (format!(r#"{{"comm":[],"{long}":0,"compute":[]}}"#), "a part of the document is"),
        ] {
            let error = read_text(&text).unwrap_err();
            assert!(error.contains(&format!("{place} longer than 1 MiB")), "{error}");
        }
    }

    #[test]
    fn documents_and_what_is_ignored_in_them_are_of_any_length() {
        let long = "x".repeat(3 << 20);
        let record = format!(r#"{{"name":"{}","start":0,"end":1}}"#, "f".repeat(1000));
        let records = vec![record; 3000].join(",");
        let text = format!(r#"{{"note":"{long}","comm":[],"compute":[{records}],"more":["{long}"]}}"#);
        assert_eq!(read_text(&text), Ok(3000));
        let text = format!(r#"{{"ranks":[{{"rank":0,"note":"{long}","comm":[],"compute":[{records}]}}]}}"#);
        assert_eq!(read_text(&text), Ok(3000));
    }
}
