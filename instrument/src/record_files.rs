//! The record files of this process: one per rank, opened when the rank records something.

use crate::config::Config;
use crate::message::say;
use crate::{clock, host, rank};
use commtrace_report::record::{Header, RecordWriter, Row, RowKind, file_name, meta};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// All record files of this process.
#[derive(Debug)]
pub(crate) struct RecordFiles {
    directory: PathBuf,
    /// The header of every file, but for the rank.
    header: Header,
    max_bytes: u64,
    /// What of the run is recorded, where that is not all of it.
    selection: Vec<String>,
    /// `BTreeMap` so that reports and messages go by rank.
    files: BTreeMap<u32, RankFile>,
}

/// The record file of one rank.
#[derive(Debug)]
struct RankFile {
    path: PathBuf,
    /// `None` once the file has failed.
    writer: Option<RecordWriter<File>>,
    /// The size limit is reached: intervals are no longer written.
    capped: bool,
    /// When something other than that the process still runs was last written.
    busy_ns: i64,
    /// When it was last written up to when the file is complete.
    seen_ns: i64,
}

/// Longest time between two rows that say no more than that the process still runs: a process that was
/// killed can be told from one that hangs, at a few megabytes a day.
const LONGEST_SILENCE_NS: i64 = 30_000_000_000;

/// Shortest.
const SHORTEST_SILENCE_NS: i64 = 1_000_000_000;

impl RecordFiles {
    /// Makes the folder and sees whether files can be made in it.
    pub fn prepare(directory: &Path, config: &Config) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let header = header(config);
        let Header { pid, start_unix_ns, .. } = header;
        let probe = directory.join(format!(".commtrace-probe.{pid}.{start_unix_ns}"));
        OpenOptions::new().write(true).create_new(true).open(&probe)?;
        fs::remove_file(&probe)?;
        Ok(Self {
            directory: directory.to_owned(),
            header,
            max_bytes: config.max_bytes,
            selection: config.selection(),
            files: BTreeMap::new(),
        })
    }

    /// The header of every file, but for the rank.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Names of the files.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.files.values().filter_map(|file| Some(file.path.file_name()?.to_string_lossy().into_owned()))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn run_id(&self) -> &str {
        &self.header.run_id
    }

    /// Ranks that have a file.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.files.keys().copied()
    }

    /// Ranks whose file is not complete, because it reached the limit or could not be written.
    pub fn incomplete_ranks(&self) -> Vec<u32> {
        self.files
            .iter()
            .filter(|(_, file)| file.capped || file.writer.is_none())
            .map(|(&rank, _)| rank)
            .collect()
    }

    /// Adds an interval of `rank`.
    pub fn push(&mut self, rank: u32, row: &Row<'_>) {
        let file = self.file(rank);
        if let Some(writer) = &mut file.writer
            && !file.capped
        {
            writer.push(row);
        }
    }

    /// Adds a row about the run, also to a file that has reached the limit.
    pub fn push_meta(&mut self, rank: u32, row: &Row<'_>) {
        if let Some(writer) = &mut self.file(rank).writer {
            writer.push(row);
        }
    }

    /// Makes sure that `rank` has a file.
    pub fn ensure(&mut self, rank: u32) {
        self.file(rank);
    }

    fn file(&mut self, rank: u32) -> &mut RankFile {
        let Self { directory, header, selection, files, .. } = self;
        files
            .entry(rank)
            .or_insert_with(|| RankFile::create(directory, &Header { rank, ..header.clone() }, selection))
    }

    /// Notes up to when the files are complete: all that ended by `at_ns`, and what is open for
    /// `open_after_ns` or longer. Without anything else to write it is written ever more seldom.
    pub fn seen(&mut self, at_ns: i64, open_after_ns: i64) {
        for file in self.files.values_mut() {
            let Some(writer) = &mut file.writer else { continue };
            if writer.pending() > 0 {
                file.busy_ns = at_ns;
            } else {
                let idle_ns = at_ns.saturating_sub(file.busy_ns);
                let silence_ns = (idle_ns / 4).clamp(SHORTEST_SILENCE_NS, LONGEST_SILENCE_NS);
                if at_ns.saturating_sub(file.seen_ns) < silence_ns {
                    continue;
                }
            }
            file.seen_ns = at_ns;
            writer.push(&Row {
                start_ns: Some(at_ns),
                value: Some(open_after_ns),
                ..Row::new(RowKind::Meta, meta::SEEN)
            });
        }
    }

    /// Writes what is pending, and stops the files that have reached the limit.
    pub fn flush(&mut self) {
        for (&rank, file) in &mut self.files {
            file.flush(rank);
            let Some(writer) = &mut file.writer else { continue };
            if !file.capped && writer.bytes_written() >= self.max_bytes {
                file.capped = true;
                let mebibytes = self.max_bytes >> 20;
                say(format_args!(
                    "rank {rank}: {} reached COMMTRACE_MAX_MB={mebibytes}; nothing more is written \
                     to it, the summary goes on",
                    file.path.display()
                ));
                let value = i64::try_from(mebibytes).ok();
                writer.push(&Row { value, ..Row::new(RowKind::Meta, meta::CAPPED) });
                file.flush(rank);
            }
        }
    }

    /// Writes the end rows and closes the files.
    pub fn close(&mut self) {
        for (&rank, file) in &mut self.files {
            let now = Some(clock::monotonic_ns());
            if let Some(writer) = &mut file.writer {
                writer.push(&Row { start_ns: now, ..Row::new(RowKind::Meta, meta::END) });
            }
            file.flush(rank);
            if let Some(Err(error)) = file.writer.take().map(RecordWriter::finish) {
                file.complain(rank, &error);
            }
        }
    }
}

impl RankFile {
    fn create(directory: &Path, header: &Header, selection: &[String]) -> Self {
        let path = directory.join(file_name(header));
        let now_ns = clock::monotonic_ns();
        let mut file = Self { path, writer: None, capped: false, busy_ns: now_ns, seen_ns: now_ns };
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&file.path)
            .map_err(Into::into)
            .and_then(|output| RecordWriter::new(output, header));
        match created {
            Ok(mut writer) => {
                writer.push(&clock_anchor());
                for selection in selection {
                    writer.push(&Row { label: Some(selection), ..Row::new(RowKind::Meta, meta::SELECTION) });
                }
                if let (None, Some(size)) = (header.world_size, rank::stated_world().1) {
                    writer
                        .push(&Row { value: Some(size.into()), ..Row::new(RowKind::Meta, meta::WORLD_SIZE) });
                }
                file.writer = Some(writer);
            }
            Err(error) => file.complain(header.rank, &error),
        }
        file
    }

    fn flush(&mut self, rank: u32) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.flush()
        {
            self.writer = None;
            self.complain(rank, &error);
        }
    }

    fn complain(&self, rank: u32, error: &dyn std::error::Error) {
        say(format_args!(
            "rank {rank}: cannot write {}: {error}; the rest of the run is not recorded, the \
             summary goes on",
            self.path.display()
        ));
    }
}

/// What is known of this process at the start, with rank 0.
pub(crate) fn header(config: &Config) -> Header {
    let start_unix_ns = clock::unix_ns();
    let pid = std::process::id();
    let run_id = config.launch.job.clone().unwrap_or_else(|| format!("{pid}-{}", start_unix_ns / 1_000_000));
    Header {
        rank: 0,
        host: host::name(),
        boot_id: host::boot_id(),
        pid,
        run_id,
        start_unix_ns,
        start_mono_ns: clock::monotonic_ns(),
        world_size: config.launch.world_size,
        writer_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The same instant on the monotonic and the wall clock, and what the span times were read from.
fn clock_anchor() -> Row<'static> {
    let (start_ns, value) = (Some(clock::monotonic_ns()), Some(clock::unix_ns()));
    let label = Some(clock::source_name());
    Row { start_ns, value, label, ..Row::new(RowKind::Meta, meta::CLOCK_ANCHOR) }
}
