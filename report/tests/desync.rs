//! Faults that are planted in synthetic jobs of tensor, data and pipeline groups are found, named, and put
//! before what they hold up.

mod synthetic;

use commtrace_report::analyze::desync::{
    Desync, DesyncKind, DesyncOptions, RunVerdict, Surroundings, desynchronizations, diagnose,
};
use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render;
use commtrace_report::timeline::Timeline;
use std::collections::BTreeSet;
use synthetic::{Fault, Group, JobSpec, Layout, timeline, write_folder};

/// Eight ranks on four hosts.
fn job(faults: Vec<Fault>, seed: u64) -> JobSpec {
    JobSpec {
        tensor: 2,
        data: 2,
        pipeline: 2,
        steps: 6,
        ranks_per_host: Some(2),
        max_offset_ns: 1e6,
        end_noise_ns: 20e3,
        compute_jitter: 0.05,
        faults,
        seed,
        ..JobSpec::default()
    }
}

/// The job's records, written and read.
fn recorded(spec: &JobSpec) -> Timeline {
    let folder = tempfile::tempdir().unwrap();
    write_folder(spec, folder.path()).unwrap();
    read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap()
}

/// What is found in the job's records, and in the same job in memory, where no recording says how it ended.
fn found(spec: &JobSpec) -> [Vec<Desync>; 2] {
    [recorded(spec), timeline(spec).0]
        .map(|timeline| desynchronizations(&timeline, &DesyncOptions::default()))
}

/// The name of a rank's group.
fn name(spec: &JobSpec, rank: u32, group: Group) -> String {
    let layout = Layout::new(spec);
    let (index, _) = layout.of(rank, group).unwrap();
    layout.communicators[index].name.clone()
}

#[test]
fn a_job_without_a_fault_is_in_step() {
    for seed in 0..3 {
        for found in found(&job(Vec::new(), seed)) {
            assert_eq!(found, []);
        }
    }
    let timeline = recorded(&job(Vec::new(), 1));
    let diagnosis = diagnose(&timeline, &DesyncOptions::default(), &Surroundings::default());
    assert_eq!((diagnosis.verdict, diagnosis.next.len()), (RunVerdict::Ended, 0));
    let text = render::diagnosis(&diagnosis, &render::TextOptions::default());
    assert!(text.starts_with("commtrace doctor: nothing is stuck: the run ended regularly"), "{text}");
}

#[test]
fn a_rank_that_leaves_is_the_first_that_is_named() {
    for (rank, group) in [(0, Group::Tensor), (3, Group::Data), (5, Group::Tensor), (6, Group::World)] {
        let spec = job(vec![Fault::Leaves { rank, group, seq: 3 }], u64::from(rank));
        for found in found(&spec) {
            let cause = &found[0];
            assert_eq!(
                (cause.kind, cause.ranks.as_slice()),
                (DesyncKind::Missing, &[rank][..]),
                "{found:#?}"
            );
            assert!(cause.blocked_by.is_none());
            let of_group = found.iter().find(|one| one.comm == Some(name(&spec, rank, group))).unwrap();
            assert_eq!((of_group.seq, of_group.missing.as_slice()), (Some(3), &[rank][..]), "{found:#?}");
        }
    }
}

#[test]
fn a_rank_that_was_killed_is_named_and_all_others_are_behind_it() {
    for rank in [1, 4] {
        let spec = job(vec![Fault::Killed { rank, step: 3 }], 7);
        let [records, memory] = found(&spec);
        for found in [&records, &memory] {
            let first = &found[0];
            assert!(first.missing == [rank] || first.ranks == [rank], "{found:#?}");
            // Every other call that hangs waits for it, or for somebody who waits.
            for one in found.iter().filter(|one| !one.missing.is_empty() && one.missing != [rank]) {
                assert!(one.blocked_by.is_some() || one.missing.contains(&rank), "{one:#?}");
            }
        }
    }
}

#[test]
fn a_collective_that_a_rank_skips_leaves_it_one_short() {
    for rank in [2, 7] {
        let spec = job(vec![Fault::Skips { rank, group: Group::Tensor, seq: 5 }], 3);
        let tensor = name(&spec, rank, Group::Tensor);
        for found in found(&spec) {
            let at = found.iter().position(|one| one.comm.as_ref() == Some(&tensor)).unwrap();
            assert_eq!(found[at].missing, [rank], "{found:#?}");
            // It waits elsewhere for those that wait here.
            assert!(at < 2 && found[at].in_cycle, "{found:#?}");
        }
    }
}

#[test]
fn ranks_that_disagree_are_named_whether_the_job_hangs_or_goes_on() {
    let fault = |op, bytes, hangs| Fault::Disagrees { rank: 5, group: Group::Data, seq: 4, op, bytes, hangs };
    for hangs in [false, true] {
        for (op, bytes, kind) in
            [(Some("all_to_all"), None, DesyncKind::Op), (None, Some(77), DesyncKind::Bytes)]
        {
            let spec = job(vec![fault(op, bytes, hangs)], 2);
            for timeline in [recorded(&spec), timeline(&spec).0] {
                let report = analyze(&timeline, &AnalyzeOptions::default());
                let desync = report.cross_rank.unwrap().desync;
                let one = &desync[0];
                assert_eq!((one.kind, one.seq), (kind, Some(4)), "{desync:#?}");
                assert_eq!(one.comm, Some(name(&spec, 5, Group::Data)));
                // Two ranks, one against one: the side without the lowest rank is called the few, with a word.
                assert_eq!((one.sides.len(), one.weakened.len()), (2, 1), "{one:#?}");
                assert!(one.sides.iter().any(|side| side.ranks == [5]), "{one:#?}");
                assert_eq!(one.waiting.is_empty(), !hangs, "{one:#?}");
                if !hangs {
                    assert_eq!(desync.len(), 1, "the run went on: {desync:#?}");
                }
            }
        }
    }
}

#[test]
fn a_rank_without_a_record_is_not_taken_for_one_that_hangs() {
    let timeline = recorded(&job(vec![Fault::NoRecord { rank: 3 }], 1));
    let found = desynchronizations(&timeline, &DesyncOptions::default());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].kind, found[0].ranks.as_slice()), (DesyncKind::NoRecord, &[3][..]));
    let diagnosis = diagnose(&timeline, &DesyncOptions::default(), &Surroundings::default());
    assert_eq!(diagnosis.verdict, RunVerdict::Ended);
}

/// 512 ranks, one of which leaves: as many communicators hang, and it is the first that is named.
#[test]
fn in_a_large_job_the_cause_comes_first() {
    let rank = 301;
    let spec = JobSpec {
        tensor: 8,
        data: 16,
        pipeline: 4,
        steps: 2,
        ranks_per_host: None,
        faults: vec![Fault::Leaves { rank, group: Group::Tensor, seq: 7 }],
        ..JobSpec::default()
    };
    let (timeline, truth) = timeline(&spec);
    let found = desynchronizations(&timeline, &DesyncOptions::default());
    assert_eq!((found[0].ranks.as_slice(), found[0].seq), (&[rank][..], Some(7)), "{:#?}", found[0]);
    assert_eq!(found[0].comm, Some(name(&spec, rank, Group::Tensor)));
    let waiting: BTreeSet<u32> = found.iter().flat_map(|one| one.waiting.iter().copied()).collect();
    assert_eq!(waiting, truth.hanging.iter().copied().collect(), "all that hang are told");
    let causes: Vec<_> = found.iter().filter(|one| one.blocked_by.is_none()).collect();
    assert!(causes.iter().all(|one| one.missing == [rank]), "{causes:#?}");
}

/// The text is for people: the cause, who waits, since when, and what to do.
#[test]
fn the_text_says_who_what_since_when_and_what_next() {
    let timeline = recorded(&job(vec![Fault::Leaves { rank: 5, group: Group::Tensor, seq: 3 }], 5));
    let diagnosis = diagnose(&timeline, &DesyncOptions::default(), &Surroundings::default());
    assert_eq!(diagnosis.verdict, RunVerdict::Stuck);
    let text = render::diagnosis(&diagnosis, &render::TextOptions::default());
    let first =
        "commtrace doctor: stuck: rank 5 (in tp1.0 number 1) did not enter all_reduce number 3 of tp1.0";
    assert!(text.replace('\n', " ").starts_with(first), "{text}");
    for part in ["In it", "since 2025-06-15", "Missing        rank 5", "Held up by", "What to do next"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let report = analyze(&timeline, &AnalyzeOptions::default());
    let text = render::text(&report, &render::TextOptions::default());
    assert!(
        text.contains("Out of step") && text.contains("Rank 5 (in tp1.0 number 1) did not enter"),
        "{text}"
    );
}
