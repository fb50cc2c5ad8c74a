//! The end of a run: closing the record, merging the ranks and writing the reports.

use crate::config::{Config, Reports};
use crate::message::{self, say};
use crate::rank;
use crate::record_files::RecordFiles;
use crate::recorder::Recorder;
use commtrace_report::aggregate::Aggregator;
use commtrace_report::analyze::{AnalyzeOptions, Report, analyze};
use commtrace_report::gather::{ProcessId, RunSummary, Sampler};
use commtrace_report::read::{ReadOptions, read, run_status};
use commtrace_report::record::{Header, Row, RowKind, meta};
use commtrace_report::render;
use commtrace_report::timeline::Timeline;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub recorder: Arc<Recorder>,
    pub config: Config,
    pub files: Option<RecordFiles>,
    /// Ranks of this process.
    pub ranks: BTreeSet<u32>,
}

/// How often rank 0 looks whether the others' files are complete.
const POLL: Duration = Duration::from_millis(50);

/// Rows of samples, and figures of steps, that process 0 of a job gets at most; each process has its share.
const GATHERED_ROWS: usize = 1 << 22;
const GATHERED_STEPS: usize = 1 << 20;

/// How long files of other hosts may take to show in a shared folder, at most.
const VISIBLE: Duration = Duration::from_secs(5);

/// A run whose record is closed.
#[derive(Debug)]
pub(crate) struct Ended {
    run: Run,
    /// Figures of this process alone.
    local: Report,
    base_ns: Option<i64>,
    sampler: Sampler,
    header: Header,
    /// Ranks whose files are not complete, and the totals that stand in for them.
    incomplete: Vec<u32>,
    totals: String,
}

/// Closes the record and makes the reports, if this process is the one that reports; or leaves that to a
/// caller who gathers.
pub(crate) fn end(mut run: Run, aggregator: Aggregator, sampler: Sampler, header: Header) {
    let base_ns = aggregator.base_ns();
    let local = aggregator.finish();
    let totals = serde_json::to_string(&local.ranks).unwrap_or_default();
    let incomplete = run.close(&totals);
    let recorder = Arc::clone(&run.recorder);
    let ended = Ended { run, local, base_ns, sampler, header, incomplete, totals };
    let gather = recorder.control().gather;
    if gather {
        recorder.control().ended = Some(Box::new(ended));
        return;
    }
    let report = ended.report();
    recorder.control().report = report;
}

/// The report on a job of which this process recorded nothing.
pub(crate) fn print_report_on(gathered: &RunSummary) -> Option<Report> {
    if gathered.processes.is_empty() {
        return None;
    }
    let report = gathered.report(&AnalyzeOptions::default());
    message::print(&render::text(&report, &render::TextOptions::default()));
    Some(report)
}

impl Ended {
    /// What this process tells the others, of `processes` in all.
    pub fn summary(&self, processes: usize) -> RunSummary {
        let id = ProcessId {
            rank: self.run.ranks.first().copied().or(self.run.process_rank()),
            host: self.header.host.clone(),
            boot_id: self.header.boot_id.clone(),
            pid: self.header.pid,
            start_unix_ns: self.header.start_unix_ns,
        };
        let mut sampler = self.sampler.clone();
        sampler.limit(sampler.rows().min((GATHERED_ROWS / processes.max(1)).max(256)));
        let samples = sampler.samples(&self.header).unwrap_or_else(|error| {
            say(format_args!("figures across ranks will be missing: {error}"));
            Vec::new()
        });
        let mut summary = RunSummary::of_process(id, &self.local, self.base_ns, samples);
        for process in summary.processes.values_mut() {
            process.left_out = sampler.left_out();
            process.files = self.run.files.iter().flat_map(RecordFiles::names).collect();
        }
        summary.limit_steps((GATHERED_STEPS / processes.max(1)).max(64));
        summary
    }

    /// The report without the other processes' help, if this one is to make it.
    fn report(self) -> Option<Report> {
        if !self.run.reports() {
            return None;
        }
        let Some(files) = &self.run.files else {
            message::print(&render::text(&self.local, &render::TextOptions::default()));
            return Some(self.local);
        };
        self.run.wait_for_others(files);
        Some(self.merge_files(files))
    }

    /// The report on what all processes told, of their files where they are here.
    pub fn report_on(self, gathered: &RunSummary) -> Report {
        let Some(files) = &self.run.files else {
            let report = gathered.report(&AnalyzeOptions::default());
            message::print(&render::text(&report, &render::TextOptions::default()));
            return report;
        };
        let absent = self.absent_files(files, gathered);
        if absent == 0 {
            if !gathered.missing.is_empty() {
                // Its time has passed already; whoever is not here is named.
                self.run.name_missing(files);
            }
            return self.merge_files(files);
        }
        let mut report = gathered.report(&AnalyzeOptions::default());
        report.warnings.push(format!(
            "{absent} record files of other processes are not in {}, so this report is of the summaries that the \
             processes sent; for all details, record into a folder that all hosts share.",
            files.directory().display()
        ));
        write_reports(files.directory(), files.run_id(), self.run.config.reports, &report, None);
        report
    }

    /// How many of the processes' record files are not in this process's folder. Those of other hosts may take
    /// a moment to show.
    fn absent_files(&self, files: &RecordFiles, gathered: &RunSummary) -> usize {
        let deadline = Instant::now() + self.run.config.merge_timeout.min(VISIBLE);
        loop {
            let absent = |elsewhere: bool| {
                let processes = gathered.processes.iter();
                let processes = processes.filter(|(id, _)| (id.boot_id != self.header.boot_id) == elsewhere);
                let names = processes.flat_map(|(_, process)| &process.files);
                names.filter(|name| !files.directory().join(name).is_file()).count()
            };
            let (here, elsewhere) = (absent(false), absent(true));
            if here > 0 || elsewhere == 0 || Instant::now() >= deadline {
                return here + elsewhere;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Reads all files of the run in the folder and writes the reports.
    fn merge_files(&self, files: &RecordFiles) -> Report {
        let options = ReadOptions { run: Some(files.run_id().to_owned()), ..ReadOptions::default() };
        let (report, timeline) = match read(&[files.directory().to_owned()], &options) {
            Ok(mut timeline) => {
                add_totals(&mut timeline, &self.incomplete, &self.totals);
                (analyze(&timeline, &AnalyzeOptions::default()), Some(timeline))
            }
            Err(error) => {
                say(format_args!(
                    "cannot read the records back, reporting this process's running totals: {error}"
                ));
                (self.local.clone(), None)
            }
        };
        write_reports(files.directory(), files.run_id(), self.run.config.reports, &report, timeline.as_ref());
        report
    }
}

impl Run {
    fn process_rank(&self) -> Option<u32> {
        self.config.launch.rank.or(rank::stated_world().0)
    }

    /// Whether this process reports: it has the lowest rank that is recorded. A process without a
    /// launcher is a job of its own.
    fn reports(&self) -> bool {
        let reporter = self.config.ranks.as_ref().and_then(|ranks| ranks.iter().min()).copied().unwrap_or(0);
        self.process_rank().is_none_or(|rank| rank == reporter || self.ranks.contains(&reporter))
    }

    /// The ranks whose files belong to the report, as far as the size of the job is known.
    /// In ascending order, made one by one: a job's size is what somebody's variable says.
    fn expected_ranks(&self) -> impl Iterator<Item = u32> + '_ {
        let size = self.config.launch.world_size.or(rank::stated_world().1).unwrap_or(0);
        let wanted = self.config.ranks.as_ref();
        (0..size).filter(move |rank| wanted.is_none_or(|ranks| ranks.contains(rank)))
    }

    /// Closes the record files. Returns the ranks whose files are not complete.
    fn close(&mut self, totals: &str) -> Vec<u32> {
        let rank = self.process_rank().unwrap_or(0);
        let Some(files) = &mut self.files else { return Vec::new() };
        if files.ranks().next().is_none() {
            // A rank that recorded nothing still says that it was there.
            files.ensure(rank);
        }
        let incomplete = files.incomplete_ranks();
        for &rank in &incomplete {
            files.push_meta(rank, &Row { label: Some(totals), ..Row::new(RowKind::Meta, meta::SUMMARY) });
        }
        files.close();
        incomplete
    }

    /// Waits until the files of all expected ranks have ended, and names those that have not.
    fn wait_for_others(&self, files: &RecordFiles) {
        let deadline = Instant::now() + self.config.merge_timeout;
        while !self.name_missing_after(files, deadline) {
            std::thread::sleep(POLL);
        }
    }

    /// Names the ranks whose files have not ended.
    fn name_missing(&self, files: &RecordFiles) {
        self.name_missing_after(files, Instant::now());
    }

    /// Whether all files of expected ranks have ended; or, after `deadline`, it says which have not.
    fn name_missing_after(&self, files: &RecordFiles, deadline: Instant) -> bool {
        let mut ended: BTreeSet<u32> = files.ranks().collect();
        if self.expected_ranks().all(|rank| ended.contains(&rank)) {
            return true;
        }
        if let Ok(ranks) = run_status(files.directory(), files.run_id()) {
            ended.extend(ranks.iter().filter(|status| status.ended).map(|status| status.rank));
        }
        let mut missing = self.expected_ranks().filter(|rank| !ended.contains(rank));
        let few: Vec<String> = missing.by_ref().take(16).map(|rank| rank.to_string()).collect();
        if few.is_empty() {
            return true;
        }
        if Instant::now() < deadline {
            return false;
        }
        say(format_args!(
            "other ranks' records not complete in {} after {} s \
             (COMMTRACE_MERGE_TIMEOUT_S): {}{}; the report has what is there",
            files.directory().display(),
            self.config.merge_timeout.as_secs(),
            few.join(", "),
            if missing.next().is_some() { ", …" } else { "" }
        ));
        true
    }
}

/// Gives the ranks whose files could not even take their totals those of this process.
fn add_totals(timeline: &mut Timeline, incomplete: &[u32], totals: &str) {
    for input in &mut timeline.inputs {
        if input.rank.is_some_and(|rank| incomplete.contains(&rank)) {
            input.capped.get_or_insert_default().summary_json.get_or_insert_with(|| totals.to_owned());
        }
    }
}

fn write_reports(
    directory: &Path,
    run_id: &str,
    reports: Reports,
    report: &Report,
    timeline: Option<&Timeline>,
) {
    let mut written = Vec::new();
    let mut failed = false;
    let mut save = |name: &str, extension: &str, write: &dyn Fn(&mut File) -> io::Result<()>| match save_new(
        directory, run_id, name, extension, write,
    ) {
        Ok(path) => written.push(path.display().to_string()),
        Err(error) => {
            let path = directory.join(format!("{name}.{extension}"));
            failed = true;
            say(format_args!("cannot write {}: {error}", path.display()));
        }
    };
    if reports.json {
        save("summary", "json", &|file| file.write_all(render::json(report).as_bytes()));
    }
    if reports.text {
        let text = render::text(report, &render::TextOptions::default());
        save("report", "txt", &|file| file.write_all(text.as_bytes()));
    }
    if reports.chrome
        && let Some(timeline) = timeline
    {
        save("trace", "json", &|file| {
            let mut out = BufWriter::new(file);
            render::write_chrome(timeline, &mut out)?;
            out.flush()
        });
    }
    #[cfg(feature = "html")]
    if reports.html {
        save("report", "html", &|file| file.write_all(render::html(report).as_bytes()));
    }
    if failed {
        message::print(&render::text(report, &render::TextOptions::default()));
    }
    if !written.is_empty() {
        say(format_args!("{}", render::headline(report)));
        say(format_args!("wrote {}", written.join(", ")));
    }
}

/// Writes a report beside those that are there: the second of a name gets the run id in its name.
fn save_new(
    directory: &Path,
    run_id: &str,
    name: &str,
    extension: &str,
    write: &dyn Fn(&mut File) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let run_id: String = run_id
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect();
    let mut number = 0_u32;
    loop {
        let file_name = match number {
            0 => format!("{name}.{extension}"),
            1 => format!("{name}.{run_id}.{extension}"),
            _ => format!("{name}.{run_id}.{number}.{extension}"),
        };
        let path = directory.join(file_name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                return write(&mut file).map(|()| path.clone()).inspect_err(|_| {
                    // Half a report is worse than none.
                    let _ = fs::remove_file(&path);
                });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}
