//! Dumps of the NCCL Inspector, NCCL's profiler plugin: one JSON object per operation.
//!
//! Format: `inspector_json.cc` of NCCL 2.28 to 2.30 (format version 4.0). A dump says how long an
//! operation took, by the GPU's clock where it can; only a verbose one also says when it ran.

mod record;
mod records;

use super::compress::Opened;
use super::fragment::{Fragment, RankSource};
use super::rank_name::RankName;
use super::{ReadError, ReadOptions};
use crate::nccl::{Inspector, InspectorComm, InspectorOp, algbw_gbs, busbw_factor};
use crate::timeline::{Comm, Input, Sym, Timeline, Track};
use indexmap::IndexMap;
use record::{Event, Record};
use records::Records;
use std::path::Path;

/// Communicators of which figures are kept.
const MOST: usize = 1 << 16;

/// Whether a JSON document that begins with `start` is such a dump.
pub(super) fn matches(start: &[u8]) -> bool {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    if !start.starts_with(b"{") {
        return false;
    }
    let text = String::from_utf8_lossy(start);
    let has = |key: &str| text.contains(key);
    // Other documents have headers, too. A tool that sorts keys puts the figures first.
    has("\"coll_perf\"") || has("\"p2p_perf\"") || has("\"header\"") && has("\"n_ranks\"")
}

/// Reads the dump `path`, which was opened.
pub(super) fn read(path: &Path, opened: Opened<'_>, options: &ReadOptions) -> Result<Fragment, ReadError> {
    let name = RankName::new(options).map_err(|source| ReadError::Pattern { source })?;
    let shown = path.display().to_string();
    let mut records = Records::new(opened.reader);
    let mut dump = Dump::default();
    while let Some(bytes) = records.next() {
        let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Record<'_>>();
        for record in values.by_ref() {
            let Ok(record) = record else {
                dump.skip("malformed");
                break;
            };
            match record.event() {
                Ok(event) => dump.add(&event),
                Err(reason) => dump.skip(reason),
            }
        }
    }
    let mut warnings = Vec::new();
    for (reason, count) in
        [("torn", records.torn), ("malformed", records.malformed), ("too_long", records.too_long)]
    {
        if count > 0 {
            *dump.skipped.entry(reason).or_default() += count;
        }
    }
    let mut truncated = false;
    if let Some((at, fault)) = records.cut() {
        truncated = true;
        let why = match fault {
            Some(error) => format!("cannot be read beyond byte {at} of its content ({error})"),
            None => format!("ends within the record at byte {at} of its content"),
        };
        warnings.push(format!(
            "{shown} {why}: the program may have been stopped while it wrote; the records up to there were read."
        ));
    }
    let given = name.is_given().then(|| name.rank(path)).flatten();
    Ok(dump.finish(shown, given, truncated, warnings))
}

/// What was read of a dump.
#[derive(Default)]
struct Dump {
    timeline: Timeline,
    /// Per host and process.
    processes: IndexMap<(String, u64), Process>,
    facts: Inspector,
    figures: IndexMap<(String, u64, String, u32), usize>,
    skipped: IndexMap<&'static str, u64>,
    placed: u64,
    unplaced: u64,
}

/// One process.
struct Process {
    track: Track,
    /// Size of the largest communicator, and the rank in it.
    largest: (u32, u32),
}

impl Dump {
    fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    fn add(&mut self, event: &Event<'_>) {
        let names = &mut self.timeline.names;
        let key = (event.host.to_owned(), event.pid);
        let process = self.processes.entry(key).or_insert_with(|| {
            let clock: Option<Sym> = (!event.host.is_empty()).then(|| names.intern(event.host));
            Process { track: Track { clock, ..Track::new(0, None) }, largest: (0, 0) }
        });
        if event.nranks > process.largest.0 {
            process.largest = (event.nranks, event.rank);
        }
        let op = match event.op {
            Some(op) => op.as_str(),
            None => event.name,
        };
        let numbered = event.seq.filter(|_| !event.point_to_point);
        // NCCL counts the operations of a kind, not those of a communicator.
        let communicator = match numbered {
            Some(_) => format!("{}/{op}", event.comm),
            None => event.comm.to_owned(),
        };
        let (start_ns, end_ns) = match event.start_ns {
            Some(start) => (start, start.saturating_add(event.duration_ns)),
            None => (0, event.duration_ns),
        };
        let comm = Comm {
            bytes: event.payload,
            comm: (!event.comm.is_empty()).then(|| names.intern(&communicator)),
            algorithm: event.algorithm.as_deref().map(|algorithm| names.intern(algorithm)),
            protocol: event.protocol.as_deref().map(|protocol| names.intern(protocol)),
            seq: numbered,
            comm_size: Some(event.nranks),
            comm_rank: Some(event.rank),
            peer: event.peer,
            ..Comm::new(names.intern(op), start_ns, end_ns)
        };
        if event.start_ns.is_some() {
            self.placed += 1;
            process.track.comm.push(comm);
        } else {
            self.unplaced += 1;
            process.track.unplaced.push(comm);
        }
        self.count(event, op);
    }

    /// Adds to the figures per communicator.
    fn count(&mut self, event: &Event<'_>, op: &str) {
        if self.facts.format_version.is_none() {
            self.facts.format_version =
                event.format_version.map(|version| version.chars().take(32).collect());
        }
        let sources = &mut self.facts.timing_sources;
        let source = event.timing_source.unwrap_or("unknown");
        if sources.len() < 16 || sources.contains_key(source) {
            *sources.entry(source.to_owned()).or_default() += 1;
        }
        let key = (event.host.to_owned(), event.pid, event.comm.to_owned(), event.rank);
        let next = self.facts.communicators.len();
        if next >= MOST && !self.figures.contains_key(&key) {
            return;
        }
        let at = *self.figures.entry(key).or_insert(next);
        if at == next {
            self.facts.communicators.push(InspectorComm {
                id: event.comm.to_owned(),
                name: event.comm_name.map(str::to_owned),
                nranks: event.nranks,
                nnodes: event.nnodes,
                comm_rank: event.rank,
                host: event.host.to_owned(),
                pid: u32::try_from(event.pid).unwrap_or(u32::MAX),
                by_op: IndexMap::new(),
            });
        }
        let Some(communicator) = self.facts.communicators.get_mut(at) else { return };
        let figures = communicator.by_op.entry(op.to_owned()).or_default();
        figures.count += 1;
        figures.bytes = figures.bytes.saturating_add(event.payload.unwrap_or(0));
        figures.time_ms += event.duration_ns as f64 / 1e6;
        let busbw = event.busbw_gbs.filter(|busbw| *busbw > 0.0);
        let extreme = |known: Option<f64>, pick: fn(f64, f64) -> f64| match (known, busbw) {
            (Some(known), Some(busbw)) => Some(pick(known, busbw)),
            (known, busbw) => known.or(busbw),
        };
        figures.min_busbw_gbs = extreme(figures.min_busbw_gbs, f64::min);
        figures.max_busbw_gbs = extreme(figures.max_busbw_gbs, f64::max);
    }

    fn finish(
        mut self,
        path: String,
        given: Option<u32>,
        truncated: bool,
        mut warnings: Vec<String>,
    ) -> Fragment {
        for communicator in &mut self.facts.communicators {
            let nranks = communicator.nranks;
            for (op, figures) in &mut communicator.by_op {
                bandwidths(op, figures, nranks);
            }
        }
        self.facts.positions = self.placed > 0 && self.unplaced == 0;
        if self.unplaced > 0 {
            warnings.push(format!(
                "{path}: {} has a duration and no place in time, so it is not known how much was hidden by \
                 compute: exposed time is unknown, not 0. NCCL_INSPECTOR_DUMP_VERBOSE=1 adds the times.",
                if self.placed > 0 {
                    format!("part of the communication ({} calls)", self.unplaced)
                } else {
                    "communication".to_owned()
                }
            ));
        }
        if self.placed > 0 {
            warnings.push(format!(
                "{path}: the NCCL Inspector records no compute; without an input that does, all of its \
                 communication counts as exposed."
            ));
        }
        let single = self.processes.len() <= 1;
        let largest = self.processes.values().map(|process| process.largest).max();
        let mut timeline = self.timeline;
        // Processes of one file that claim the same rank are told apart by their order.
        let mut taken = std::collections::BTreeSet::new();
        for (_, process) in self.processes {
            let mut track = process.track;
            let claimed = process.largest.1;
            track.rank = if taken.contains(&claimed) {
                (0..u32::MAX).find(|rank| !taken.contains(rank)).unwrap_or(claimed)
            } else {
                claimed
            };
            taken.insert(track.rank);
            timeline.tracks.push(track);
        }
        timeline.world_size = largest.map(|(nranks, _)| nranks);
        let mut anomalies = IndexMap::new();
        if truncated {
            anomalies.insert("truncated".to_owned(), 1);
        }
        timeline.inputs.push(Input {
            path,
            format: "nccl-inspector".to_owned(),
            events: self.placed + self.unplaced,
            skipped: self.skipped.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect(),
            anomalies,
            inspector: Some(Box::new(self.facts)),
            ..Input::default()
        });
        timeline.warnings = warnings;
        let rank = match (single, given, largest) {
            (true, Some(rank), _) => RankSource::File(rank),
            (true, None, Some((_, rank))) => RankSource::Claimed(rank),
            _ => RankSource::Tracks,
        };
        Fragment { timeline, rank }
    }
}

fn bandwidths(op: &str, figures: &mut InspectorOp, nranks: u32) {
    figures.algbw_gbs = algbw_gbs(figures.bytes, figures.time_ms).filter(|_| figures.bytes > 0);
    let factor = busbw_factor(op, nranks);
    figures.busbw_gbs = figures.algbw_gbs.zip(factor).map(|(algbw, factor)| algbw * factor);
}
