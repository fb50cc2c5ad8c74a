//! Text of NCCL and nccl-tests: debug logs and tables, which often stand in one file.

use super::ReadError;
use super::builder::ranges;
use super::compress::Opened;
use super::fragment::{Fragment, RankSource};
use super::lines::Lines;
use super::nccl_log::LogReader;
use super::nccl_log::line::without_launcher;
use super::nccl_tests::json;
use super::nccl_tests::table::TableReader;
use crate::nccl::{NcclTests, TestRow};
use crate::timeline::{Input, Timeline, Track};
use indexmap::IndexMap;
use std::collections::BTreeSet;
use std::path::Path;

/// A text that has nothing of NCCL so far is given up after this many bytes.
const PATIENCE: u64 = 64 << 20;

/// Whether a file that begins with `start` may be text of NCCL.
pub(super) fn may_match(start: &[u8]) -> bool {
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    if text.is_empty() || text.contains(&0) {
        return false;
    }
    match text.trim_ascii_start() {
        [b'{', ..] => false,
        // A launcher's or a time's bracket, not an array.
        [b'[', next, ..] => next.is_ascii_alphanumeric(),
        _ => true,
    }
}

/// Reads `path`, which was opened; `None` if there is nothing of NCCL in it.
pub(super) fn read(path: &Path, opened: Opened<'_>) -> Result<Option<Fragment>, ReadError> {
    let shown = path.display().to_string();
    let mut lines = Lines::new(opened.reader);
    let (mut log, mut tables) = (LogReader::default(), TableReader::default());
    let (mut found, mut too_long) = (0_u64, 0_u64);
    while let Some(line) = lines.next() {
        let text = String::from_utf8_lossy(line.bytes);
        let whole = line.whole;
        if log.line(&text) || tables.line(without_launcher(&text)) {
            found += 1;
            too_long += u64::from(!whole);
        } else if found == 0 && lines.at() > PATIENCE {
            return Ok(None);
        }
    }
    let (cut, fault) = (lines.at(), lines.take_fault());
    if found == 0 {
        return match fault {
            Some(error) => Err(ReadError::io(path)(error)),
            None => Ok(None),
        };
    }
    let mut skipped = IndexMap::new();
    let mut anomalies = IndexMap::new();
    let mut warnings = Vec::new();
    if too_long > 0 {
        anomalies.insert("line_too_long".to_owned(), too_long);
    }
    if let Some(error) = fault {
        anomalies.insert("truncated".to_owned(), 1);
        warnings.push(format!(
            "{shown} cannot be read beyond byte {cut} of its content ({error}); the lines up to there were read."
        ));
    }
    if tables.malformed > 0 {
        skipped.insert("malformed".to_owned(), tables.malformed);
    }
    let messages = log.messages();
    let log = log.finish();
    let mut inputs = Vec::new();
    for table in tables.finish() {
        inputs.push(table_input(&shown, table, &mut warnings));
    }
    if !log.is_empty() {
        for (what, count) in &log.left_out {
            warnings.push(format!(
                "{shown}: {count} lines about {what} were too many to keep and are not counted."
            ));
        }
        inputs.push(Input {
            path: shown.clone(),
            format: "nccl-log".to_owned(),
            events: messages,
            nccl_log: Some(Box::new(log)),
            ..Input::default()
        });
    }
    let Some(first) = inputs.first_mut() else { return Ok(None) };
    (first.skipped, first.anomalies) = (skipped, anomalies);
    Ok(Some(Fragment {
        timeline: Timeline { inputs, warnings, ..Timeline::default() },
        rank: RankSource::Tracks,
    }))
}

/// Reads the JSON of nccl-tests in `path`, which was opened.
pub(super) fn read_json(path: &Path, opened: Opened<'_>) -> Fragment {
    let shown = path.display().to_string();
    let json::Outcome { table, fault, malformed } = json::read(opened.reader);
    let mut warnings = Vec::new();
    let mut input = table_input(&shown, table, &mut warnings);
    if malformed > 0 {
        input.skipped.insert("malformed".to_owned(), malformed);
    }
    if let Some(error) = fault {
        input.anomalies.insert("truncated".to_owned(), 1);
        warnings.push(format!(
            "{shown} cannot be read beyond line {}, column {} ({error}); the results up to there were read.",
            error.line(),
            error.column()
        ));
    }
    Fragment {
        timeline: Timeline { inputs: vec![input], warnings, ..Timeline::default() },
        rank: RankSource::Tracks,
    }
}

fn table_input(path: &str, table: NcclTests, warnings: &mut Vec<String>) -> Input {
    if !table.finished {
        warnings.push(format!(
            "{path}: the nccl-tests table has no summary, so the run was stopped before its end or its output cut."
        ));
    }
    let wrong = table.wrong().count();
    if wrong > 0 {
        warnings.push(format!(
            "{path}: {wrong} of the measurements moved wrong data (#wrong above 0); their figures mean nothing."
        ));
    }
    if table.cpu_time {
        warnings.push(format!(
            "{path}: times are those of the host's calls (option -C), not of the operations; bandwidths of \
             them mean nothing."
        ));
    }
    Input {
        path: path.to_owned(),
        format: "nccl-tests".to_owned(),
        events: table.rows.iter().map(|row: &TestRow| row.measures().count() as u64).sum(),
        ended: Some(table.finished),
        nccl_tests: Some(Box::new(table)),
        ..Input::default()
    }
}

/// Says which ranks have their communication in a dump of the Inspector and in another input as well.
pub(super) fn warn_of_doubles(timeline: &mut Timeline) {
    let dumped: BTreeSet<u32> = timeline
        .inputs
        .iter()
        .filter(|input| input.inspector.is_some())
        .filter_map(|input| input.rank)
        .collect();
    let other = |rank: &u32| {
        let input =
            |input: &Input| input.inspector.is_none() && input.rank == Some(*rank) && input.events > 0;
        let track = |track: &Track| track.rank == *rank && track.device.is_some() && !track.comm.is_empty();
        timeline.inputs.iter().any(input) || timeline.tracks.iter().any(track)
    };
    let doubled: Vec<u32> = dumped.into_iter().filter(other).collect();
    if !doubled.is_empty() {
        timeline.warnings.push(format!(
            "Communication of rank {} is in a dump of the NCCL Inspector and in another input, and counted for \
             both: take the figures of one of them.",
            ranges(doubled, 8)
        ));
    }
}

/// Gives collectives the algorithms that the logs among the inputs show, and says how many have one.
pub(super) fn attach(timeline: &mut Timeline) {
    let logs: Vec<_> =
        timeline.inputs.iter().filter_map(|input| input.nccl_log.as_deref().cloned()).collect();
    if logs.is_empty()
        || timeline.tracks.iter().all(|track| track.comm.is_empty() && track.unplaced.is_empty())
    {
        return;
    }
    let attached = crate::nccl::attach_algorithms(timeline, &logs);
    let all = attached.known + attached.observed + attached.unconfirmed;
    timeline.warnings.push(format!(
        "Algorithms of {all} communication calls: {} by the trace itself, {} observed in the NCCL log, {} \
         unconfirmed.",
        attached.known, attached.observed, attached.unconfirmed
    ));
}
