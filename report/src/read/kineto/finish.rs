//! From what was kept of a file to tracks.

use super::category::Mark;
use super::collect::Collector;
use super::document::Outcome;
use super::marked::place;
use super::{device, host};
use crate::read::fragment::{Fragment, RankSource};
use crate::timeline::{Comm, Compute, Input, Step, Sym, Timeline, Track};
use indexmap::IndexMap;

/// Names of events that nothing classifies, listed at most.
const UNMATCHED: usize = 5;

/// The tracks of a file that was read with `outcome`. `path` is how warnings call it; `from_name` is
/// the rank that its name says, which counts above the content's if `name_first`.
pub(super) fn fragment(
    mut collector: Collector,
    outcome: &Outcome,
    path: &str,
    from_name: Option<u32>,
    name_first: bool,
) -> Fragment {
    collector.close();
    let mut warnings = Vec::new();
    let recorded = collector.distributed.rank;
    // A number in a name may be a year or a step; one beyond the job's ranks is, unless a user says so.
    let possible = |rank: &u32| collector.distributed.world_size.is_none_or(|size| *rank < size);
    let from_name = from_name.filter(|rank| name_first || possible(rank));
    let rank = if name_first { from_name.or(recorded) } else { recorded.or(from_name) };
    note_outcome(&mut collector, outcome, path, &mut warnings);

    let mut tracks = if collector.devices.is_empty() {
        host::track(&mut collector, rank).into_iter().collect()
    } else {
        device::tracks(&mut collector, rank, &mut warnings)
    };
    let format = if collector.profiler { "kineto" } else { "chrome-trace" };
    let placed = marked_tracks(&mut collector, &mut tracks);
    shift(&mut tracks, collector.base_ns);
    warn_of_nothing(&collector, &tracks, path, &mut warnings);

    let events = |track: &Track| track.compute.len() + track.comm.len() + track.steps.len();
    let owned = |counts: IndexMap<&'static str, u64>| {
        counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    };
    let input = Input {
        path: path.to_owned(),
        format: format.to_owned(),
        events: tracks.iter().map(events).sum::<usize>() as u64,
        skipped: owned(collector.skipped),
        anomalies: owned(collector.anomalies),
        rules: collector.rules.finish(),
        ..Input::default()
    };
    let timeline = Timeline {
        names: collector.names,
        tracks,
        inputs: vec![input],
        warnings,
        world_size: collector.distributed.world_size,
        communicators: collector.groups,
    };
    let rank = match rank {
        _ if placed => RankSource::Tracks,
        Some(rank) => RankSource::File(rank),
        None => RankSource::Unknown,
    };
    Fragment { timeline, rank }
}

/// Counts and says what of the document could not be read.
fn note_outcome(collector: &mut Collector, outcome: &Outcome, path: &str, warnings: &mut Vec<String>) {
    collector.skip_all("malformed", outcome.malformed);
    collector.skip_all("not_an_object", outcome.not_objects);
    if let Some(at) = outcome.first_malformed {
        warnings.push(format!(
            "{path}: {} are not valid JSON and were left out, the first at byte {at} of the content.",
            if outcome.malformed == 1 {
                "1 event".to_owned()
            } else {
                format!("{} events", outcome.malformed)
            }
        ));
    }
    if let Some(cut) = &outcome.cut {
        collector.anomaly("truncated", 1);
        let why = match &cut.fault {
            Some(error) => format!("cannot be read beyond byte {} of its content ({error})", cut.at),
            None => format!("ends at byte {} of its content, before its closing brackets", cut.at),
        };
        warnings.push(format!(
            "{path} {why}: the program may have been stopped while it wrote; the events up to there were read."
        ));
    }
    if let Some(error) = &outcome.behind {
        collector.anomaly("damaged", 1);
        warnings.push(format!(
            "{path} was read to the end of its document, but not to the end of the file ({error}): its content \
             may be damaged."
        ));
    }
    if let Some(what) = collector.bad_time.take() {
        let count = collector.skipped.get("bad_time").copied().unwrap_or(0);
        let were = if count == 1 { "1 event was".to_owned() } else { format!("{count} events were") };
        warnings.push(format!("{path}: {were} left out for their time; the first: {what}."));
    }
}

/// Adds the intervals that are marked or matched by a pattern. True if their processes are named by rank.
fn marked_tracks(collector: &mut Collector, tracks: &mut Vec<Track>) -> bool {
    let marked = std::mem::take(&mut collector.marked);
    let mut added: IndexMap<Option<Sym>, Track> = IndexMap::new();
    let mut placed = false;
    for interval in marked {
        let at = collector.labels.get(&interval.process).and_then(|label| place(label));
        placed |= at.is_some();
        // Processes that are not named by rank are of the file's.
        let key = at.map(|_| interval.process);
        let (rank, device) = at.unwrap_or((0, None));
        let track = added.entry(key).or_insert_with(|| Track::new(rank, device));
        let comm = interval.comm;
        match (interval.mark, comm.step) {
            (Mark::Compute, step) => {
                track.compute.push(Compute {
                    name: comm.op,
                    start_ns: comm.start_ns,
                    end_ns: comm.end_ns,
                    step,
                });
            }
            (Mark::Comm, _) => {
                let row = collector.labels.get(&interval.thread);
                let stream = row.and_then(|row| row.strip_prefix("comm "));
                let stream = stream.map(|stream| collector.names.intern(stream));
                track.comm.push(Comm { stream, ..comm });
            }
            (Mark::Step, Some(step)) => {
                track.steps.push(Step { step, start_ns: comm.start_ns, end_ns: comm.end_ns });
            }
            (Mark::Step, None) => {}
        }
    }
    tracks.extend(added.into_values());
    placed
}

/// Makes times that count from `base_ns` absolute, so that the ranks of a job can be laid side by side.
/// Files whose times are absolute already, or would not fit, stay as they are.
pub(in crate::read) fn shift(tracks: &mut [Track], base_ns: Option<i64>) {
    let Some(base_ns) = base_ns.filter(|&base| base > 0) else { return };
    let fits = |&instant: &i64| instant < base_ns && instant.checked_add(base_ns).is_some();
    let starts_fit = tracks.iter().all(|track| {
        let compute = track.compute.starts_ns().iter().chain(track.compute.ends_ns());
        let comm = track.comm.starts_ns().iter().chain(track.comm.ends_ns());
        let steps = track.steps.iter().flat_map(|step| [&step.start_ns, &step.end_ns]);
        compute.chain(comm).chain(steps).all(fits)
    });
    if starts_fit {
        tracks.iter_mut().for_each(|track| track.shift(base_ns));
    }
}

/// Says so if a file without its own marks holds nothing of use, and how it might.
fn warn_of_nothing(collector: &Collector, tracks: &[Track], path: &str, warnings: &mut Vec<String>) {
    if tracks.iter().any(|track| !track.compute.is_empty() || !track.comm.is_empty()) {
        return;
    }
    let mut names: Vec<(&String, &u64)> = collector.unmatched.iter().collect();
    names.sort_by_key(|&(_, &count)| std::cmp::Reverse(count));
    let names: Vec<String> =
        names.iter().take(UNMATCHED).map(|(name, count)| format!("{name:?} ({count})")).collect();
    warnings.push(if names.is_empty() {
        format!("{path} holds no compute and no communication.")
    } else {
        format!(
            "{path}: nothing tells which events are compute and which communication; name them with \
             --compute-pattern and --comm-pattern. The most frequent names: {}.",
            names.join(", ")
        )
    });
}
