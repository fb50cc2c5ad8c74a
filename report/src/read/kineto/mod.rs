//! Traces in the Chrome trace event format: PyTorch's profiler (Kineto), our own, and others by patterns.
//!
//! Format: "Trace Event Format" of the Chromium project; what PyTorch adds to it is in Kineto's
//! `output_json.cpp` and PyTorch's `ParamCommsUtils`. `ts` and `dur` are microseconds, with decimals.
//!
//! The file is never in memory: a scanner moves over the content and takes of each event the members
//! that matter ([`document`], [`event`], [`json`]); what a timeline is made of is kept ([`collect`]); at the
//! end, collectives are joined with the calls that launched them, and tracks result ([`finish`]).

mod call;
mod category;
mod collect;
mod device;
mod document;
mod event;
mod finish;
mod host;
mod info;
mod json;
mod keep;
mod marked;
mod open;
mod plausible;
mod time;
mod window;

use super::compress::Opened;
use super::fragment::{Fragment, RankSource};
use super::rank_name::RankName;
use super::{ReadError, ReadOptions};
use crate::timeline::Timeline;
use collect::Collector;
#[cfg(feature = "nsys")]
pub(super) use collect::Times;
#[cfg(feature = "nsys")]
pub(super) use device::{OTHER_KERNELS, agree, warn_of_hints};
use document::Fault;
#[cfg(feature = "nsys")]
pub(super) use finish::shift;
use json::{Escapes, Members, Value};
#[cfg(feature = "nsys")]
pub(super) use plausible::Plausible;
use std::path::Path;

/// What the beginning of a JSON document says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Events, or a member that only traces have.
    Trace,
    /// A timeline.
    Timeline,
    /// Neither yet.
    Unclear,
}

/// Whether a JSON document that begins with `start` is a trace.
pub(super) fn beginning(start: &[u8]) -> Beginning {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    if let Some(array) = start.strip_prefix(b"[") {
        return if array.trim_ascii_start().starts_with(b"{") {
            Beginning::Trace
        } else {
            Beginning::Unclear
        };
    }
    let mut members = Members::new(start, Escapes::Strict);
    let verdict = |key: &[u8]| match key {
        b"traceEvents"
        | b"schemaVersion"
        | b"deviceProperties"
        | b"distributedInfo"
        | b"displayTimeUnit"
        | b"baseTimeNanoseconds"
        | b"traceName"
        | b"trace_id"
        | b"otherData" => Beginning::Trace,
        b"ranks" | b"compute" | b"comm" => Beginning::Timeline,
        _ => Beginning::Unclear,
    };
    while let Ok(Some((key, _))) = members.next() {
        match verdict(key) {
            Beginning::Unclear => {}
            clear => return clear,
        }
    }
    // The value that follows may be longer than what is seen; its key is not.
    let rest = start.get(members.consumed()..).unwrap_or_default();
    let rest = rest.strip_prefix(b"{").unwrap_or(rest);
    let rest = rest.trim_ascii_start();
    match json::value(rest, 0, Escapes::Strict) {
        Ok((Value::Text(key), after))
            if rest.get(after..).is_some_and(|rest| rest.trim_ascii_start().starts_with(b":")) =>
        {
            verdict(key)
        }
        _ => Beginning::Unclear,
    }
}

/// Why a file was not read as a trace.
#[derive(Debug)]
pub(super) enum NotRead {
    /// It is of another format.
    NotATrace,
    Error(ReadError),
}

/// Reads the trace `path`, which was opened.
///
/// `beginning` is what its first bytes said.
pub(super) fn read(
    path: &Path,
    opened: Opened<'_>,
    beginning: Beginning,
    options: &ReadOptions,
) -> Result<Fragment, NotRead> {
    let pattern = |source| NotRead::Error(ReadError::Pattern { source });
    let mut collector = Collector::new(options).map_err(pattern)?;
    let name = RankName::new(options).map_err(pattern)?;
    if name.is_given()
        && let Some(rank) = name.rank(path)
        && !options.wants(rank)
    {
        return Ok(Fragment { timeline: Timeline::default(), rank: RankSource::File(rank) });
    }
    let outcome = document::read(opened.reader, &mut collector).map_err(|fault| match fault {
        Fault::NotATrace => NotRead::NotATrace,
        Fault::TooLong { at, mib } => NotRead::Error(ReadError::TooLong { path: path.to_owned(), at, mib }),
    })?;
    // An array of no events may be anything, and so may an object without a list of events, unless it
    // was cut before the list and begins as only traces do.
    let list = outcome.has_events && (!outcome.bare_array || outcome.events + outcome.malformed > 0);
    let cut_before = outcome.cut.is_some() && beginning == Beginning::Trace;
    if !list && !collector.profiler && !cut_before {
        return Err(NotRead::NotATrace);
    }
    let shown = path.display().to_string();
    Ok(finish::fragment(collector, &outcome, &shown, name.rank(path), name.is_given()))
}
