//! Waits across ranks, with figures worked out by hand. Times in the tests are milliseconds.

use commtrace_report::advise::Strategy;
use commtrace_report::analyze::{
    AnalyzeOptions, Collective, CrossRank, CrossRankAccumulator, Member, OpAcrossRanks, Position,
    RankAlignment, Report, UnmatchedReason, Verdict, analyze,
};
use commtrace_report::timeline::{Comm, Compute, Timeline, Track};
use std::collections::BTreeSet;

const MS: i64 = 1_000_000;

/// A job whose ranks share a clock.
#[derive(Default)]
struct Job {
    timeline: Timeline,
}

struct Call {
    op: &'static str,
    comm: Option<&'static str>,
    seq: Option<u64>,
    size: Option<u32>,
    bytes: Option<u64>,
    dtype: Option<&'static str>,
    step: Option<i64>,
}

fn call(op: &'static str, seq: u64) -> Call {
    Call { op, comm: Some("world"), seq: Some(seq), size: None, bytes: None, dtype: None, step: None }
}

impl Job {
    fn ranks(count: u32) -> Self {
        let mut job = Self::default();
        let clock = job.timeline.names.intern("boot");
        for rank in 0..count {
            job.timeline.tracks.push(Track { clock: Some(clock), ..Track::new(rank, None) });
        }
        job
    }

    fn comm(&mut self, rank: usize, call: &Call, start_ms: i64, end_ms: i64) {
        self.comm_ns(rank, call, start_ms * MS, end_ms * MS);
    }

    fn comm_ns(&mut self, rank: usize, call: &Call, start_ns: i64, end_ns: i64) {
        let names = &mut self.timeline.names;
        let mut event = Comm::new(names.intern(call.op), start_ns, end_ns);
        event.comm = call.comm.map(|name| names.intern(name));
        event.seq = call.seq;
        event.comm_size = call.size;
        event.bytes = call.bytes;
        event.dtype = call.dtype.map(|name| names.intern(name));
        event.step = call.step;
        self.timeline.tracks[rank].comm.push(event);
    }

    fn compute(&mut self, rank: usize, start_ms: i64, end_ms: i64) {
        let name = self.timeline.names.intern("forward");
        let interval = Compute { name, start_ns: start_ms * MS, end_ns: end_ms * MS, step: None };
        self.timeline.tracks[rank].compute.push(interval);
    }

    fn report(&self) -> Report {
        analyze(&self.timeline, &AnalyzeOptions::default())
    }

    fn across(&self) -> CrossRank {
        self.report().cross_rank.expect("ranks were matched")
    }
}

fn op<'a>(across: &'a CrossRank, name: &str) -> &'a OpAcrossRanks {
    across.ops.iter().find(|op| op.collective == name).expect("the op was matched")
}

#[test]
fn wait_and_transfer_of_one_collective() {
    let mut job = Job::ranks(2);
    job.comm(0, &call("all_reduce", 0), 0, 10);
    job.comm(1, &call("all_reduce", 0), 4, 10);
    job.compute(0, 2, 6);
    let across = job.across();
    let all_reduce = op(&across, "all_reduce");
    // Rank 0 waits 0..4, of which 2..4 is hidden, and transfers 4..10, of which 4..6 is hidden. Rank 1
    // transfers 4..10.
    assert_eq!(all_reduce.matched, 1);
    assert_eq!(all_reduce.wait_ms, 2.0);
    assert_eq!(all_reduce.transfer_ms, 6.0);
    assert_eq!(all_reduce.exposed_wait_ms, 1.0);
    assert_eq!(all_reduce.exposed_transfer_ms, 5.0);
    assert_eq!(all_reduce.rank_imbalance_ratio, 0.4);
    assert_eq!(all_reduce.rank_imbalance_lower, None);
    assert_eq!(all_reduce.arrival_spread_ratio, 0.4);
    assert_eq!(all_reduce.verdict, Verdict::Inconclusive);
    assert!(!all_reduce.partial);
    assert_eq!((across.unmatched_events, across.unmatched.len()), (0, 0));
}

/// A rank that ends before the last arrives (its own clock or a small message) waits no longer than it
/// was in the call.
#[test]
fn a_wait_ends_with_the_call() {
    let mut job = Job::ranks(2);
    job.comm(0, &call("barrier", 0), 0, 3);
    job.comm(1, &call("barrier", 0), 5, 9);
    let across = job.across();
    let barrier = op(&across, "barrier");
    assert_eq!((barrier.wait_ms, barrier.transfer_ms), (1.5, 2.0));
    assert_eq!(barrier.rank_imbalance_ratio, 0.75);
    // (5 - 0) / 4 is more than the whole.
    assert_eq!(barrier.arrival_spread_ratio, 1.0);
}

#[test]
fn lateness_that_moves_is_spread_and_not_imbalance() {
    let mut job = Job::ranks(2);
    for step in 0..10 {
        let call = Call { step: Some(step), ..call("all_reduce", step as u64) };
        let late = (step % 2) as usize;
        job.comm(late, &call, step * 100 + 8, step * 100 + 10);
        job.comm(1 - late, &call, step * 100, step * 100 + 10);
    }
    let across = job.across();
    let all_reduce = op(&across, "all_reduce");
    assert_eq!(all_reduce.matched, 10);
    assert_eq!((all_reduce.bootstrap_steps, all_reduce.bootstrap_blocks), (10, 10));
    assert_eq!(all_reduce.rank_imbalance_ratio, 0.0);
    assert_eq!(all_reduce.rank_imbalance_lower, Some(0.0));
    assert_eq!(all_reduce.arrival_spread_ratio, 0.8);
    assert_eq!((all_reduce.wait_ms, all_reduce.transfer_ms), (40.0, 20.0));
    assert_eq!(all_reduce.verdict, Verdict::ArrivalDominated);
}

/// Deterministic noise, 0 to 1.
fn noise(seed: u64) -> f64 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^= mixed >> 32;
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// Four ranks, `steps` steps of one collective each; every rank is late by up to 4 ms, rank 2 by
/// `lag_ms` more; the transfer takes 3 ms.
fn noisy_job(steps: i64, lag_ms: f64, seed: u64) -> Job {
    let mut job = Job::ranks(4);
    for step in 0..steps {
        let arrivals: Vec<i64> = (0..4_u64)
            .map(|rank| {
                let late = 4.0 * noise(seed * 1_000_003 + step as u64 * 4 + rank);
                let lag = if rank == 2 { lag_ms } else { 0.0 };
                step * 100 * MS + ((late + lag) * MS as f64) as i64
            })
            .collect();
        let last = arrivals.iter().copied().max().unwrap_or_default();
        for (rank, &arrival) in arrivals.iter().enumerate() {
            let call = Call { step: Some(step), bytes: Some(4096), ..call("all_reduce", step as u64) };
            job.comm_ns(rank, &call, arrival, last + 3 * MS);
        }
    }
    job
}

#[test]
fn noise_does_not_call_for_rebalancing_and_a_planted_lag_does() {
    for seed in 0..20 {
        for steps in [8, 20, 60] {
            let quiet = noisy_job(steps, 0.0, seed).report();
            assert!(quiet.hotspot_events[0].rank_imbalance_observed);
            let lower = quiet.hotspot_events[0].rank_imbalance_lower;
            assert!(lower.is_some_and(|lower| lower <= 0.20), "seed {seed}, {steps} steps: {lower:?}");
            assert_eq!(quiet.mitigation.strategy, Strategy::IncreaseOverlapOrDelaySync);

            let lagging = noisy_job(steps, 20.0, seed).report();
            assert_eq!(lagging.mitigation.strategy, Strategy::RebalanceRanksOrExperts, "seed {seed}");
            let across = lagging.cross_rank.expect("matched");
            assert_eq!(op(&across, "all_reduce").verdict, Verdict::ArrivalDominated);
        }
    }
}

/// Below five steps there is no bound worth the name: the ratio itself decides.
#[test]
fn few_steps_are_judged_by_the_ratio() {
    let report = noisy_job(3, 20.0, 1).report();
    let event = &report.hotspot_events[0];
    assert_eq!(event.rank_imbalance_lower, None);
    assert!(event.rank_imbalance_ratio.is_some_and(|ratio| ratio > 0.5));
    assert_eq!(report.mitigation.strategy, Strategy::RebalanceRanksOrExperts);
}

#[test]
fn collectives_without_steps_are_resampled_in_blocks() {
    let mut job = Job::ranks(2);
    for seq in 0..64 {
        let start = seq as i64 * 100;
        job.comm(0, &call("all_reduce", seq), start, start + 10);
        job.comm(1, &call("all_reduce", seq), start + 5, start + 10);
    }
    let across = job.across();
    let all_reduce = op(&across, "all_reduce");
    // The cube root of 64 is a block's length; batches are of a tenth of them.
    assert_eq!((all_reduce.bootstrap_steps, all_reduce.bootstrap_blocks), (16, 10));
    let lower = all_reduce.rank_imbalance_lower.expect("there are blocks");
    assert!((lower - 0.5).abs() < 1e-9, "every block is alike: {lower}");
}

#[test]
fn what_does_not_agree_is_listed_and_not_counted() {
    let mut job = Job::ranks(2);
    let both = |job: &mut Job, first: &Call, second: &Call| {
        job.comm(0, first, 0, 10);
        job.comm(1, second, 5, 10);
    };
    both(&mut job, &call("all_reduce", 0), &call("all_reduce", 0));
    both(&mut job, &call("all_reduce", 1), &call("all_gather", 1));
    let sized = |seq, bytes| Call { bytes: Some(bytes), ..call("all_reduce", seq) };
    both(&mut job, &sized(2, 8), &sized(2, 16));
    let typed = |seq, dtype| Call { dtype: Some(dtype), ..call("all_reduce", seq) };
    both(&mut job, &typed(3, "f32"), &typed(3, "f16"));
    // What one rank does not say contradicts nothing.
    both(&mut job, &call("all_reduce", 4), &sized(4, 16));
    // Ranks of this op may move different amounts.
    both(
        &mut job,
        &Call { bytes: Some(1), ..call("all_to_all_v", 5) },
        &Call { bytes: Some(2), ..call("all_to_all_v", 5) },
    );
    job.comm(0, &call("all_reduce", 6), 0, 10);
    job.comm(0, &call("all_reduce", 7), 0, 10);
    both(&mut job, &call("all_reduce", 7), &call("all_reduce", 7));
    job.comm(0, &call("all_reduce", 8), 10, 0);
    job.comm(1, &call("all_reduce", 8), 0, 10);
    both(
        &mut job,
        &Call { seq: None, ..call("all_reduce", 0) },
        &Call { comm: None, ..call("all_reduce", 0) },
    );

    let across = job.across();
    assert_eq!(op(&across, "all_reduce").matched, 2);
    assert_eq!(op(&across, "all_to_all_v").matched, 1);
    let listed: Vec<_> =
        across.unmatched.iter().map(|one| (one.seq, one.reason, one.ranks.as_slice())).collect();
    let both = [0, 1].as_slice();
    assert_eq!(
        listed,
        [
            (None, UnmatchedReason::NotNumbered, both),
            (Some(1), UnmatchedReason::Disagreement, both),
            (Some(2), UnmatchedReason::Disagreement, both),
            (Some(3), UnmatchedReason::Disagreement, both),
            (Some(6), UnmatchedReason::MembersMissing, [0].as_slice()),
            (Some(7), UnmatchedReason::Ambiguous, both),
            (Some(8), UnmatchedReason::EndBeforeStart, both),
        ]
    );
    assert_eq!(across.unmatched_events, 2 + 2 + 2 + 2 + 1 + 3 + 2);
}

#[test]
fn missing_members_make_lower_bounds_and_are_said() {
    let mut job = Job::ranks(2);
    for seq in 0..6 {
        let call = Call { size: Some(4), ..call("all_reduce", seq) };
        job.comm(0, &call, seq as i64 * 20, seq as i64 * 20 + 10);
        job.comm(1, &call, seq as i64 * 20 + 2, seq as i64 * 20 + 10);
    }
    let report = job.report();
    let across = report.cross_rank.as_ref().expect("two ranks were matched");
    let all_reduce = op(across, "all_reduce");
    assert!(all_reduce.partial);
    assert_eq!(all_reduce.matched, 6);
    assert_eq!(all_reduce.wait_ms, 6.0);
    // Who is missing may have come later: that little of it was waiting is not known.
    assert_eq!(all_reduce.verdict, Verdict::Inconclusive);
    assert_eq!((across.unmatched_events, across.unmatched.len()), (0, 0));
    assert!(report.warnings.iter().any(|warning| warning.contains("all_reduce are lower bounds")));
}

/// A rank that stopped early must not look like one that never waits.
#[test]
fn where_complete_collectives_exist_incomplete_ones_do_not_count() {
    let mut job = Job::ranks(3);
    for seq in 0..10 {
        let start = seq as i64 * 20;
        for rank in 0..if seq < 4 { 3 } else { 2 } {
            job.comm(rank, &call("all_reduce", seq), start, start + 10);
        }
    }
    let across = job.across();
    let all_reduce = op(&across, "all_reduce");
    assert_eq!((all_reduce.matched, all_reduce.partial), (4, false));
    assert_eq!(across.unmatched_events, 12);
    assert_eq!(across.unmatched[0].reason, UnmatchedReason::MembersMissing);
    assert_eq!(across.unmatched[0].seq, Some(4));
}

#[test]
fn members_are_known_from_the_list_of_a_communicator() {
    let mut job = Job::ranks(2);
    job.comm(0, &call("all_reduce", 0), 0, 10);
    job.comm(1, &call("all_reduce", 0), 0, 10);
    assert!(!op(&job.across(), "all_reduce").partial);
    let world = job.timeline.names.intern("world");
    job.timeline.communicators.insert(world, vec![0, 1, 2]);
    assert!(op(&job.across(), "all_reduce").partial);
}

#[test]
fn sub_communicators_are_matched_on_their_own() {
    let mut job = Job::ranks(4);
    for (comm, ranks) in [("dp0", [0, 2]), ("dp1", [1, 3])] {
        let call = Call { comm: Some(comm), size: Some(2), ..call("all_reduce", 0) };
        job.comm(ranks[0], &call, 0, 10);
        job.comm(ranks[1], &call, 6, 10);
    }
    let across = job.across();
    let all_reduce = op(&across, "all_reduce");
    assert_eq!(all_reduce.matched, 2);
    // Each: mean of 6 and 0.
    assert_eq!(all_reduce.wait_ms, 6.0);
    // Ranks 0 and 1 waited 6, of 10 + 10.
    assert_eq!(all_reduce.rank_imbalance_ratio, 0.3);
}

/// One name for two groups: which two of the four belong together is not known.
#[test]
fn more_ranks_than_members_are_ambiguous() {
    let mut job = Job::ranks(4);
    let tp = Call { comm: Some("tp"), size: Some(2), ..call("all_reduce", 0) };
    for rank in 0..4 {
        job.comm(rank, &tp, 0, 10);
    }
    let report = job.report();
    let across = report.cross_rank.expect("there are ranks");
    assert_eq!((across.ops.len(), across.unmatched_events), (0, 4));
    assert_eq!(across.unmatched[0].reason, UnmatchedReason::Ambiguous);
    assert!(report.warnings.iter().any(|warning| warning.contains("4 events unmatched")));
    assert!(!report.hotspot_events[0].rank_imbalance_observed);
}

#[test]
fn two_devices_of_one_rank_are_two_members() {
    let mut job = Job::ranks(2);
    job.timeline.tracks[0].device = Some(0);
    job.timeline.tracks[1].device = Some(0);
    let clock = job.timeline.tracks[0].clock;
    job.timeline.tracks.insert(1, Track { clock, ..Track::new(0, Some(1)) });
    for (track, start) in [(0, 0), (1, 3), (2, 6)] {
        job.comm(track, &call("all_reduce", 0), start, 12);
    }
    let across = job.across();
    let all_reduce = op(&across, "all_reduce");
    assert_eq!(all_reduce.wait_ms, 3.0);
    assert_eq!(all_reduce.rank_imbalance_ratio, 0.5);
}

#[test]
fn rooted_and_point_to_point_ops_tell_no_waits() {
    let mut job = Job::ranks(2);
    for (seq, name) in (0..).zip(["broadcast", "reduce", "send", "recv"]) {
        job.comm(0, &call(name, seq), 0, 10);
        job.comm(1, &call(name, seq), 5, 10);
    }
    job.comm(0, &call("all_gather", 9), 0, 10);
    job.comm(1, &call("all_gather", 9), 0, 10);
    let report = job.report();
    let across = report.cross_rank.expect("all_gather was matched");
    assert_eq!(across.ops.len(), 1);
    // Nobody says whom the messages are for.
    assert_eq!(across.unmatched_events, 4);
    assert_eq!(across.point_to_point.map(|messages| messages.unmatched_events), Some(4));
    for event in &report.hotspot_events {
        assert_eq!(event.rank_imbalance_observed, event.collective == "all_gather", "{}", event.collective);
    }
}

#[test]
fn one_rank_alone_tells_nothing_and_is_not_warned_about() {
    let mut job = Job::ranks(1);
    job.comm(0, &call("all_reduce", 0), 0, 10);
    let report = job.report();
    assert_eq!(report.cross_rank, None);
    assert!(report.warnings.is_empty());
}

#[test]
fn clocks_that_do_not_agree_are_aligned() {
    for clock in [Some("another boot"), None] {
        let mut job = noisy_job(20, 20.0, 1);
        let one_clock = op(&job.across(), "all_reduce").clone();
        job.timeline.tracks[3].clock = clock.map(|name| job.timeline.names.intern(name));
        let mut moved = Comm::new(job.timeline.names.intern("all_reduce"), 0, 0);
        let track = &mut job.timeline.tracks[3];
        let ahead_ns = 7_000 * MS;
        let comm = std::mem::take(&mut track.comm);
        for event in comm.iter() {
            moved = Comm { start_ns: event.start_ns + ahead_ns, end_ns: event.end_ns + ahead_ns, ..event };
            track.comm.push(moved);
        }
        assert_eq!(moved.step, Some(19));
        let report = job.report();
        assert_eq!(report.warnings, Vec::<String>::new());
        let across = report.cross_rank.expect("aligned");
        let all_reduce = op(&across, "all_reduce");
        assert!((all_reduce.wait_ms - one_clock.wait_ms).abs() < 0.001, "{all_reduce:?}");
        assert_eq!(all_reduce.verdict, one_clock.verdict);
        assert!(all_reduce.uncertainty_ms > 0.0 && all_reduce.uncertainty_ms < 0.001);
        let [.., last] = across.alignment[..] else { panic!("no alignment") };
        assert!((last.offset_ms.expect("aligned") - 7000.0).abs() < 0.001, "{last:?}");
        assert!(last.aligned && across.alignment.len() == 4);
        assert_eq!(across.alignment[0], RankAlignment::reference(0));
        assert_eq!(across.alignment[2], RankAlignment::reference(2));
    }
}

#[test]
fn without_alignment_all_times_are_of_one_clock() {
    let mut job = noisy_job(20, 20.0, 1);
    let one_clock = job.across();
    for track in &mut job.timeline.tracks {
        track.clock = None;
    }
    let report = analyze(&job.timeline, &AnalyzeOptions { align: false, ..AnalyzeOptions::default() });
    assert_eq!(report.cross_rank, Some(one_clock));
}

#[test]
fn filters_of_ranks_and_steps() {
    let job = noisy_job(20, 20.0, 1);
    let two = AnalyzeOptions { ranks: Some(BTreeSet::from([0, 2])), ..AnalyzeOptions::default() };
    let report = analyze(&job.timeline, &two);
    assert_eq!(report.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(op(&report.cross_rank.expect("two ranks"), "all_reduce").matched, 20);

    let some = AnalyzeOptions { steps: "5..9".parse().ok(), ..AnalyzeOptions::default() };
    let report = analyze(&job.timeline, &some);
    let steps: Vec<i64> = report.ranks[0].steps.iter().map(|step| step.step).collect();
    assert_eq!(steps, [5, 6, 7, 8]);
    assert_eq!(report.ranks[0].summary.num_comm_events, 4);
    // The origin of times is that of the whole timeline.
    assert!((report.ranks[0].steps[0].start_ms - 500.0).abs() < 5.0);
    assert_eq!(op(&report.cross_rank.expect("matched"), "all_reduce").matched, 4);
}

/// The memory for the bootstrap is bounded; the figures do not depend on it.
#[test]
fn joined_blocks_keep_the_figures() {
    let mut narrow = CrossRankAccumulator::with_max_blocks(8);
    let mut wide = CrossRankAccumulator::default();
    for step in -500..500 {
        let start = step * 100 * MS;
        let late = ((noise(step.unsigned_abs()) * 9.0) as i64 + 5) * MS;
        let member = |rank, start_ns| Member {
            rank,
            device: None,
            start_ns,
            end_ns: start + 20 * MS,
            exposed_wait_ns: 0,
            exposed_transfer_ns: 0,
            bytes: None,
        };
        let members = [member(0, start), member(1, start + late)];
        for accumulator in [&mut narrow, &mut wide] {
            let collective = Collective {
                op: "all_reduce",
                comm: "world",
                comm_size: 2,
                seq: None,
                position: Position::Step(step),
                complete: true,
            };
            accumulator.add(&collective, &members);
        }
    }
    let (narrow, wide) = (narrow.finish().0.remove(0), wide.finish().0.remove(0));
    assert_eq!((wide.bootstrap_steps, wide.bootstrap_blocks), (1000, 10));
    assert!(narrow.bootstrap_steps <= 8 && narrow.bootstrap_steps >= 4, "{}", narrow.bootstrap_steps);
    assert!((narrow.rank_imbalance_ratio - wide.rank_imbalance_ratio).abs() < 1e-12);
    let bounds = [narrow.rank_imbalance_lower, wide.rank_imbalance_lower].map(Option::unwrap_or_default);
    assert!((bounds[0] - bounds[1]).abs() < 0.05, "{bounds:?}");
    assert!(bounds.iter().all(|bound| *bound > 0.3), "{bounds:?}");
    assert_eq!((narrow.matched, narrow.wait_ms), (wide.matched, wide.wait_ms));
}
