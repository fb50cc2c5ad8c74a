//! A report from rows as they come, in bounded memory: no record is kept once its time has passed.
//!
//! Intervals wait in a queue until a watermark says that nothing earlier will come; then a sweep over
//! their starts and ends keeps, per rank and device, the compute time so far. What a communication
//! interval overlaps is the difference of that integral between its end and its start. The figures are
//! those of [`analyze`](crate::analyze::analyze) on the whole record, within the limits that warnings
//! name.

mod collectives;
mod queue;
mod report;
mod steps;
mod stragglers;
mod track;

use crate::analyze::{AnalyzeOptions, Report, RoutedCall};
use crate::read::lanes::LaneKey;
use crate::record::{Row, RowKind, meta};
use crate::timeline::{Names, Untimed};
use collectives::Collectives;
use indexmap::IndexMap;
use queue::{Call, Interval, Kind, Queue, Span};
use std::collections::BTreeMap;
use track::TrackState;

/// Adds rows up to a [`Report`].
///
/// ```
/// use commtrace_report::aggregate::Aggregator;
/// use commtrace_report::analyze::AnalyzeOptions;
/// use commtrace_report::record::{Row, RowKind};
///
/// let interval = |kind, name, start, dur| Row {
///     start_ns: Some(start),
///     dur_ns: Some(dur),
///     ..Row::new(kind, name)
/// };
/// let mut aggregator = Aggregator::new(AnalyzeOptions::default());
/// aggregator.push(0, &interval(RowKind::Compute, "forward", 0, 2_000_000));
/// aggregator.push(0, &interval(RowKind::Comm, "all_reduce", 1_000_000, 1_500_000));
/// aggregator.advance(3_000_000);
/// let report = aggregator.finish();
/// assert_eq!(report.ranks[0].summary.exposed_comm_time, Some(0.5));
/// ```
#[derive(Debug)]
pub struct Aggregator {
    options: AnalyzeOptions,
    names: Names,
    queue: Queue,
    ranks: BTreeMap<u32, RankState>,
    tracks: Vec<TrackState>,
    collectives: Collectives,
    /// Nothing that starts before this is still to come.
    watermark_ns: i64,
    /// Earliest start of all, which steps' starts are counted from.
    base_ns: Option<i64>,
    events: u64,
    reversed: u64,
    late: u64,
    lost: u64,
    /// Calls of which it was lost how their bytes spread over ranks.
    lost_peer_bytes: u64,
    skipped: IndexMap<String, u64>,
    /// Per rank.
    untimed_compute: BTreeMap<u32, Untimed>,
}

/// Where a rank's intervals go.
#[derive(Debug)]
struct RankState {
    /// The track of what the host timed and of the rank's only device.
    joint: usize,
    device: Option<u32>,
    /// Once the rank has several devices: those after the first, and the host alone.
    others: BTreeMap<Option<u32>, usize>,
}

impl RankState {
    fn tracks(&self) -> impl Iterator<Item = usize> + '_ {
        std::iter::once(self.joint).chain(self.others.values().copied())
    }
}

impl Aggregator {
    /// An aggregator without rows. Of `options`, the thresholds of the advice apply.
    pub fn new(options: AnalyzeOptions) -> Self {
        Self {
            options,
            names: Names::default(),
            queue: Queue::default(),
            ranks: BTreeMap::new(),
            tracks: Vec::new(),
            collectives: Collectives::default(),
            watermark_ns: i64::MIN,
            base_ns: None,
            events: 0,
            reversed: 0,
            late: 0,
            lost: 0,
            lost_peer_bytes: 0,
            skipped: IndexMap::new(),
            untimed_compute: BTreeMap::new(),
        }
    }

    /// Adds a row of `rank`: a finished interval, in any order as long as it does not start before the
    /// last [watermark](Self::advance).
    ///
    /// An interval that does start earlier is counted in full, but its part before the watermark
    /// neither hides anything nor is hidden; a warning says how many there were. Open rows are passed
    /// over; of meta rows, drops are counted.
    pub fn push(&mut self, rank: u32, row: &Row<'_>) {
        let reason = match row.kind {
            RowKind::Open => return,
            RowKind::Meta => {
                let count = row.value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0);
                match row.name {
                    meta::DROPPED => self.dropped(count),
                    meta::PEER_BYTES_DROPPED => {
                        self.lost_peer_bytes = self.lost_peer_bytes.saturating_add(count);
                    }
                    _ => {}
                }
                return;
            }
            RowKind::Compute => "compute_without_time",
            RowKind::Comm => "comm_without_time",
            RowKind::Step => "step_without_time",
        };
        let (Some(start_ns), Some(dur_ns)) = (row.start_ns, row.dur_ns) else {
            if row.kind == RowKind::Comm {
                let track = self.track(rank, row.device);
                self.tracks[track].untimed.add(row.untimed.unwrap_or("unknown"), row.bytes);
                self.events += 1;
            } else {
                if let (RowKind::Compute, Some(reason)) = (row.kind, row.untimed) {
                    self.untimed_compute.entry(rank).or_default().add(reason, None);
                }
                self.skip(reason);
            }
            return;
        };
        let Some(end_ns) = start_ns.checked_add(dur_ns) else { return self.skip("time_out_of_range") };
        match row.kind {
            RowKind::Step => self.push_step(rank, row.step, start_ns, end_ns),
            RowKind::Comm => self.push_interval(rank, row, Kind::Comm, start_ns, end_ns),
            _ => self.push_interval(rank, row, Kind::Compute, start_ns, end_ns),
        }
    }

    /// Counts records that were lost before they could be pushed.
    pub fn dropped(&mut self, records: u64) {
        self.lost = self.lost.saturating_add(records);
    }

    /// States that no interval that starts before `watermark_ns` is still to come: everything before
    /// it is final and leaves the queue. A watermark before the last one does nothing.
    pub fn advance(&mut self, watermark_ns: i64) {
        if watermark_ns > self.watermark_ns {
            self.watermark_ns = watermark_ns;
            self.sweep(Some(watermark_ns));
        }
    }

    /// The earliest start so far, which the steps' starts in the report are counted from.
    pub fn base_ns(&self) -> Option<i64> {
        self.base_ns
    }

    /// The report over all rows.
    pub fn finish(mut self) -> Report {
        self.sweep(None);
        self.report()
    }

    fn skip(&mut self, reason: &str) {
        *self.skipped.entry(reason.to_owned()).or_default() += 1;
    }

    /// Notes the time of an interval; one that ends before it starts has a wrong one.
    fn see(&mut self, start_ns: i64, end_ns: i64) {
        self.events += 1;
        if start_ns <= end_ns {
            self.base_ns = Some(self.base_ns.map_or(start_ns, |base| base.min(start_ns)));
        }
    }

    fn push_step(&mut self, rank: u32, step: Option<i64>, start_ns: i64, end_ns: i64) {
        let Some(step) = step else { return self.skip("step_without_number") };
        self.track(rank, None);
        self.see(start_ns, end_ns);
        for track in self.ranks.get(&rank).into_iter().flat_map(RankState::tracks) {
            self.tracks[track].steps.record(step, start_ns, end_ns);
        }
    }

    fn push_interval(&mut self, rank: u32, row: &Row<'_>, kind: Kind, start_ns: i64, end_ns: i64) {
        let track = self.track(rank, row.device);
        self.see(start_ns, end_ns);
        self.reversed += u64::from(end_ns < start_ns);
        self.late += u64::from(start_ns < self.watermark_ns && start_ns < end_ns);
        self.tracks[track].see(start_ns, end_ns);
        let names = &mut self.names;
        let stream = row.stream.filter(|_| row.device.is_some()).map(|stream| names.intern(stream));
        let call = (kind == Kind::Comm).then(|| {
            let op = names.intern(row.name);
            let comm = row.comm.map(|comm| names.intern(comm));
            let routed = RoutedCall { op, comm, comm_size: row.comm_size, comm_rank: row.comm_rank };
            self.tracks[track].routing.add(routed, row.exchange(), names);
            Box::new(Call {
                op,
                slot: self.tracks[track].summary.slot(row.name),
                synchronizing: self.collectives.declare(op, row.name),
                bytes: row.bytes,
                comm,
                seq: row.seq,
                comm_size: row.comm_size,
                dtype: row.dtype.map(|dtype| names.intern(dtype)),
                covered_at_start_ns: 0,
            })
        });
        let span = (kind == Kind::Compute).then(|| Span {
            name: names.intern(row.name),
            label: row.label.map(|label| names.intern(label)),
            cut_at_start_ns: 0,
        });
        self.queue.push(Interval {
            track: track as u32,
            lane: LaneKey::of(row.device, stream, row.thread),
            start_ns,
            end_ns,
            swept_from_ns: start_ns.max(self.watermark_ns),
            step: row.step,
            call,
            span,
        });
        // A span that stays open for the whole run would hold the watermark back for as long.
        if let Some(watermark_ns) = self.queue.forced_watermark() {
            self.advance(watermark_ns);
        }
    }

    /// The track of what `rank` recorded on `device`, or of what its host timed.
    fn track(&mut self, rank: u32, device: Option<u32>) -> usize {
        let tracks = &mut self.tracks;
        let state = self.ranks.entry(rank).or_insert_with(|| {
            tracks.push(TrackState::new(rank, device));
            RankState { joint: tracks.len() - 1, device, others: BTreeMap::new() }
        });
        match (state.device, device) {
            (None, Some(_)) => {
                state.device = device;
                tracks[state.joint].device = device;
                state.joint
            }
            (_, None) if state.others.is_empty() => state.joint,
            (known, device) if known == device => state.joint,
            (_, device) => *state.others.entry(device).or_insert_with(|| {
                let mut track = TrackState::new(rank, device);
                track.steps = tracks[state.joint].steps.recorded_only();
                tracks.push(track);
                tracks.len() - 1
            }),
        }
    }

    /// Sweeps over everything before `before_ns`, or over all that is left.
    fn sweep(&mut self, before_ns: Option<i64>) {
        for point in self.queue.take_before(before_ns) {
            let Some(interval) = self.queue.get_mut(point.id) else { continue };
            let track = interval.track as usize;
            self.tracks[track].advance(point.at_ns);
            if point.begins {
                self.tracks[track].begin(point.at_ns, point.id, interval);
                self.collectives.arrive(point.at_ns, point.id, interval, &mut self.tracks, &self.names);
            }
            // An empty interval has no point for its end.
            if !point.begins || interval.is_empty() {
                self.collectives.stragglers.add_span(interval, &self.tracks[track]);
                let blocked = !self.tracks[track].computes();
                self.tracks[track].end(point.at_ns, point.id, interval);
                self.collectives.leave(point.id, interval, blocked, &self.tracks, &self.names);
                self.queue.remove(point.id);
            }
        }
    }
}
