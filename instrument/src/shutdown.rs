//! The end of a run: closing the record, merging the ranks and writing the reports.

use crate::config::{Config, Reports};
use crate::message::{self, say};
use crate::rank;
use crate::record_files::RecordFiles;
use crate::recorder::Recorder;
use commtrace_report::aggregate::Aggregator;
use commtrace_report::analyze::{AnalyzeOptions, Report, analyze};
use commtrace_report::read::{ReadOptions, read, run_status};
use commtrace_report::record::{Row, RowKind, meta};
use commtrace_report::render;
use commtrace_report::timeline::Timeline;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A run that has ended.
pub(crate) struct Run {
    pub recorder: Arc<Recorder>,
    pub config: Config,
    pub files: Option<RecordFiles>,
    /// Ranks of this process.
    pub ranks: BTreeSet<u32>,
}

/// How often rank 0 looks whether the others' files are complete.
const POLL: Duration = Duration::from_millis(50);

/// Closes the record and makes the reports, if this process is the one that reports.
pub(crate) fn report(mut run: Run, aggregator: Aggregator) {
    let local = aggregator.finish();
    let report = match run.files.take() {
        None => {
            if run.reports() {
                message::print(&render::text(&local, &render::TextOptions::default()));
            }
            run.reports().then_some(local)
        }
        Some(files) => run.close_and_merge(files, local),
    };
    run.recorder.control().report = report;
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

    fn close_and_merge(&self, mut files: RecordFiles, local: Report) -> Option<Report> {
        if files.ranks().next().is_none() {
            // A rank that recorded nothing still says that it was there.
            files.ensure(self.process_rank().unwrap_or(0));
        }
        let incomplete = files.incomplete_ranks();
        let totals = serde_json::to_string(&local.ranks).unwrap_or_default();
        for &rank in &incomplete {
            files.push_meta(rank, &Row { label: Some(&totals), ..Row::new(RowKind::Meta, meta::SUMMARY) });
        }
        files.close();
        if !self.reports() {
            return None;
        }
        self.wait_for_others(&files);
        let options = ReadOptions { run: Some(files.run_id().to_owned()), ..ReadOptions::default() };
        let (report, timeline) = match read(&[files.directory().to_owned()], &options) {
            Ok(mut timeline) => {
                add_totals(&mut timeline, &incomplete, &totals);
                (analyze(&timeline, &AnalyzeOptions::default()), Some(timeline))
            }
            Err(error) => {
                say(format_args!(
                    "cannot read the records back, reporting this process's running totals: {error}"
                ));
                (local, None)
            }
        };
        write_reports(files.directory(), files.run_id(), self.config.reports, &report, timeline.as_ref());
        Some(report)
    }

    /// Waits until the files of all expected ranks have ended, and names those that have not.
    fn wait_for_others(&self, files: &RecordFiles) {
        let mut ended: BTreeSet<u32> = files.ranks().collect();
        let deadline = Instant::now() + self.config.merge_timeout;
        while self.expected_ranks().any(|rank| !ended.contains(&rank)) {
            if let Ok(ranks) = run_status(files.directory(), files.run_id()) {
                ended.extend(ranks.iter().filter(|status| status.ended).map(|status| status.rank));
            }
            let mut missing = self.expected_ranks().filter(|rank| !ended.contains(rank));
            let few: Vec<String> = missing.by_ref().take(16).map(|rank| rank.to_string()).collect();
            if few.is_empty() {
                return;
            }
            if Instant::now() >= deadline {
                say(format_args!(
                    "other ranks' records not complete in {} after {} s \
                     (COMMTRACE_MERGE_TIMEOUT_S): {}{}; the report has what is there",
                    files.directory().display(),
                    self.config.merge_timeout.as_secs(),
                    few.join(", "),
                    if missing.next().is_some() { ", …" } else { "" }
                ));
                return;
            }
            std::thread::sleep(POLL);
        }
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
