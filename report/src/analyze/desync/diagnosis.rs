//! A run as an on-call engineer asks for it: what is wrong, where every rank is, what to do next.

use super::evidence::{Known, SILENCE_NS};
use super::finding::{Desync, DesyncKind};
use super::{DesyncOptions, advice, say};
use crate::timeline::{Input, Open, Process, Sym, Timeline, Track};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Version of the JSON's keys and their meaning. If you change any of them, raise this.
pub const DIAGNOSIS_SCHEMA_VERSION: u32 = 1;

/// What is known from outside the records.
#[derive(Default)]
pub struct Surroundings<'a> {
    /// The time of day, in nanoseconds since the Unix epoch: whose last sign is long ago does not run.
    pub now_unix_ns: Option<i64>,
    /// Whether a process still runs; `None` if that cannot be told from here.
    pub runs: Option<&'a Runs<'a>>,
}

/// Tells whether a process still runs; `None` if that is not known.
pub type Runs<'a> = dyn Fn(&Process) -> Option<bool> + 'a;

/// The state of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// [`DIAGNOSIS_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The run in a word.
    pub verdict: RunVerdict,
    /// Number of ranks of the job, if known.
    pub world_size: Option<u32>,
    /// What is out of step, causes first.
    pub desync: Vec<Desync>,
    /// The ranks that were read, in ascending order.
    pub ranks: Vec<RankDiagnosis>,
    /// What to do next, most useful first; each a whole sentence.
    pub next: Vec<String>,
    /// What a reader has to know of the inputs. Not in JSON.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// A run in a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVerdict {
    /// A call does not end, or ranks made different numbers of calls.
    Stuck,
    /// Ranks made different calls under one number, and went on.
    Disagreeing,
    /// Nothing is stuck, and a rank stopped without a regular end.
    Stopped,
    /// Nothing is stuck, and the run goes on.
    Running,
    /// Nothing is stuck, and all ranks that were read ended regularly.
    Ended,
    /// Nothing is stuck, and the inputs do not say how they ended.
    #[default]
    Unknown,
}

impl RunVerdict {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stuck => "stuck",
            Self::Disagreeing => "disagreeing",
            Self::Stopped => "stopped",
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Unknown => "unknown",
        }
    }

    /// Whether somebody has to look at the run.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Stuck | Self::Disagreeing | Self::Stopped)
    }
}

/// One rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RankDiagnosis {
    /// Global rank.
    pub rank: u32,
    /// Its host, if known.
    pub host: Option<String>,
    /// Its process on that host, if known.
    pub pid: Option<u32>,
    /// Whether it runs.
    pub state: RankRuns,
    /// The last sign of it, in milliseconds since the Unix epoch.
    pub seen_unix_ms: Option<f64>,
    /// How long ago that was when the records were read, in milliseconds.
    pub silent_ms: Option<f64>,
    /// The communication that it is in, first entered first.
    pub inside: Vec<CallDiagnosis>,
    /// The last communication that it left.
    pub last: Option<CallDiagnosis>,
}

/// Whether a rank runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankRuns {
    /// It ended regularly.
    Ended,
    /// Its process runs, or gave a sign less than a minute ago.
    Running,
    /// Its process is gone, or gave no sign for a minute or more.
    Stopped,
    /// Its record has no end, and it is not known whether it runs.
    Cut,
    /// The input does not say.
    #[default]
    Unknown,
}

impl RankRuns {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Cut => "cut",
            Self::Unknown => "unknown",
        }
    }
}

/// One communication call of one rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallDiagnosis {
    /// The op.
    pub op: String,
    /// Communicator, if recorded.
    pub comm: Option<String>,
    /// Number in the communicator, if recorded.
    pub seq: Option<u64>,
    /// When it was entered, in milliseconds since the Unix epoch.
    pub since_unix_ms: Option<f64>,
    /// For how long it had been open at the last sign of the rank; how long it took, if it ended.
    pub for_ms: Option<f64>,
    /// The step in which it was called.
    pub step: Option<i64>,
}

/// Says what state the run is in whose records are `timeline`.
pub fn diagnose(timeline: &Timeline, options: &DesyncOptions, around: &Surroundings<'_>) -> Diagnosis {
    let last = last_inputs(timeline);
    let states: BTreeMap<u32, RankRuns> =
        last.iter().map(|(&rank, input)| (rank, runs(input, around))).collect();
    let known = Known {
        gone: states
            .iter()
            .filter(|(_, state)| **state == RankRuns::Stopped)
            .map(|(&rank, _)| rank)
            .collect(),
        // A sign of some seconds ago does not say so.
        running: last
            .iter()
            .filter(|(_, input)| told(input, around) == Some(true))
            .map(|(&rank, _)| rank)
            .collect(),
    };
    let desync = super::find_knowing(timeline, options, &known);
    let mut tracks: BTreeMap<u32, Vec<&Track>> = BTreeMap::new();
    let wanted = |rank: u32| options.ranks.as_ref().is_none_or(|ranks| ranks.contains(&rank));
    for track in timeline.tracks.iter().filter(|track| wanted(track.rank)) {
        tracks.entry(track.rank).or_default().push(track);
    }
    let ranks: Vec<RankDiagnosis> = tracks
        .iter()
        .map(|(&rank, tracks)| {
            let state = states.get(&rank).copied().unwrap_or_default();
            rank_diagnosis(timeline, rank, tracks, last.get(&rank).copied(), state, around)
        })
        .collect();
    let verdict = verdict(&desync, &ranks);
    let next = advice::next(verdict, &desync, &ranks);
    Diagnosis {
        schema_version: DIAGNOSIS_SCHEMA_VERSION,
        verdict,
        world_size: timeline.world_size,
        desync,
        ranks,
        next,
        warnings: timeline.warnings.clone(),
    }
}

/// Per rank, the record that was begun last.
fn last_inputs(timeline: &Timeline) -> HashMap<u32, &Input> {
    let mut last: HashMap<u32, &Input> = HashMap::new();
    for input in timeline.inputs.iter().filter(|input| input.ended.is_some()) {
        let Some(rank) = input.rank else { continue };
        let begun = |input: &Input| input.process.as_ref().map(|process| process.start_unix_ns);
        let known = last.entry(rank).or_insert(input);
        if begun(input) > begun(known) {
            *known = input;
        }
    }
    last
}

fn runs(input: &Input, around: &Surroundings<'_>) -> RankRuns {
    match input.ended {
        Some(true) => return RankRuns::Ended,
        None => return RankRuns::Unknown,
        Some(false) => {}
    }
    match (told(input, around), silent_ns(input, around)) {
        (Some(true), _) => RankRuns::Running,
        (Some(false), _) => RankRuns::Stopped,
        (None, Some(silent)) if silent < SILENCE_NS => RankRuns::Running,
        (None, Some(_)) => RankRuns::Stopped,
        (None, None) => RankRuns::Cut,
    }
}

/// What is told of the process from outside.
fn told(input: &Input, around: &Surroundings<'_>) -> Option<bool> {
    (around.runs?)(input.process.as_ref()?)
}

/// The last sign of the process, in nanoseconds since the Unix epoch.
fn seen_unix_ns(input: &Input) -> Option<i64> {
    unix_ns(input.process.as_ref()?, input.seen?.at_ns)
}

fn unix_ns(process: &Process, at_ns: i64) -> Option<i64> {
    at_ns.checked_add(process.start_unix_ns.checked_sub(process.start_ns)?)
}

fn silent_ns(input: &Input, around: &Surroundings<'_>) -> Option<i64> {
    Some(around.now_unix_ns?.saturating_sub(seen_unix_ns(input)?).max(0))
}

fn rank_diagnosis(
    timeline: &Timeline,
    rank: u32,
    tracks: &[&Track],
    input: Option<&Input>,
    state: RankRuns,
    around: &Surroundings<'_>,
) -> RankDiagnosis {
    let process = input.and_then(|input| input.process.as_ref());
    let seen_ns = input.and_then(|input| input.seen).map(|seen| seen.at_ns);
    let call =
        |op: Sym, comm: Option<Sym>, seq, step, start_ns: Option<i64>, end_ns: Option<i64>| CallDiagnosis {
            op: timeline.names.get(op).to_owned(),
            comm: comm.map(|comm| timeline.names.get(comm).to_owned()),
            seq,
            step,
            since_unix_ms: start_ns.zip(process).and_then(|(at, process)| unix_ns(process, at)).map(say::ms),
            for_ms: start_ns.zip(end_ns).map(|(start, end)| say::ms(end.saturating_sub(start).max(0))),
        };
    let mut open: Vec<&Open> = tracks.iter().flat_map(|track| &track.open).collect();
    // A step is no communication.
    open.retain(|open| open.comm.is_some() || open.seq.is_some() || open.bytes.is_some());
    open.sort_by_key(|open| open.start_ns);
    let last = tracks
        .iter()
        .filter_map(|track| {
            let (row, _) = track.comm.ends_ns().iter().enumerate().max_by_key(|(_, end)| **end)?;
            track.comm.get(row)
        })
        .max_by_key(|event| event.end_ns);
    RankDiagnosis {
        rank,
        host: process.map(|process| process.host.clone()),
        pid: process.map(|process| process.pid),
        state,
        seen_unix_ms: input.and_then(seen_unix_ns).map(say::ms),
        silent_ms: input.and_then(|input| silent_ns(input, around)).map(say::ms),
        inside: open
            .iter()
            .map(|open| call(open.name, open.comm, open.seq, open.step, open.start_ns, seen_ns))
            .collect(),
        last: last.map(|event| {
            call(event.op, event.comm, event.seq, event.step, Some(event.start_ns), Some(event.end_ns))
        }),
    }
}

fn verdict(desync: &[Desync], ranks: &[RankDiagnosis]) -> RunVerdict {
    let any = |wanted: &dyn Fn(&Desync) -> bool| desync.iter().any(wanted);
    if any(&Desync::is_stuck) {
        RunVerdict::Stuck
    } else if any(&|one| one.kind.is_disagreement()) {
        RunVerdict::Disagreeing
    } else if any(&|one| one.kind == DesyncKind::Stopped) {
        RunVerdict::Stopped
    } else if ranks.iter().any(|rank| matches!(rank.state, RankRuns::Running | RankRuns::Cut)) {
        RunVerdict::Running
    } else if !ranks.is_empty() && ranks.iter().all(|rank| rank.state == RankRuns::Ended) {
        RunVerdict::Ended
    } else {
        RunVerdict::Unknown
    }
}
