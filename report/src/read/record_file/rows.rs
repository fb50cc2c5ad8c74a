//! Rows to intervals on tracks.

use super::super::builder::Builder;
use super::super::lanes::{Lane, LaneKey, Lanes};
use super::super::untimed::{compute_warning, peer_bytes_warning};
use super::decode::Rows;
use crate::gather::Thinning;
use crate::record::{Header, RowKind, meta};
use crate::timeline::{Capped, Comm, Compute, Exchange, Input, Open, Process, Seen, Step, Sym, Untimed};
use indexmap::IndexMap;
use std::collections::{HashMap, HashSet};

/// Calls that are named in a warning, at most.
const NAMED: usize = 3;

/// A device's clock that was tied to the host's less closely than this is worth a warning.
const LOOSE_TIE_NS: i64 = 1_000_000;

/// Compute waits here until all communication of the file is known, which is cut out of it.
struct PendingCompute {
    device: Option<u32>,
    lane: Option<Lane>,
    interval: Compute,
    label: Option<Sym>,
}

/// The rows of one file on their way to tracks.
pub(super) struct Assembly {
    rank: u32,
    thinning: Thinning,
    clock: Option<Sym>,
    lanes: Lanes,
    compute: Vec<PendingCompute>,
    open: HashMap<u64, (Option<u32>, Open)>,
    untimed_compute: Untimed,
    /// Worst of the instants at which a device's clock was tied to the host's.
    loosest_tie_ns: i64,
    input: Input,
    drops: IndexMap<String, u64>,
    ended: bool,
    /// The process start, since the Unix epoch and on CLOCK_MONOTONIC.
    start_ns: (i64, i64),
    /// The latest end of an interval.
    last_ns: Option<i64>,
    /// It was made of something that does not say how it ended.
    end_unknown: bool,
}

impl Assembly {
    pub fn new(builder: &mut Builder, header: &Header, thinning: Thinning) -> Self {
        if let Some(size) = header.world_size {
            builder.world_size(size);
        }
        builder.recorded(header.rank);
        builder.process(header.rank, header.start_unix_ns);
        // Without a boot id, nothing is known of the clock.
        let clock = (!header.boot_id.is_empty()).then(|| builder.names().intern(&header.boot_id));
        Self {
            rank: header.rank,
            thinning,
            clock,
            lanes: Lanes::default(),
            compute: Vec::new(),
            open: HashMap::new(),
            untimed_compute: Untimed::default(),
            loosest_tie_ns: 0,
            input: Input { process: Some(process(header)), ..Input::default() },
            drops: IndexMap::new(),
            ended: false,
            start_ns: (header.start_unix_ns, header.start_mono_ns),
            last_ns: None,
            end_unknown: false,
        }
    }

    pub fn skip(&mut self, reason: &str, count: u64) {
        *self.input.skipped.entry(reason.to_owned()).or_default() += count;
    }

    pub fn anomaly(&mut self, kind: &str) {
        *self.input.anomalies.entry(kind.to_owned()).or_default() += 1;
    }

    /// Whether the end row was read.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Adds the rows of a batch.
    pub fn add(&mut self, builder: &mut Builder, rows: &mut Rows) {
        for row in 0..rows.len() {
            let kind = rows.kind(row);
            if rows.step.get(row).is_some_and(|step| !self.thinning.keeps(step)) {
                continue;
            }
            if kind != Some(RowKind::Open)
                && let Some(span) = rows.span.get(row)
            {
                self.open.remove(&span);
            }
            match kind {
                Some(RowKind::Compute) => self.add_compute(builder, rows, row),
                Some(RowKind::Comm) => self.add_comm(builder, rows, row),
                Some(RowKind::Step) => self.add_step(builder, rows, row),
                Some(RowKind::Open) => self.add_open(builder, rows, row),
                Some(RowKind::Meta) => self.add_meta(builder, rows, row),
                None => self.skip("unknown_kind", 1),
            }
        }
    }

    fn add_compute(&mut self, builder: &mut Builder, rows: &mut Rows, row: usize) {
        let (start_ns, end_ns) = match self.times(rows, row) {
            Times::Known(start_ns, end_ns) => (start_ns, end_ns),
            Times::OutOfRange => return,
            Times::None | Times::Length(_) => {
                if let Some(reason) = rows.untimed.text(row) {
                    self.untimed_compute.add(reason, None);
                }
                return self.skip("compute_without_time", 1);
            }
        };
        let device = rows.device.get(row);
        let names = builder.names();
        let lane = self.lane(rows.stream.sym(row, names), device, rows.thread.get(row));
        let Some(name) = rows.name.sym(row, names) else { return self.skip("without_name", 1) };
        let label = rows.label.sym(row, names);
        let interval = Compute { name, start_ns, end_ns, step: rows.step.get(row) };
        self.compute.push(PendingCompute { device, lane, interval, label });
        self.input.events += 1;
    }

    fn add_comm(&mut self, builder: &mut Builder, rows: &mut Rows, row: usize) {
        let device = rows.device.get(row);
        let bytes = rows.bytes.get(row);
        let (start_ns, end_ns) = match self.times(rows, row) {
            Times::Known(start_ns, end_ns) => (start_ns, end_ns),
            Times::OutOfRange => return,
            Times::Length(length) => (0, length),
            Times::None => {
                let reason = rows.untimed.text(row).unwrap_or("unknown").to_owned();
                builder.track(self.rank, device).0.untimed.add(&reason, bytes);
                self.input.events += 1;
                return;
            }
        };
        let Some(op) = rows.name.sym(row, builder.names()) else { return self.skip("without_name", 1) };
        let placed = rows.start_ns.get(row).is_some();
        if placed {
            builder.note_order(self.rank, device.is_some());
        }
        let (track, names) = builder.track(self.rank, device);
        let stream = rows.stream.sym(row, names);
        let columns = if placed { &mut track.comm } else { &mut track.unplaced };
        let interval = Comm {
            bytes,
            comm: rows.comm.sym(row, names),
            seq: rows.seq.get(row),
            comm_size: rows.comm_size.get(row),
            comm_rank: rows.comm_rank.get(row),
            stream,
            dtype: rows.dtype.sym(row, names),
            peer: rows.peer.get(row),
            step: rows.step.get(row),
            ..Comm::new(op, start_ns, end_ns)
        };
        let exchange = rows.exchange(row);
        let fits = |exchange: &Exchange<'_>| interval.comm_size.is_some_and(|size| exchange.fits(size));
        if exchange.is_some_and(|exchange| !fits(&exchange)) {
            *self.input.anomalies.entry("malformed_peer_bytes".to_owned()).or_default() += 1;
        }
        columns.push_exchange(interval, exchange.filter(fits));
        if placed && let Some(lane) = self.lane(stream, device, rows.thread.get(row)) {
            self.lanes.add_comm(lane, start_ns, end_ns);
        }
        self.input.events += 1;
    }

    fn add_step(&mut self, builder: &mut Builder, rows: &Rows, row: usize) {
        let (start_ns, end_ns) = match self.times(rows, row) {
            Times::Known(start_ns, end_ns) => (start_ns, end_ns),
            Times::OutOfRange => return,
            Times::None | Times::Length(_) => return self.skip("step_without_time", 1),
        };
        let Some(step) = rows.step.get(row) else { return self.skip("step_without_number", 1) };
        builder.rank_step(self.rank, Step { step, start_ns, end_ns });
        self.input.events += 1;
    }

    fn add_open(&mut self, builder: &mut Builder, rows: &mut Rows, row: usize) {
        let names = builder.names();
        let (Some(span), Some(name)) = (rows.span.get(row), rows.name.sym(row, names)) else {
            return self.skip("open_without_span", 1);
        };
        let open = Open {
            name,
            start_ns: rows.start_ns.get(row),
            bytes: rows.bytes.get(row),
            comm: rows.comm.sym(row, names),
            seq: rows.seq.get(row),
            comm_size: rows.comm_size.get(row),
            comm_rank: rows.comm_rank.get(row),
            peer: rows.peer.get(row),
            dtype: rows.dtype.sym(row, names),
            step: rows.step.get(row),
        };
        self.open.insert(span, (rows.device.get(row), open));
    }

    fn add_meta(&mut self, builder: &mut Builder, rows: &mut Rows, row: usize) {
        let value = rows.value.get(row);
        let label = rows.label.text(row);
        match rows.name.text(row) {
            Some(meta::WORLD_SIZE) => {
                if let Some(size) = value.and_then(|value| u32::try_from(value).ok()) {
                    builder.world_size(size);
                }
            }
            Some(meta::COMMUNICATOR) => {
                let ranks: Option<Vec<u32>> =
                    label.and_then(|label| label.split(',').map(|rank| rank.trim().parse().ok()).collect());
                match (rows.comm.sym(row, builder.names()), ranks) {
                    (Some(comm), Some(ranks)) => builder.communicator(comm, ranks),
                    _ => self.skip("malformed_communicator", 1),
                }
            }
            Some(meta::DROPPED) => {
                let count = value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0);
                let reason = label.unwrap_or("unknown").to_owned();
                *self.drops.entry(reason).or_default() += count;
                self.input.dropped += count;
            }
            Some(meta::PEER_BYTES_DROPPED) => {
                let count = value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0);
                self.input.peer_bytes_dropped += count;
            }
            Some(meta::CAPPED) => {
                let capped = self.input.capped.get_or_insert_with(Capped::default);
                capped.limit_mib = value.and_then(|value| u64::try_from(value).ok());
            }
            Some(meta::SUMMARY) => {
                let capped = self.input.capped.get_or_insert_with(Capped::default);
                capped.summary_json = label.map(str::to_owned);
            }
            Some(meta::SEEN) => {
                if let Some(at_ns) = rows.start_ns.get(row) {
                    self.input.seen = Some(Seen { at_ns, open_after_ns: value.unwrap_or(0).max(0) });
                }
            }
            Some(meta::SELECTION) => self.input.selection.extend(label.map(str::to_owned)),
            Some(meta::END) => {
                self.ended = true;
                self.end_unknown = label == Some(meta::UNKNOWN);
                // Calls that are open at the regular end are all written.
                if let Some(at_ns) = rows.start_ns.get(row) {
                    self.input.seen = Some(Seen { at_ns, open_after_ns: 0 });
                }
            }
            Some(meta::GPU_ANCHOR) => {
                self.loosest_tie_ns = self.loosest_tie_ns.max(rows.dur_ns.get(row).unwrap_or(0));
            }
            Some(meta::CLOCK_ANCHOR) => {}
            _ => self.skip("unknown_meta", 1),
        }
    }

    fn lane(&mut self, stream: Option<Sym>, device: Option<u32>, thread: Option<u32>) -> Option<Lane> {
        LaneKey::of(device, stream, thread).map(|key| self.lanes.lane(key))
    }

    fn times(&mut self, rows: &Rows, row: usize) -> Times {
        let (start, dur) = match (rows.start_ns.get(row), rows.dur_ns.get(row)) {
            (Some(start), Some(dur)) => (start, dur),
            (None, Some(dur)) if dur >= 0 => return Times::Length(dur),
            _ => return Times::None,
        };
        let Some(end) = start.checked_add(dur) else {
            self.skip("time_out_of_range", 1);
            return Times::OutOfRange;
        };
        if dur < 0 {
            self.anomaly("end_before_start");
        }
        self.last_ns = self.last_ns.max(Some(end));
        Times::Known(start, end)
    }

    /// Puts what waited on its tracks and says what a reader of the report has to know of the file.
    pub fn finish(mut self, builder: &mut Builder, about: Input) {
        let rank = self.rank;
        let cutter = std::mem::take(&mut self.lanes).finish();
        for PendingCompute { device, lane, interval, label } in std::mem::take(&mut self.compute) {
            let (track, _) = builder.track(rank, device);
            cutter.cut(lane, interval.start_ns, interval.end_ns, |start_ns, end_ns| {
                track.compute.push_labelled(Compute { start_ns, end_ns, ..interval }, label);
            });
        }
        if cutter.nested > 0 {
            self.input.anomalies.insert("nested_comm".to_owned(), cutter.nested);
            builder.warn(format!(
                "Rank {rank} has {} communication spans with other communication inside: sums over events \
                 count that time twice, figures under `wall` do not.",
                cutter.nested
            ));
        }
        self.place_open(builder);
        if let Some(last_ns) = self.last_ns {
            let (unix_ns, mono_ns) = self.start_ns;
            builder.process_end(rank, unix_ns.saturating_add(last_ns.saturating_sub(mono_ns)));
        }
        builder.set_clock(rank, self.clock);
        self.warn_of_losses(builder, &about.path);
        builder.input(Input {
            path: about.path,
            format: about.format,
            rank: about.rank,
            ended: (!self.end_unknown).then_some(self.ended),
            ..self.input
        });
    }

    /// Puts the calls that never ended on their tracks.
    fn place_open(&mut self, builder: &mut Builder) {
        let mut open: Vec<(u64, (Option<u32>, Open))> = std::mem::take(&mut self.open).into_iter().collect();
        // The row of the finished interval may precede the open one: they come from several queues.
        let starts: HashSet<(i64, Sym)> =
            open.iter().filter_map(|(_, (_, open))| Some((open.start_ns?, open.name))).collect();
        let finished = builder.finished(self.rank, &starts);
        open.retain(|(_, (_, open))| {
            open.start_ns.is_none_or(|start_ns| !finished.contains(&(start_ns, open.name)))
        });
        open.sort_by_key(|(span, (_, open))| (open.start_ns, *span));
        if open.is_empty() {
            return;
        }
        let mut text = Vec::new();
        for (_, (device, open)) in &open {
            let (track, names) = builder.track(self.rank, *device);
            track.open.push(*open);
            if text.len() < NAMED {
                let mut call = names.get(open.name).to_owned();
                if let Some(comm) = open.comm {
                    call.push_str(&format!(" on {}", names.get(comm)));
                }
                if let Some(seq) = open.seq {
                    call.push_str(&format!(", seq {seq}"));
                }
                if let Some(step) = open.step {
                    call.push_str(&format!(", step {step}"));
                }
                text.push(call);
            }
        }
        let more = open.len() - text.len();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        self.input.anomalies.insert("open".to_owned(), open.len() as u64);
        builder.warn(format!(
            "Rank {} had begun and not ended when its recording stopped: {}{more}.",
            self.rank,
            text.join("; ")
        ));
    }

    fn warn_of_losses(&self, builder: &mut Builder, path: &str) {
        let rank = self.rank;
        if self.loosest_tie_ns > LOOSE_TIE_NS {
            builder.warn(format!(
                "Rank {rank}: the GPU's clock was at times tied to the host's only to within {:.1} ms; GPU-timed \
                 intervals may lie that far off beside host-timed ones. Their lengths are not affected.",
                self.loosest_tie_ns as f64 / 1e6
            ));
        }
        if self.untimed_compute.count > 0 {
            builder.warn(compute_warning(rank, &self.untimed_compute));
        }
        if !self.ended {
            builder.warn(format!(
                "Rank {rank} did not end regularly: {path} has no end row, so the process was killed or is \
                 still running, and its last intervals may be missing."
            ));
        }
        if self.input.dropped > 0 {
            let reasons: Vec<String> =
                self.drops.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
            builder.warn(format!(
                "Rank {rank} lost {} records while recording ({}); its times and counts are too small by \
                 these.",
                self.input.dropped,
                reasons.join(", ")
            ));
        }
        if self.input.peer_bytes_dropped > 0 {
            builder.warn(peer_bytes_warning(self.input.peer_bytes_dropped));
        }
        if let Some(capped) = &self.input.capped {
            let limit = capped.limit_mib.map_or(String::new(), |limit| format!(" of {limit} MiB"));
            builder.warn(format!(
                "Rank {rank} reached its size limit{limit} (COMMTRACE_MAX_MB): later intervals are not in \
                 {path}."
            ));
        }
    }
}

fn process(header: &Header) -> Process {
    Process {
        host: header.host.clone(),
        boot_id: header.boot_id.clone(),
        pid: header.pid,
        start_unix_ns: header.start_unix_ns,
        start_ns: header.start_mono_ns,
    }
}

enum Times {
    Known(i64, i64),
    /// Counted as skipped.
    OutOfRange,
    /// A communication that has a length and no place in time.
    Length(i64),
    None,
}
