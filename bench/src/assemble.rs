//! From what the ranks said, and how their processes ended, to the record.

use crate::decision::{decide, level};
use crate::event::{GaveUp, Measured, RankEvent, Subject};
use crate::evidence::{Evidence, says_unknown_algorithm};
use crate::hardware::hardware;
use crate::overlap;
use crate::plan::{Backend, Plan};
use crate::record::{
    Artifacts, Comparison, EvidenceLevel, Failure, FailureKind, Metrics, RECORD_SCHEMA_VERSION, Record, Row,
    Schedule, Versions,
};
use crate::row::row;

/// How the candidate's processes came to their end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// All ended by themselves, and none with an exit status other than 0 that no rank accounts for.
    Regular,
    /// A process that stands for several ranks ended so.
    Process(String),
    /// The time was up.
    TimedOut,
    /// Nothing ran, because of this.
    Nothing(FailureKind, String),
}

/// The record of a candidate of which nothing is known yet, or never will be.
pub(crate) fn unfinished(plan: &Plan, started_at: &str) -> Record {
    let message = "the command ended before the candidate did: run it again with another run label";
    assemble(
        plan,
        started_at,
        &[],
        &End::Nothing(FailureKind::RankFailed, message.to_owned()),
        &Evidence::default(),
        Artifacts::default(),
    )
}

/// The record. `events[rank]` is what each rank said, `evidence` what NCCL did.
pub(crate) fn assemble(
    plan: &Plan,
    started_at: &str,
    events: &[Vec<RankEvent>],
    end: &End,
    evidence: &Evidence,
    artifacts: Artifacts,
) -> Record {
    let mut failure = failure(plan, events, end, artifacts.log.as_deref());
    if let Some(failure) = &mut failure
        && (evidence.refuses_algorithm() || says_unknown_algorithm(&failure.message))
    {
        failure.kind = FailureKind::UnknownAlgorithm;
        failure.message = format!("NCCL has no algorithm {:?}: {}", plan.algorithm, failure.message);
    }
    let mut metrics = Metrics::default();
    if failure.is_none() {
        match rows(plan, events) {
            Some(rows) => metrics = Metrics { rows, comparison: comparison(events) },
            None => {
                failure = Some(Failure {
                    kind: FailureKind::RankFailed,
                    message: "the ranks' times do not fit together".to_owned(),
                    rank: None,
                    collective: None,
                    payload_bytes_per_rank: None,
                });
            }
        }
    }
    let mut versions = Versions { commtrace: env!("CARGO_PKG_VERSION").to_owned(), ..Versions::default() };
    let mut hosts = Vec::new();
    for event in events.iter().flatten() {
        if let RankEvent::Started { host, library, cuda_driver } = event {
            hosts.push(host.clone());
            versions.library = versions.library.or_else(|| library.clone());
            versions.cuda_driver = versions.cuda_driver.or_else(|| cuda_driver.clone());
        }
    }
    let hardware = hardware(hosts);
    let mut record = Record {
        schema_version: RECORD_SCHEMA_VERSION,
        experiment: plan.experiment,
        started_at: started_at.to_owned(),
        versions,
        workload: plan.workload(),
        evidence_level: if failure.is_none() { level(plan, &hardware) } else { EvidenceLevel::None },
        hardware,
        decision: decide(&metrics, failure.as_ref()),
        metrics,
        failure,
        artifacts,
    };
    evidence.attach(&mut record);
    record
}

/// The overlap experiment's comparison of its two schedules; `None` in the other.
fn comparison(events: &[Vec<RankEvent>]) -> Option<Comparison> {
    let of = |schedule: Schedule| -> Option<Vec<Vec<f64>>> {
        let of_rank = |events: &Vec<RankEvent>| {
            let all = measured(events);
            let one = all.into_iter().find(|part| part.subject.schedule == Some(schedule));
            one.map(|part| part.times_ms.clone())
        };
        events.iter().map(of_rank).collect()
    };
    overlap::compare(&of(Schedule::Serial)?, &of(Schedule::Overlapped)?)
}

/// A row for everything that rank 0 measured; `None` unless every rank has measured the same.
fn rows(plan: &Plan, events: &[Vec<RankEvent>]) -> Option<Vec<Row>> {
    let of_ranks: Vec<Vec<&Measured>> = events.iter().map(|events| measured(events)).collect();
    let first = of_ranks.first()?;
    let row_of = |index: usize, subject: Subject| {
        let parts: Vec<&Measured> =
            of_ranks.iter().map(|rank| rank.get(index).copied()).collect::<Option<_>>()?;
        if parts.iter().any(|part| part.subject != subject) {
            return None;
        }
        let times: Vec<Vec<f64>> = parts.iter().map(|part| part.times_ms.clone()).collect();
        let row = row(subject, plan.dtype.size() as u64, &times)?;
        Some(Row { wrong_elements: parts.iter().map(|part| part.wrong_elements).sum(), ..row })
    };
    first.iter().enumerate().map(|(index, part)| row_of(index, part.subject)).collect()
}

fn measured(events: &[RankEvent]) -> Vec<&Measured> {
    events
        .iter()
        .filter_map(|event| match event {
            RankEvent::Measured(measured) => Some(measured),
            _ => None,
        })
        .collect()
}

/// The first cause of a failure that there is evidence of.
fn failure(plan: &Plan, events: &[Vec<RankEvent>], end: &End, log: Option<&str>) -> Option<Failure> {
    if let End::Nothing(kind, message) = end {
        return Some(Found { kind: *kind, message: message.clone(), rank: None, subject: None }.of(plan));
    }
    // NCCL says that some other rank is gone, but not which: a process that ended without a word explains more.
    let unsaid = (plan.backend == Backend::Nccl).then(|| ended(events, log)).flatten();
    let found = unsaid
        .or_else(|| gave_up(events, false))
        .or_else(|| ended(events, log))
        .or_else(|| gave_up(events, true))
        .or_else(|| match end {
            _ if events.iter().flatten().any(|event| *event == RankEvent::TimedOut) => {
                Some(timed_out(plan, events, log))
            }
            End::TimedOut => Some(timed_out(plan, events, log)),
            End::Process(how) => Some(Found {
                kind: FailureKind::RankFailed,
                message: format!(
                    "the process of the ranks ended before the experiment did: {how}{}",
                    see(log)
                ),
                rank: None,
                subject: events.iter().find_map(|events| running(events)),
            }),
            _ => None,
        })
        .or_else(|| not_done(plan, events, log))
        .or_else(|| wrong(events));
    found.map(|found| found.of(plan))
}

/// A failure before it is put into the record's terms.
struct Found {
    kind: FailureKind,
    message: String,
    rank: Option<usize>,
    subject: Option<Subject>,
}

impl Found {
    fn of(self, plan: &Plan) -> Failure {
        Failure {
            kind: self.kind,
            message: self.message,
            rank: self.rank.and_then(|rank| u32::try_from(rank).ok()),
            collective: self.subject.map(|subject| subject.collective.as_str().to_owned()),
            payload_bytes_per_rank: self
                .subject
                .map(|subject| subject.payload_elements.saturating_mul(plan.dtype.size() as u64)),
        }
    }
}

fn see(log: Option<&str>) -> String {
    log.map_or_else(String::new, |log| format!("; what it printed is in {log}"))
}

/// What a rank was busy with at the end of its events.
fn running(events: &[RankEvent]) -> Option<Subject> {
    events.iter().rev().find_map(|event| match event {
        RankEvent::Running(subject) => Some(*subject),
        _ => None,
    })
}

/// A rank that gave up: by itself, or because of another one.
fn gave_up(events: &[Vec<RankEvent>], because_of_another: bool) -> Option<Found> {
    events.iter().enumerate().find_map(|(rank, events)| {
        let gave_up = events.iter().find_map(|event| match event {
            RankEvent::GaveUp(gave_up) if gave_up.because_of.is_some() == because_of_another => Some(gave_up),
            _ => None,
        })?;
        let GaveUp { kind, message, because_of } = gave_up.clone();
        let cause = because_of.and_then(|rank| usize::try_from(rank).ok()).unwrap_or(rank);
        Some(Found {
            kind,
            message: format!("rank {rank}: {message}"),
            rank: Some(cause),
            subject: running(events),
        })
    })
}

/// The rank whose process was the first to fail, of those that did not say why.
fn ended(events: &[Vec<RankEvent>], log: Option<&str>) -> Option<Found> {
    let silent = |events: &[RankEvent]| !events.iter().any(|event| matches!(event, RankEvent::GaveUp(_)));
    let failed =
        events.iter().enumerate().filter(|(_, events)| silent(events)).filter_map(|(rank, events)| {
            events.iter().find_map(|event| match event {
                RankEvent::Ended { success: false, killed: false, status, unix_ms } => {
                    Some((*unix_ms, rank, status))
                }
                _ => None,
            })
        });
    let (_, rank, status) = failed.min()?;
    Some(Found {
        kind: FailureKind::RankFailed,
        message: format!("the process of rank {rank} ended before the experiment did: {status}{}", see(log)),
        rank: Some(rank),
        subject: events.get(rank).and_then(|events| running(events)),
    })
}

fn timed_out(plan: &Plan, events: &[Vec<RankEvent>], log: Option<&str>) -> Found {
    // The rank that all others are past is the one that they wait for.
    let far = |events: &Vec<RankEvent>| {
        events.iter().filter(|event| !matches!(event, RankEvent::Ended { .. } | RankEvent::TimedOut)).count()
    };
    let least = events.iter().map(far).min().unwrap_or(0);
    let behind: Vec<usize> =
        events.iter().enumerate().filter(|(_, events)| far(events) == least).map(|(rank, _)| rank).collect();
    let rank = behind.first().copied().filter(|_| behind.len() == 1 && events.len() > 1);
    Found {
        kind: FailureKind::TimedOut,
        message: format!("the candidate did not end within {} s (--timeout){}", plan.timeout_s, see(log)),
        rank,
        subject: rank.and_then(|rank| events.get(rank)).or(events.first()).and_then(|events| running(events)),
    }
}

/// A rank that never said that it was done.
fn not_done(plan: &Plan, events: &[Vec<RankEvent>], log: Option<&str>) -> Option<Found> {
    let ranks = usize::try_from(plan.world_size).unwrap_or(usize::MAX);
    let rank =
        (0..ranks).find(|rank| !events.get(*rank).is_some_and(|events| events.contains(&RankEvent::Done)))?;
    Some(Found {
        kind: FailureKind::RankFailed,
        message: format!("rank {rank} did not come to the end of the experiment{}", see(log)),
        rank: Some(rank),
        subject: events.get(rank).and_then(|events| running(events)),
    })
}

/// The first wrong result.
fn wrong(events: &[Vec<RankEvent>]) -> Option<Found> {
    let all = || {
        events.iter().enumerate().flat_map(|(rank, events)| {
            let parts = measured(events).into_iter().enumerate();
            parts.filter(|(_, part)| part.wrong_elements > 0).map(move |(index, part)| (index, rank, part))
        })
    };
    let (_, rank, part) = all().min_by_key(|(index, rank, _)| (*index, *rank))?;
    let subject = part.subject;
    let wrong: u64 = all()
        .filter(|(_, _, other)| other.subject == subject)
        .map(|(_, _, other)| other.wrong_elements)
        .sum();
    Some(Found {
        kind: FailureKind::WrongResult,
        message: format!(
            "{wrong} wrong elements of {} with {} elements per rank; {}. No time of a wrong result means anything.",
            subject.collective,
            subject.payload_elements,
            part.first_wrong.as_deref().unwrap_or("the first is not known"),
        ),
        rank: Some(rank),
        subject: Some(subject),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::plan::Backend;
    use crate::record::{Experiment, Host, Verdict};
    use commtrace_collectives::DType;

    fn plan() -> Plan {
        Plan {
            experiment: Experiment::Collectives,
            backend: Backend::Mpi,
            world_size: 2,
            dtype: DType::Float32,
            payload_elements: vec![1000],
            collectives: vec![Collective::AllReduce],
            warmup: 1,
            repeats: 2,
            compute_dim: None,
            algorithm: "Auto".to_owned(),
            run_label: "test".to_owned(),
            timeout_s: 60,
        }
    }

    const SUBJECT: Subject =
        Subject { collective: Collective::AllReduce, schedule: None, payload_elements: 1000 };

    fn started(rank: u32) -> Vec<RankEvent> {
        let host = Host { name: "node".to_owned(), ranks: vec![rank], ..Host::default() };
        let library = Some("Open MPI v4.1.4".to_owned());
        vec![RankEvent::Started { host, library, cuda_driver: None }, RankEvent::Running(SUBJECT)]
    }

    fn measured(rank: u32, times_ms: &[f64], wrong_elements: u64) -> Vec<RankEvent> {
        let first_wrong = (wrong_elements > 0).then(|| format!("element 7 on rank {rank}"));
        let times_ms = times_ms.to_vec();
        let measured = Measured { subject: SUBJECT, times_ms, wrong_elements, first_wrong };
        [started(rank), vec![RankEvent::Measured(measured), RankEvent::Done]].concat()
    }

    fn gave_up(rank: u32, kind: FailureKind, because_of: Option<u32>) -> Vec<RankEvent> {
        let gave_up = GaveUp { kind, message: "why".to_owned(), because_of };
        [started(rank), vec![RankEvent::GaveUp(gave_up)]].concat()
    }

    fn ended(killed: bool, unix_ms: u64) -> RankEvent {
        RankEvent::Ended { success: false, killed, status: "signal: 11".to_owned(), unix_ms }
    }

    fn assembled(events: &[Vec<RankEvent>], end: &End) -> Record {
        let artifacts = Artifacts { log: Some("x.log".to_owned()), ..Artifacts::default() };
        assemble(&plan(), "2026-01-31T23:59:59Z", events, end, &Evidence::default(), artifacts)
    }

    #[test]
    fn ranks_that_measured_the_same_make_a_row() {
        let record = assembled(&[measured(0, &[1.0, 4.0], 0), measured(1, &[3.0, 2.0], 0)], &End::Regular);
        assert_eq!(record.failure, None);
        assert_eq!(record.metrics.rows[0].max_rank_ms, [3.0, 4.0]);
        assert_eq!(record.hardware.hosts[0].ranks, [0, 1]);
        assert_eq!(record.versions.library.as_deref(), Some("Open MPI v4.1.4"));
        assert_eq!(record.decision.decision, Verdict::VerifyOverlap);
    }

    /// What each situation is put down to: kind and rank.
    #[test]
    fn failures_are_put_down_to_their_first_cause() {
        use FailureKind::{Missing, NotStarted, RankFailed, TimedOut, WrongResult};
        let good = |rank| measured(rank, &[1.0, 1.0], 0);
        let with = |events: Vec<RankEvent>, last: RankEvent| [events, vec![last]].concat();
        let killed = |rank| with(started(rank), ended(true, 5));
        let cases = [
            ("nobody was started", vec![], End::Nothing(NotStarted, "no slots".to_owned()), NotStarted, None),
            (
                "a wrong result",
                vec![good(0), measured(1, &[1.0, 1.0], 3)],
                End::Regular,
                WrongResult,
                Some(1),
            ),
            ("a rank stops without a word", vec![good(0), started(1)], End::Regular, RankFailed, Some(1)),
            ("a rank says nothing at all", vec![good(0), vec![]], End::Regular, RankFailed, Some(1)),
            (
                "a rank lacks a library; the other waits for it",
                vec![gave_up(0, TimedOut, Some(1)), gave_up(1, Missing, None)],
                End::Regular,
                Missing,
                Some(1),
            ),
            (
                "a rank crashes, the other is ended",
                vec![killed(0), with(started(1), ended(false, 9))],
                End::Regular,
                RankFailed,
                Some(1),
            ),
            (
                "both crash, rank 1 first",
                vec![with(started(0), ended(false, 9)), with(started(1), ended(false, 8))],
                End::Regular,
                RankFailed,
                Some(1),
            ),
            (
                "a rank hangs, the other says for whom it waits",
                vec![with(gave_up(0, TimedOut, Some(1)), ended(false, 3)), killed(1)],
                End::TimedOut,
                TimedOut,
                Some(1),
            ),
            ("both hang at the same place", vec![started(0), started(1)], End::TimedOut, TimedOut, None),
            (
                "a rank has not come to where the other waits",
                vec![started(0), started(1)[..1].to_vec()],
                End::TimedOut,
                TimedOut,
                Some(1),
            ),
            (
                "the processes that watch the ranks ended them",
                vec![with(started(0), RankEvent::TimedOut), with(started(1), RankEvent::TimedOut)],
                End::Regular,
                TimedOut,
                None,
            ),
            (
                "a process of several ranks ends",
                vec![started(0), started(1)],
                End::Process("exit status: 3".to_owned()),
                RankFailed,
                None,
            ),
        ];
        for (situation, events, end, kind, rank) in cases {
            let record = assembled(&events, &end);
            let failure = record.failure.unwrap_or_else(|| panic!("{situation}: no failure"));
            assert_eq!((failure.kind, failure.rank), (kind, rank), "{situation}: {}", failure.message);
            assert!(record.metrics.rows.is_empty(), "{situation}");
            assert_eq!(record.evidence_level, EvidenceLevel::None, "{situation}");
            assert_eq!(record.decision.decision, Verdict::InspectFailure, "{situation}");
            let known = !events.is_empty() && events.iter().all(|events| events.len() > 1);
            if known {
                assert_eq!(failure.payload_bytes_per_rank, Some(4000), "{situation}");
            }
        }
    }

    #[test]
    fn wrong_elements_are_counted_over_all_ranks() {
        let record = assembled(&[measured(0, &[1.0, 1.0], 2), measured(1, &[1.0, 1.0], 3)], &End::Regular);
        let failure = record.failure.unwrap();
        assert!(failure.message.starts_with("5 wrong elements"), "{}", failure.message);
        assert_eq!(failure.rank, Some(0));
    }

    #[test]
    fn ranks_with_different_numbers_of_repeats_make_no_row() {
        let record = assembled(&[measured(0, &[1.0, 1.0], 0), measured(1, &[1.0], 0)], &End::Regular);
        assert_eq!(record.failure.unwrap().kind, FailureKind::RankFailed);
        assert!(record.metrics.rows.is_empty());
    }
}
