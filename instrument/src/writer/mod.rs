//! The writer thread: from the threads' rings to record files and running aggregates.

mod exchanges;
#[cfg(feature = "cuda")]
mod gpu;

use crate::clock::{self, Anchor, Calibration};
use crate::config::Config;
use crate::intern::{NO_SYM, Sym};
use crate::message::say;
use crate::queue::{RawRecord, Ring};
use crate::record_files::{self, RecordFiles};
use crate::recorder::Recorder;
use crate::shutdown::{self, Run};
use crate::spans::{Kind, NO_STEP, NO_U32, NO_U64, SpanCell, SpanFields};
use commtrace_report::aggregate::Aggregator;
use commtrace_report::gather::Sampler;
use commtrace_report::record::{Header, Row, RowKind, meta};
use exchanges::Exchanges;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Writer {
    recorder: Arc<Recorder>,
    config: Config,
    rings: Vec<Ring>,
    /// A copy of the interner's strings, read without a lock.
    strings: Vec<Arc<str>>,
    calibration: Calibration,
    last_anchor: Instant,
    files: Option<RecordFiles>,
    aggregator: Aggregator,
    sampler: Sampler,
    /// What is known of this process.
    header: Header,
    /// Ranks that recorded something.
    ranks: BTreeSet<u32>,
    /// Spans that were written as open, so that each is written once.
    announced: HashSet<u64>,
    /// Drops already written as rows.
    dropped_written: u64,
    untracked_written: u64,
    since_advance: usize,
    exchanges: Exchanges,
}

/// A collective that is still open after this long is written as open, even between long flushes.
const OPEN_AFTER: Duration = Duration::from_secs(1);
const OPEN_AFTER_NS: i64 = OPEN_AFTER.as_nanos() as i64;

/// Time between anchors: extending the last pair by this much costs nanoseconds.
const ANCHOR_INTERVAL: Duration = Duration::from_millis(10);

/// Records after which the aggregates are brought up to date, whatever the flush interval.
const ADVANCE_AFTER: usize = 1 << 16;

/// Rows kept for figures across ranks that share no folder: some MiB.
const SAMPLED_ROWS: usize = 1 << 14;

/// A thread announces that it enters a span before it reads the clock, with a plain store. Starts
/// within this time before now may still be announced in the thread's store buffer; it drains within
/// a microsecond.
const SETTLED_NS: i64 = 1_000_000;

impl Writer {
    /// Starts the thread.
    pub fn spawn(recorder: Arc<Recorder>, config: Config, files: Option<RecordFiles>) -> io::Result<()> {
        let calibration = Calibration::new(Anchor::now());
        let aggregator = Aggregator::new(Default::default());
        let header =
            files.as_ref().map_or_else(|| record_files::header(&config), |files| files.header().clone());
        let shared = Arc::clone(&recorder);
        let thread = std::thread::Builder::new().name("commtrace-writer".to_owned()).spawn(move || {
            let mut writer = Self {
                recorder: Arc::clone(&shared),
                config,
                rings: Vec::new(),
                strings: Vec::new(),
                calibration,
                last_anchor: Instant::now(),
                files,
                aggregator,
                sampler: Sampler::new(SAMPLED_ROWS),
                header,
                ranks: BTreeSet::new(),
                announced: HashSet::new(),
                dropped_written: 0,
                untracked_written: 0,
                since_advance: 0,
                exchanges: Exchanges::default(),
            };
            writer.ranks.extend(writer.config.launch.rank);
            // A fault of ours must neither take the application down nor let its end wait.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || writer.run()));
            if outcome.is_err() {
                shared.active.store(false, Ordering::SeqCst);
            }
            {
                let mut control = shared.control();
                control.failed = outcome.is_err();
                control.done = true;
            }
            shared.notify();
            if outcome.is_err() {
                say(format_args!(
                    "the writer thread failed; the run is no longer recorded. This is a bug of commtrace."
                ));
            }
        })?;
        recorder.set_writer(thread.thread().clone());
        Ok(())
    }

    fn run(mut self) {
        // A rank that has nothing to record yet is there all the same.
        if let (Some(files), Some(rank)) = (&mut self.files, self.config.launch.rank) {
            files.ensure(rank);
        }
        let mut next_flush = Instant::now() + self.config.flush;
        let mut next_look = Instant::now() + OPEN_AFTER;
        loop {
            let wake = next_flush.min(next_look);
            std::thread::park_timeout(wake.saturating_duration_since(Instant::now()));
            let (flush_wanted, flush_done, finish, discard) = {
                let control = self.recorder.control();
                (control.flush_wanted, control.flush_done, control.finish, control.discard)
            };
            if finish {
                if !discard {
                    self.finish();
                }
                return;
            }
            // What hangs is to be on disk soon, however seldom all the rest is written.
            let look = Instant::now() >= next_look;
            let hangs = look && self.hangs();
            if look {
                next_look = Instant::now() + OPEN_AFTER;
            }
            if hangs || flush_wanted > flush_done || Instant::now() >= next_flush {
                #[cfg(feature = "cuda")]
                if flush_wanted > flush_done {
                    gpu::catch_up(&self.recorder);
                }
                self.flush();
                next_flush = Instant::now() + self.config.flush;
                if flush_wanted > flush_done {
                    self.recorder.control().flush_done = flush_wanted;
                    self.recorder.notify();
                }
            } else {
                self.drain();
            }
        }
    }

    /// Takes everything out of the rings. Returns the instant before which all intervals have been
    /// seen, `None` if a thread was just entering a span.
    fn drain(&mut self) -> Option<i64> {
        self.recorder.prune_tables_if_many();
        self.take_anchor();
        // Before the rings are looked at: what ends later starts after this.
        let watermark = self.watermark();
        self.rings.extend(self.recorder.queue.take_new_rings());
        let mut rings = std::mem::take(&mut self.rings);
        let (mut drained, mut timed) = (0, 0);
        for ring in &mut rings {
            // Only what is there now: a busy thread must not keep the others waiting.
            let ready = ring.records.slots();
            // What was sent before these records is there by now.
            self.exchanges.take(&self.recorder.exchanges);
            if let Ok(chunk) = ring.records.read_chunk(ready) {
                drained += ready;
                for record in chunk {
                    timed += u64::from(self.accept(&record));
                }
            }
        }
        self.recorder.queue.retire(&mut rings);
        self.rings = rings;
        self.recorder.recorded.fetch_add(timed, Ordering::Relaxed);
        self.recorder.untimed.fetch_add(drained as u64 - timed, Ordering::Relaxed);
        self.since_advance += drained;
        if let Some(watermark) = watermark
            && self.since_advance >= ADVANCE_AFTER
        {
            self.advance(watermark);
        }
        watermark
    }

    /// The instant before which no interval starts that is not yet in a ring, `None` if a thread is just
    /// reading the clock for one.
    fn watermark(&self) -> Option<i64> {
        let now = clock::ticks();
        let until = self.calibration.to_ns(self.recorder.entered_until()?);
        let settled = self.calibration.to_ns(now).saturating_sub(SETTLED_NS);
        let watermark = settled.min(until);
        #[cfg(feature = "cuda")]
        let watermark = gpu::hold_back(&self.recorder, &self.calibration, watermark);
        Some(watermark)
    }

    fn advance(&mut self, watermark_ns: i64) {
        self.aggregator.advance(watermark_ns);
        self.since_advance = 0;
    }

    fn take_anchor(&mut self) {
        if self.last_anchor.elapsed() >= ANCHOR_INTERVAL || self.calibration.is_single() {
            self.calibration.push(Anchor::now());
            self.last_anchor = Instant::now();
        }
    }

    /// Passes a record on. Returns whether it has a time.
    fn accept(&mut self, record: &RawRecord) -> bool {
        let fields = &record.words.unpack();
        self.update_strings(fields);
        let (times, reason) = self.times(record, fields.kind);
        let exchange = if fields.kind.is_comm() { self.exchanges.of(fields) } else { None };
        let row = Row {
            start_ns: times.map(|(start_ns, _)| start_ns),
            dur_ns: times.map(|(_, dur_ns)| dur_ns),
            thread: Some(record.thread),
            device: (record.device != NO_U32).then_some(record.device),
            untimed: reason.as_deref(),
            ..row(row_kind(fields.kind), fields, &self.strings)
        };
        let row = exchange.as_deref().map_or(row, |exchange| exchanges::with(row, exchange));
        self.aggregator.push(fields.rank, &row);
        self.sampler.push(fields.rank, &row);
        if let Some(files) = &mut self.files {
            files.push(fields.rank, &row);
        }
        self.ranks.insert(fields.rank);
        times.is_some()
    }

    /// Start and length of an interval, or why it has none.
    fn times(&self, record: &RawRecord, kind: Kind) -> (Option<(i64, i64)>, Option<Cow<'static, str>>) {
        #[cfg(feature = "cuda")]
        if kind.is_gpu() {
            return gpu::times(record);
        }
        debug_assert!(!kind.is_gpu());
        let start_ns = self.calibration.to_ns(record.start);
        let dur_ns = self.calibration.to_ns(record.end).saturating_sub(start_ns).max(0);
        (Some((start_ns, dur_ns)), None)
    }

    /// Fetches strings that were interned since the last time, if `fields` has one of them.
    fn update_strings(&mut self, fields: &SpanFields) {
        let known = self.strings.len() as Sym;
        let is_new = |sym: Sym| sym != NO_SYM && sym >= known;
        if [fields.name, fields.label, fields.comm, fields.stream, fields.dtype].into_iter().any(is_new) {
            self.recorder.interner.extend(&mut self.strings);
        }
    }

    fn flush(&mut self) {
        self.calibration.push(Anchor::now());
        self.last_anchor = Instant::now();
        // Between reading the clock for its end and the ring, a call is in neither.
        let seen_ns = clock::monotonic_ns().saturating_sub(SETTLED_NS);
        // Before the rings are emptied: what ends in between is written twice, not left out.
        self.write_open_spans(OPEN_AFTER);
        if let Some(watermark) = self.drain() {
            self.advance(watermark);
        }
        self.write_learned();
        if let Some(files) = &mut self.files {
            #[cfg(feature = "cuda")]
            let lag_ns = gpu::lag_ns(&self.recorder);
            #[cfg(not(feature = "cuda"))]
            let lag_ns = 0;
            files.seen(seen_ns, OPEN_AFTER_NS + lag_ns);
            files.flush();
        }
        self.recorder.prune_tables();
    }

    /// Writes the collectives and steps that are entered since at least `age`: if the process is
    /// killed, this is how the report knows what it hung in.
    fn write_open_spans(&mut self, age: Duration) {
        let open = self.open_spans();
        let Some(files) = &mut self.files else { return };
        let now = clock::monotonic_ns();
        let age_ns = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
        self.announced.retain(|span| open.iter().any(|(_, fields)| fields.span == *span));
        self.recorder.interner.extend(&mut self.strings);
        for (since, fields) in &open {
            let start_ns = self.calibration.to_ns(*since);
            if now.saturating_sub(start_ns) >= age_ns && self.announced.insert(fields.span) {
                let row = row(RowKind::Open, fields, &self.strings);
                files.push(fields.rank, &Row { start_ns: Some(start_ns), ..row });
            }
        }
    }

    /// Whether a collective is entered for long and not yet written as open. Steps may be long.
    fn hangs(&self) -> bool {
        let now = clock::monotonic_ns();
        self.files.is_some()
            && self.open_spans().iter().any(|(since, fields)| {
                fields.kind.is_comm()
                    && now.saturating_sub(self.calibration.to_ns(*since)) >= OPEN_AFTER_NS
                    && !self.announced.contains(&fields.span)
            })
    }

    /// The collectives and steps that are entered, and since when (in ticks).
    fn open_spans(&self) -> Vec<(u64, SpanFields)> {
        let mut open: Vec<(u64, SpanFields)> = Vec::new();
        let mut collect = |cell: &SpanCell| {
            if let Some(since) = cell.entered() {
                #[cfg_attr(not(feature = "cuda"), allow(unused_mut))]
                let mut fields = cell.load().unpack();
                #[cfg(feature = "cuda")]
                gpu::label_stream(&self.recorder, &mut fields);
                if fields.kind.is_comm() || fields.kind == Kind::Step {
                    open.push((since, fields));
                }
            }
        };
        {
            let tables = self.recorder.tables.read().unwrap_or_else(PoisonError::into_inner);
            tables.iter().flat_map(|table| table.live()).for_each(&mut collect);
        }
        self.recorder.overflow.for_each(&mut collect);
        #[cfg(feature = "cuda")]
        gpu::add_overdue(&self.recorder, &mut open);
        open
    }

    /// Writes communicators and losses that became known.
    fn write_learned(&mut self) {
        #[cfg(feature = "cuda")]
        self.write_gpu_anchors();
        let stats = self.recorder.stats();
        let lost = [
            ("queue full", stats.dropped, &mut self.dropped_written),
            ("too many spans alive", stats.untracked_spans, &mut self.untracked_written),
        ];
        for (reason, total, written) in lost {
            let new = total - *written;
            if new == 0 {
                continue;
            }
            *written = total;
            self.aggregator.dropped(new);
            // Losses are counted per process; the first rank's file carries them.
            if let (Some(files), Some(&rank)) = (&mut self.files, self.ranks.first()) {
                let value = i64::try_from(new).ok();
                files.push_meta(
                    rank,
                    &Row { value, label: Some(reason), ..Row::new(RowKind::Meta, meta::DROPPED) },
                );
            }
        }
        self.write_lost_exchanges();
        for communicator in self.recorder.take_communicators() {
            let members: Vec<String> = communicator.ranks.iter().map(u32::to_string).collect();
            let members = members.join(",");
            let row = Row {
                label: Some(&members),
                comm: Some(&communicator.name),
                comm_size: u32::try_from(communicator.ranks.len()).ok(),
                comm_rank: Some(communicator.comm_rank),
                ..Row::new(RowKind::Meta, meta::COMMUNICATOR)
            };
            let wanted = self.recorder.wanted_ranks.as_ref();
            if wanted.is_none_or(|ranks| ranks.contains(&communicator.rank)) {
                self.sampler.push(communicator.rank, &row);
                if let Some(files) = &mut self.files {
                    files.push_meta(communicator.rank, &row);
                }
            }
        }
    }

    fn finish(mut self) {
        #[cfg(feature = "cuda")]
        self.finish_gpu();
        self.flush();
        // Threads that were pushing when recording was switched off.
        while self.rings.iter().any(|ring| !ring.records.is_empty()) {
            self.drain();
        }
        self.write_open_spans(Duration::ZERO);
        self.write_learned();
        let run = Run { recorder: self.recorder, config: self.config, files: self.files, ranks: self.ranks };
        shutdown::end(run, self.aggregator, self.sampler, self.header);
    }
}

fn row_kind(kind: Kind) -> RowKind {
    if kind.is_comm() {
        RowKind::Comm
    } else if kind.is_step() {
        RowKind::Step
    } else {
        RowKind::Compute
    }
}

/// The columns that come from a span's fields.
fn row<'a>(kind: RowKind, fields: &SpanFields, strings: &'a [Arc<str>]) -> Row<'a> {
    let text = |sym: Sym| strings.get(sym as usize).map(|text| &**text);
    let small = |number: u32| (number != NO_U32).then_some(number);
    let large = |number: u64| (number != NO_U64).then_some(number);
    Row {
        label: text(fields.label),
        bytes: large(fields.bytes),
        comm: text(fields.comm),
        comm_size: small(fields.comm_size),
        comm_rank: small(fields.comm_rank),
        seq: large(fields.seq),
        peer: small(fields.peer),
        dtype: text(fields.dtype),
        stream: text(fields.stream),
        step: (fields.step != NO_STEP).then_some(fields.step),
        span: large(fields.span),
        ..Row::new(kind, text(fields.name).unwrap_or(""))
    }
}
