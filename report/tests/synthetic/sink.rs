//! Where a simulated job goes: a timeline in memory, or record files.

use super::clocks::{Clock, RUN_START_NS};
use super::layout::Layout;
use super::random::Random;
use super::{JobSpec, Truth};
use commtrace_report::record::{Header, RecordError, RecordWriter, Row, RowKind, file_name, meta};
use commtrace_report::timeline::{Comm, Compute, Open, Step, Timeline, Track};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Wall-clock time of the first event.
const RUN_START_UNIX_NS: i64 = 1_750_000_000_000_000_000;
/// Wall clocks of hosts differ by up to this, as those that NTP disciplines do.
const WALL_CLOCK_ERROR_NS: f64 = 2e6;
/// Rows that a record file takes at once.
const BATCH_ROWS: usize = 1024;

/// A communication call.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Its op.
    pub op: &'static str,
    /// Index in [`Layout::communicators`].
    pub comm: usize,
    /// Ranks in the communicator.
    pub comm_size: u32,
    /// The rank's number in it.
    pub comm_rank: u32,
    /// Number of the collective; `None` for point-to-point calls.
    pub seq: Option<u64>,
    /// The other side of a point-to-point call, as a rank of the communicator.
    pub peer: Option<u32>,
    /// Payload.
    pub bytes: u64,
    /// The stream that it runs on.
    pub stream: &'static str,
}

/// Hears what the ranks record, in times of their own clocks. Each rank's calls come in record order.
pub trait Sink {
    /// Before everything else.
    fn begin(&mut self, spec: &JobSpec, layout: &Layout, clocks: &[Clock]);
    /// A compute span.
    fn compute(&mut self, rank: u32, span: &'static str, start_ns: i64, end_ns: i64, step: i64);
    /// A call that ended.
    fn comm(&mut self, rank: u32, call: &Call, start_ns: i64, end_ns: i64, step: i64);
    /// A step that ended.
    fn step(&mut self, rank: u32, step: i64, start_ns: i64, end_ns: i64);
    /// A call that never ended.
    fn open(&mut self, rank: u32, call: &Call, start_ns: i64, step: i64);
    /// The end of a rank's record.
    fn end(&mut self, rank: u32, regularly: bool);
}

/// The job as a timeline, and its truth.
pub fn timeline(spec: &JobSpec) -> (Timeline, Truth) {
    let mut sink = TimelineSink::default();
    let truth = spec.simulate(&mut sink);
    (sink.finish(), truth)
}

/// Writes the job's record files into `folder`, which exists, and tells the truth.
pub fn write_folder(spec: &JobSpec, folder: &Path) -> Result<Truth, RecordError> {
    let mut sink = FolderSink::new(folder);
    let truth = spec.simulate(&mut sink);
    sink.finish()?;
    Ok(truth)
}

/// Builds a timeline as the reader of record files would.
#[derive(Default)]
pub struct TimelineSink {
    timeline: Timeline,
    layout: Option<Layout>,
    recorded: Vec<bool>,
}

impl TimelineSink {
    /// The timeline of all ranks that left a record.
    pub fn finish(mut self) -> Timeline {
        let mut recorded = self.recorded.iter();
        self.timeline.tracks.retain(|_| recorded.next().is_some_and(|&recorded| recorded));
        self.timeline
    }

    fn event(&mut self, call: &Call, start_ns: i64, end_ns: i64, step: i64) -> Comm {
        let name = self.layout.as_ref().map_or("", |layout| &layout.communicators[call.comm].name);
        let names = &mut self.timeline.names;
        Comm {
            bytes: Some(call.bytes),
            comm: Some(names.intern(name)),
            seq: call.seq,
            comm_size: Some(call.comm_size),
            comm_rank: Some(call.comm_rank),
            stream: Some(names.intern(call.stream)),
            peer: call.peer,
            step: Some(step),
            ..Comm::new(names.intern(call.op), start_ns, end_ns)
        }
    }
}

impl Sink for TimelineSink {
    fn begin(&mut self, spec: &JobSpec, layout: &Layout, _: &[Clock]) {
        self.timeline.world_size = Some(spec.world_size());
        for rank in 0..spec.world_size() {
            let mut track = Track::new(rank, Some(0));
            if spec.ranks_per_host.is_some() {
                track.clock = Some(self.timeline.names.intern(&format!("boot-{}", spec.host(rank))));
            }
            self.timeline.tracks.push(track);
            self.recorded.push(spec.recorded(rank));
        }
        for communicator in &layout.communicators {
            let name = self.timeline.names.intern(&communicator.name);
            self.timeline.communicators.insert(name, communicator.members.clone());
        }
        self.layout = Some(layout.clone());
    }

    fn compute(&mut self, rank: u32, span: &'static str, start_ns: i64, end_ns: i64, step: i64) {
        let name = self.timeline.names.intern(span);
        let interval = Compute { name, start_ns, end_ns, step: Some(step) };
        self.timeline.tracks[rank as usize].compute.push(interval);
    }

    fn comm(&mut self, rank: u32, call: &Call, start_ns: i64, end_ns: i64, step: i64) {
        let event = self.event(call, start_ns, end_ns, step);
        self.timeline.tracks[rank as usize].comm.push(event);
    }

    fn step(&mut self, rank: u32, step: i64, start_ns: i64, end_ns: i64) {
        self.timeline.tracks[rank as usize].steps.push(Step { step, start_ns, end_ns });
    }

    fn open(&mut self, rank: u32, call: &Call, start_ns: i64, step: i64) {
        let event = self.event(call, start_ns, start_ns, step);
        self.timeline.tracks[rank as usize].open.push(Open {
            name: event.op,
            start_ns: Some(start_ns),
            bytes: event.bytes,
            comm: event.comm,
            seq: event.seq,
            comm_size: event.comm_size,
            comm_rank: event.comm_rank,
            peer: event.peer,
            dtype: event.dtype,
            step: event.step,
        });
    }

    fn end(&mut self, _: u32, _: bool) {}
}

/// Writes a record file per rank.
pub struct FolderSink {
    folder: PathBuf,
    layout: Option<Layout>,
    /// `None` for a rank without a record, and once its file is finished.
    writers: Vec<Option<RecordWriter<Appending>>>,
    span: u64,
    error: Option<RecordError>,
}

impl FolderSink {
    /// Files go into `folder`, which exists.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), layout: None, writers: Vec::new(), span: 0, error: None }
    }

    /// The first error, if there was one.
    pub fn finish(self) -> Result<(), RecordError> {
        self.error.map_or(Ok(()), Err)
    }

    fn create(
        &self,
        spec: &JobSpec,
        rank: u32,
        clock: Clock,
    ) -> Result<RecordWriter<Appending>, RecordError> {
        let host = spec.host(rank);
        let header = Header {
            rank,
            host: format!("node{host}"),
            boot_id: spec.ranks_per_host.map_or(String::new(), |_| format!("boot-{host}")),
            pid: 1000 + rank,
            run_id: format!("synthetic-{}", spec.seed),
            start_unix_ns: RUN_START_UNIX_NS,
            start_mono_ns: clock.local_ns(RUN_START_NS),
            world_size: Some(spec.world_size()),
            writer_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let path = self.folder.join(file_name(&header));
        OpenOptions::new().write(true).create_new(true).open(&path)?;
        let mut writer = RecordWriter::new(Appending(path), &header)?;
        let wall_error_ns = Random::new(spec.seed, 4 << 32 | u64::from(host)).signed() * WALL_CLOCK_ERROR_NS;
        writer.push(&Row {
            start_ns: Some(header.start_mono_ns),
            value: Some(RUN_START_UNIX_NS + wall_error_ns as i64),
            label: Some("monotonic"),
            ..Row::new(RowKind::Meta, meta::CLOCK_ANCHOR)
        });
        Ok(writer)
    }

    fn push(&mut self, rank: u32, row: &Row<'_>) {
        let Some(Some(writer)) = self.writers.get_mut(rank as usize) else { return };
        writer.push(row);
        if writer.pending() >= BATCH_ROWS
            && let Err(error) = writer.flush()
        {
            self.error.get_or_insert(error);
        }
    }

    fn push_call(&mut self, rank: u32, row: Row<'_>, call: &Call) {
        let Some(layout) = self.layout.take() else { return };
        let communicator = &layout.communicators[call.comm];
        self.span += 1;
        self.push(
            rank,
            &Row {
                bytes: Some(call.bytes),
                comm: Some(&communicator.name),
                comm_size: Some(call.comm_size),
                comm_rank: Some(call.comm_rank),
                seq: call.seq,
                peer: call.peer,
                stream: Some(call.stream),
                device: Some(0),
                span: Some(self.span),
                ..row
            },
        );
        self.layout = Some(layout);
    }
}

impl Sink for FolderSink {
    fn begin(&mut self, spec: &JobSpec, layout: &Layout, clocks: &[Clock]) {
        for rank in 0..spec.world_size() {
            let created = spec
                .recorded(rank)
                .then(|| self.create(spec, rank, clocks[spec.host(rank) as usize]))
                .transpose();
            self.writers.push(created.unwrap_or_else(|error| {
                self.error.get_or_insert(error);
                None
            }));
        }
        for communicator in &layout.communicators {
            let ranks: Vec<String> = communicator.members.iter().map(u32::to_string).collect();
            let ranks = ranks.join(",");
            // Who has rank 0 of it knows the members.
            self.push(
                communicator.members[0],
                &Row {
                    comm: Some(&communicator.name),
                    comm_size: Some(communicator.members.len() as u32),
                    comm_rank: Some(0),
                    label: Some(&ranks),
                    ..Row::new(RowKind::Meta, meta::COMMUNICATOR)
                },
            );
        }
        self.layout = Some(layout.clone());
    }

    fn compute(&mut self, rank: u32, span: &'static str, start_ns: i64, end_ns: i64, step: i64) {
        self.push(
            rank,
            &Row {
                start_ns: Some(start_ns),
                dur_ns: Some(end_ns - start_ns),
                stream: Some("main"),
                device: Some(0),
                step: Some(step),
                ..Row::new(RowKind::Compute, span)
            },
        );
    }

    fn comm(&mut self, rank: u32, call: &Call, start_ns: i64, end_ns: i64, step: i64) {
        let row = Row {
            start_ns: Some(start_ns),
            dur_ns: Some(end_ns - start_ns),
            step: Some(step),
            ..Row::new(RowKind::Comm, call.op)
        };
        self.push_call(rank, row, call);
    }

    fn step(&mut self, rank: u32, step: i64, start_ns: i64, end_ns: i64) {
        self.push(
            rank,
            &Row {
                start_ns: Some(start_ns),
                dur_ns: Some(end_ns - start_ns),
                step: Some(step),
                ..Row::new(RowKind::Step, "step")
            },
        );
    }

    fn open(&mut self, rank: u32, call: &Call, start_ns: i64, step: i64) {
        let row = Row { start_ns: Some(start_ns), step: Some(step), ..Row::new(RowKind::Open, call.op) };
        self.push_call(rank, row, call);
    }

    fn end(&mut self, rank: u32, regularly: bool) {
        if regularly {
            self.push(rank, &Row::new(RowKind::Meta, meta::END));
        }
        let Some(mut writer) = self.writers.get_mut(rank as usize).and_then(Option::take) else { return };
        // A process that was killed leaves what it had flushed and no end marker.
        let result = if regularly { writer.finish().map(|_| ()) } else { writer.flush() };
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }
}

/// A file that is open only while it is written to: there are more ranks than a process may have files.
struct Appending(PathBuf);

impl Write for Appending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        OpenOptions::new().append(true).open(&self.0)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
