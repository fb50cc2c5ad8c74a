//! The rows of one rank.

use crate::record::{RecordError, RecordWriter, Row, RowKind, meta};
use crate::timeline::{Comm, Exchange, Input, Names, RoutingPhase, Sym, Timeline, Track};
use std::collections::HashSet;
use std::io::Write;

/// Rows that wait to be written, at most.
const PENDING: usize = 1 << 16;

/// Writes all that is known of `rank`, whose tracks are `tracks`. Into the `first` file goes what
/// belongs to no rank, too.
pub(super) fn write<W: Write>(
    timeline: &Timeline,
    tracks: &[&Track],
    rank: u32,
    first: bool,
    writer: &mut RecordWriter<W>,
) -> Result<(), RecordError> {
    let names = &timeline.names;
    for (name, ranks) in &timeline.communicators {
        if first || ranks.contains(&rank) {
            communicator(names.get(*name), ranks, rank, writer);
        }
    }
    let mut steps = HashSet::new();
    let mut span = 0;
    for track in tracks {
        let device = track.device;
        for (compute, label) in track.compute.iter_labelled() {
            let length = length(compute.start_ns, compute.end_ns);
            writer.push(&Row {
                label: label.map(|label| names.get(label)),
                start_ns: Some(compute.start_ns),
                dur_ns: Some(length),
                device,
                step: compute.step,
                ..Row::new(RowKind::Compute, names.get(compute.name))
            });
            flush_if_full(writer)?;
        }
        for (comm, exchange) in track.comm.iter_exchanges() {
            let start_ns = Some(comm.start_ns);
            writer.push(&Row { start_ns, device, ..comm_row(&comm, exchange, names) });
            flush_if_full(writer)?;
        }
        for (comm, exchange) in track.unplaced.iter_exchanges() {
            writer.push(&Row { device, ..comm_row(&comm, exchange, names) });
            flush_if_full(writer)?;
        }
        for step in &track.steps {
            // The steps of a rank stand on each of its tracks.
            if steps.insert((step.step, step.start_ns, step.end_ns)) {
                writer.push(&Row {
                    start_ns: Some(step.start_ns),
                    dur_ns: Some(length(step.start_ns, step.end_ns)),
                    step: Some(step.step),
                    ..Row::new(RowKind::Step, "step")
                });
                flush_if_full(writer)?;
            }
        }
        untimed(track, writer)?;
        for open in &track.open {
            span += 1;
            writer.push(&Row {
                start_ns: open.start_ns,
                bytes: open.bytes,
                comm: open.comm.map(|comm| names.get(comm)),
                comm_size: open.comm_size,
                comm_rank: open.comm_rank,
                seq: open.seq,
                peer: open.peer,
                dtype: open.dtype.map(|dtype| names.get(dtype)),
                device,
                step: open.step,
                span: Some(span),
                ..Row::new(RowKind::Open, names.get(open.name))
            });
        }
    }
    endings(timeline, rank, writer);
    Ok(())
}

fn flush_if_full<W: Write>(writer: &mut RecordWriter<W>) -> Result<(), RecordError> {
    if writer.pending() >= PENDING { writer.flush() } else { Ok(()) }
}

/// The length of an interval; negative if it ends before it starts. A length beyond 64 bits is none of
/// a trace.
fn length(start_ns: i64, end_ns: i64) -> i64 {
    end_ns.saturating_sub(start_ns)
}

fn comm_row<'a>(comm: &Comm, exchange: Option<Exchange<'a>>, names: &'a Names) -> Row<'a> {
    let text = |sym: Option<Sym>| sym.map(|sym| names.get(sym));
    Row {
        dur_ns: Some(length(comm.start_ns, comm.end_ns)),
        bytes: comm.bytes,
        comm: text(comm.comm),
        comm_size: comm.comm_size,
        comm_rank: comm.comm_rank,
        seq: comm.seq,
        peer: comm.peer,
        dtype: text(comm.dtype),
        stream: text(comm.stream),
        step: comm.step,
        phase: exchange.and_then(|exchange| exchange.phase).map(RoutingPhase::as_str),
        token_bytes: exchange.and_then(|exchange| exchange.token_bytes),
        sent_bytes: exchange.map(|exchange| exchange.sent_bytes),
        received_bytes: exchange.map(|exchange| exchange.received_bytes),
        ..Row::new(RowKind::Comm, names.get(comm.op))
    }
}

fn communicator<W: Write>(name: &str, ranks: &[u32], rank: u32, writer: &mut RecordWriter<W>) {
    let label = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    writer.push(&Row {
        label: Some(&label),
        comm: Some(name),
        comm_size: u32::try_from(ranks.len()).ok(),
        comm_rank: ranks.iter().position(|&member| member == rank).and_then(|at| u32::try_from(at).ok()),
        ..Row::new(RowKind::Meta, meta::COMMUNICATOR)
    });
}

/// Records without a time: as many rows as there were, the first with all their bytes, of which only the
/// sum is known.
fn untimed<W: Write>(track: &Track, writer: &mut RecordWriter<W>) -> Result<(), RecordError> {
    let mut bytes = Some(track.untimed.bytes);
    for (reason, &count) in &track.untimed.reasons {
        for _ in 0..count {
            writer.push(&Row {
                bytes: bytes.take(),
                device: track.device,
                untimed: Some(reason),
                ..Row::new(RowKind::Comm, "unknown")
            });
            flush_if_full(writer)?;
        }
    }
    Ok(())
}

/// How the recordings of `rank` ended, and what they lost.
fn endings<W: Write>(timeline: &Timeline, rank: u32, writer: &mut RecordWriter<W>) {
    let inputs = || timeline.inputs.iter().filter(|input| input.rank == Some(rank));
    for input in inputs() {
        if let Some(seen) = input.seen.filter(|_| input.ended == Some(false)) {
            writer.push(&Row {
                start_ns: Some(seen.at_ns),
                value: Some(seen.open_after_ns),
                ..Row::new(RowKind::Meta, meta::SEEN)
            });
        }
        for selection in &input.selection {
            writer.push(&Row { label: Some(selection), ..Row::new(RowKind::Meta, meta::SELECTION) });
        }
        if input.dropped > 0 {
            writer.push(&Row {
                label: Some("before the conversion"),
                value: i64::try_from(input.dropped).ok(),
                ..Row::new(RowKind::Meta, meta::DROPPED)
            });
        }
        if let Some(capped) = &input.capped {
            let limit = capped.limit_mib.and_then(|limit| i64::try_from(limit).ok());
            writer.push(&Row { value: limit, ..Row::new(RowKind::Meta, meta::CAPPED) });
            if let Some(summary) = &capped.summary_json {
                writer.push(&Row { label: Some(summary), ..Row::new(RowKind::Meta, meta::SUMMARY) });
            }
        }
    }
    if inputs().any(|input| input.ended == Some(false)) {
        return;
    }
    let end = Row::new(RowKind::Meta, meta::END);
    if inputs().any(|input| input.ended == Some(true)) {
        writer.push(&end);
        return;
    }
    if timeline.inputs.iter().any(Input::is_window) {
        writer.push(&Row { label: Some(meta::WINDOW), ..Row::new(RowKind::Meta, meta::SELECTION) });
    }
    writer.push(&Row { label: Some(meta::UNKNOWN), ..end });
}
