//! A timeline as the generic JSON.

use super::super::decimal::milliseconds;
use crate::timeline::{Comm, Names, Sym, Timeline, Track};
use std::io::{self, Write};

/// Writes `timeline` as the generic JSON that [`read`](crate::read::read) takes, one record a line.
///
/// Times are milliseconds with all their digits: reading the result gives the same nanoseconds. A
/// track's clock becomes its `host`. Untimed and open communication, inputs, warnings and what is
/// known of communicators are not part of the format and are left out.
///
/// # Errors
///
/// Those of `out`.
pub fn write_timeline_json(timeline: &Timeline, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{\"ranks\": [")?;
    for (index, track) in timeline.tracks.iter().enumerate() {
        out.write_all(if index == 0 { b"\n" } else { b",\n" })?;
        write_track(track, &timeline.names, out)?;
    }
    out.write_all(b"\n]}\n")
}

fn write_track(track: &Track, names: &Names, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{{\"rank\": {}", track.rank)?;
    if let Some(device) = track.device {
        write!(out, ", \"device\": {device}")?;
    }
    text("host", track.clock, names, out)?;
    list("compute", track.compute.iter(), out, |compute, out| {
        out.write_all(b"{\"name\": ")?;
        serde_json::to_writer(&mut *out, names.get(compute.name))?;
        times(compute.start_ns, compute.end_ns, out)?;
        number("step", compute.step, out)
    })?;
    list("comm", track.comm.iter(), out, |comm, out| write_comm(&comm, names, out))?;
    if !track.steps.is_empty() {
        list("steps", track.steps.iter(), out, |step, out| {
            write!(out, "{{\"step\": {}", step.step)?;
            times(step.start_ns, step.end_ns, out)
        })?;
    }
    out.write_all(b"}")
}

fn write_comm(comm: &Comm, names: &Names, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{\"op\": ")?;
    serde_json::to_writer(&mut *out, names.get(comm.op))?;
    times(comm.start_ns, comm.end_ns, out)?;
    match comm.bytes {
        Some(bytes) => write!(out, ", \"bytes\": {bytes}")?,
        None => out.write_all(b", \"bytes\": null")?,
    }
    text("comm", comm.comm, names, out)?;
    number("seq", comm.seq, out)?;
    number("comm_size", comm.comm_size, out)?;
    number("comm_rank", comm.comm_rank, out)?;
    text("stream", comm.stream, names, out)?;
    text("dtype", comm.dtype, names, out)?;
    number("peer", comm.peer, out)?;
    number("step", comm.step, out)
}

fn list<T, W: Write>(
    key: &str,
    records: impl Iterator<Item = T>,
    out: &mut W,
    mut write: impl FnMut(T, &mut W) -> io::Result<()>,
) -> io::Result<()> {
    write!(out, ",\n\"{key}\": [")?;
    for (index, record) in records.enumerate() {
        out.write_all(if index == 0 { b"\n" } else { b",\n" })?;
        write(record, out)?;
        out.write_all(b"}")?;
    }
    out.write_all(b"]")
}

fn times(start_ns: i64, end_ns: i64, out: &mut impl Write) -> io::Result<()> {
    write!(out, ", \"start\": {}, \"end\": {}", milliseconds(start_ns), milliseconds(end_ns))
}

fn text(key: &str, sym: Option<Sym>, names: &Names, out: &mut impl Write) -> io::Result<()> {
    let Some(sym) = sym else { return Ok(()) };
    write!(out, ", \"{key}\": ")?;
    serde_json::to_writer(out, names.get(sym)).map_err(Into::into)
}

fn number(key: &str, value: Option<impl std::fmt::Display>, out: &mut impl Write) -> io::Result<()> {
    value.map_or(Ok(()), |value| write!(out, ", \"{key}\": {value}"))
}
