//! Figures across ranks by communicator, size and step, with values worked out by hand. Times in the
//! tests are milliseconds.

use commtrace_report::analyze::{AnalyzeOptions, CrossRank, Report, Verdict, analyze};
use commtrace_report::timeline::{Comm, Timeline, Track};

const MS: i64 = 1_000_000;

struct Job(Timeline);

#[derive(Clone, Copy)]
struct Call {
    op: &'static str,
    comm: &'static str,
    seq: u64,
    bytes: Option<u64>,
    step: Option<i64>,
}

const CALL: Call = Call { op: "all_reduce", comm: "world", seq: 0, bytes: None, step: None };

impl Job {
    fn ranks(count: u32) -> Self {
        let mut timeline = Timeline::default();
        let clock = Some(timeline.names.intern("boot"));
        timeline.tracks = (0..count).map(|rank| Track { clock, ..Track::new(rank, None) }).collect();
        Self(timeline)
    }

    fn call(&mut self, rank: usize, call: Call, start_ms: i64, end_ms: i64) {
        let names = &mut self.0.names;
        let mut event = Comm::new(names.intern(call.op), start_ms * MS, end_ms * MS);
        event.comm = Some(names.intern(call.comm));
        (event.seq, event.bytes, event.step) = (Some(call.seq), call.bytes, call.step);
        self.0.tracks[rank].comm.push(event);
    }

    fn message(&mut self, rank: usize, op: &str, peer: u32, start_ms: i64, end_ms: i64) {
        let names = &mut self.0.names;
        let mut event = Comm::new(names.intern(op), start_ms * MS, end_ms * MS);
        event.comm = Some(names.intern("pp"));
        (event.peer, event.comm_rank, event.bytes) = (Some(peer), Some(rank as u32), Some(100));
        self.0.tracks[rank].comm.push(event);
    }

    fn report(&self) -> Report {
        analyze(&self.0, &AnalyzeOptions::default())
    }

    fn across(&self) -> CrossRank {
        self.report().cross_rank.expect("ranks communicate")
    }
}

#[test]
fn each_communicator_size_and_step_has_its_own_figures() {
    let mut job = Job::ranks(4);
    for step in 0..6 {
        let at = step * 100;
        let call =
            |comm, bytes| Call { comm, bytes: Some(bytes), step: Some(step), seq: step as u64, ..CALL };
        // In dp0, rank 2 is late by 6 of 10 ms; in dp1, nobody is.
        job.call(0, call("dp0", 3 << 20), at, at + 10);
        job.call(2, call("dp0", 3 << 20), at + 6, at + 10);
        job.call(1, call("dp1", 1000), at, at + 10);
        job.call(3, call("dp1", 1000), at, at + 10);
    }
    let across = job.across();
    let op = &across.ops[0];
    assert_eq!((op.matched, op.wait_ms, op.transfer_ms), (12, 18.0, 24.0 + 60.0));

    let communicators: Vec<_> = op
        .by_communicator
        .iter()
        .map(|one| (one.comm.as_str(), one.comm_size, one.figures.wait_ms, one.figures.verdict))
        .collect();
    // Both cost 10 ms a step on a mean rank of dp1, and 7 of dp0.
    assert_eq!(
        communicators,
        [("dp1", 2, 0.0, Verdict::TransferDominated), ("dp0", 2, 18.0, Verdict::Mixed)]
    );
    let imbalances: Vec<f64> = op.by_communicator.iter().map(|one| one.rank_imbalance_ratio).collect();
    assert_eq!(imbalances, [0.0, 0.6]);

    let sizes: Vec<_> = op.by_size.iter().map(|one| (one.size.as_str(), one.figures.matched)).collect();
    assert_eq!(sizes, [("512 B-1 KiB", 6), ("2 MiB-4 MiB", 6)]);
    assert_eq!(op.by_size[1].rank_imbalance_ratio, 0.6);

    assert_eq!(op.by_step.iter().map(|one| one.step).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let step = &op.by_step[3];
    assert_eq!((step.figures.matched, step.figures.wait_ms, step.figures.transfer_ms), (2, 3.0, 14.0));
    assert_eq!(step.figures.verdict, Verdict::Inconclusive);
    assert_eq!(step.rank_imbalance_ratio, Some(0.3));
    assert_eq!(step.figures.arrival_spread_ratio, 0.3);
    assert_eq!(op.not_broken_down, 0);
}

#[test]
fn the_parts_of_a_breakdown_add_up_to_the_op() {
    let mut job = Job::ranks(2);
    for seq in 0..9_i64 {
        let call = Call { seq: seq as u64, bytes: Some(1 << seq), step: Some(seq / 3), ..CALL };
        job.call(0, call, seq * 100, seq * 100 + 20);
        job.call(1, call, seq * 100 + seq, seq * 100 + 20);
    }
    let across = job.across();
    let op = &across.ops[0];
    let total =
        |parts: Vec<(u64, f64)>| parts.iter().fold((0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    let whole = (op.matched, op.wait_ms);
    assert_eq!(whole, (9, 18.0));
    assert_eq!(total(op.by_size.iter().map(|p| (p.figures.matched, p.figures.wait_ms)).collect()), whole);
    assert_eq!(total(op.by_step.iter().map(|p| (p.figures.matched, p.figures.wait_ms)).collect()), whole);
    let by_comm = op.by_communicator.iter().map(|p| (p.figures.matched, p.figures.wait_ms)).collect();
    assert_eq!(total(by_comm), whole);
}

/// 8,000,000 bytes in 4 ms are 2 GB/s; an all_reduce of 4 ranks moves 1.5 times that over each link.
#[test]
fn bandwidth_is_that_of_the_shortest_part_and_of_each_ranks_own() {
    let mut job = Job::ranks(4);
    let call = Call { bytes: Some(8_000_000), ..CALL };
    for (rank, start) in [(0, 0), (1, 2), (2, 4), (3, 6)] {
        job.call(rank, call, start, 10);
    }
    let bandwidth = job.across().ops[0].bandwidth;
    assert_eq!((bandwidth.latency_ms, bandwidth.bytes), (4.0, Some(8_000_000)));
    assert_eq!((bandwidth.algbw_gbs, bandwidth.busbw_gbs), (Some(2.0), Some(3.0)));
    // The mean of 10, 8, 6 and 4 ms is 7.
    assert!(bandwidth.own_algbw_gbs.is_some_and(|own| (own - 8.0 / 7.0).abs() < 1e-12));
    assert!(bandwidth.own_busbw_gbs.is_some_and(|own| (own - 12.0 / 7.0).abs() < 1e-12));
}

#[test]
fn without_a_payload_there_is_no_bandwidth_and_no_size() {
    let mut job = Job::ranks(2);
    job.call(0, CALL, 0, 10);
    job.call(1, CALL, 0, 10);
    let across = job.across();
    let bandwidth = across.ops[0].bandwidth;
    assert_eq!((bandwidth.bytes, bandwidth.algbw_gbs, bandwidth.busbw_gbs), (None, None, None));
    assert_eq!((bandwidth.own_algbw_gbs, bandwidth.latency_ms), (None, 10.0));
    let size = &across.ops[0].by_size[0];
    assert_eq!((size.size.as_str(), size.from_bytes, size.below_bytes), ("unknown", None, None));
}

#[test]
fn uneven_payloads_of_an_exchange_are_told() {
    let mut job = Job::ranks(4);
    for (rank, bytes) in [(0, 700), (1, 100), (2, 100), (3, 100)] {
        let call = Call { op: "all_to_all_v", bytes: Some(bytes), ..CALL };
        job.call(rank, call, 0, 10);
        job.call(rank, Call { seq: 1, bytes: Some(8), ..CALL }, 20, 30);
    }
    let across = job.across();
    let op = |name: &str| across.ops.iter().find(|op| op.collective == name).expect("matched");
    // 700 of a mean of 250.
    assert_eq!(op("all_to_all_v").bytes_imbalance, Some(2.8));
    assert_eq!(op("all_to_all_v").bandwidth.bytes, Some(700));
    assert_eq!(op("all_reduce").bytes_imbalance, None);
}

#[test]
fn the_worst_collectives_are_few_and_in_order() {
    let mut job = Job::ranks(2);
    for seq in 0..30_i64 {
        let cost = (seq * 7) % 30 + 1;
        let call = Call { seq: seq as u64, step: Some(seq / 10), ..CALL };
        job.call(0, call, seq * 100, seq * 100 + cost);
        job.call(1, call, seq * 100 + cost / 2, seq * 100 + cost);
    }
    let worst = job.across().worst;
    assert_eq!(worst.len(), 10);
    let costs: Vec<f64> = worst.iter().map(|one| one.exposed_wait_ms + one.exposed_transfer_ms).collect();
    assert!(costs.is_sorted_by(|a, b| a >= b), "{costs:?}");
    // 7 · 17 = 119, 29 of 30: a call of 30 ms, of which rank 0 waits 15 for rank 1.
    assert_eq!((worst[0].seq, worst[0].step, worst[0].last_rank), (Some(17), Some(1), 1));
    assert_eq!((worst[0].wait_ms, worst[0].arrival_spread_ms), (7.5, 15.0));
}

#[test]
fn a_receiver_waits_for_a_late_sender_and_a_sender_for_a_late_receiver() {
    let mut job = Job::ranks(3);
    job.message(0, "send", 1, 4, 10);
    job.message(1, "recv", 0, 0, 10);
    job.message(1, "send", 2, 20, 30);
    job.message(2, "recv", 1, 27, 30);
    // Nobody is there to receive this one.
    job.message(2, "send", 0, 40, 50);
    let messages = job.across().point_to_point.expect("there are messages");
    assert_eq!((messages.matched, messages.unmatched_events, messages.bytes), (2, 1, Some(200)));
    assert_eq!((messages.late_sender_ms, messages.late_receiver_ms), (Some(4.0), Some(7.0)));
    let pairs: Vec<_> = messages.worst.iter().map(|pair| (pair.source, pair.destination)).collect();
    assert_eq!(pairs, [(1, 2), (0, 1)]);
}

#[test]
fn clocks_that_cannot_be_compared_leave_times_unknown() {
    let mut job = Job::ranks(2);
    job.message(0, "send", 1, 4, 10);
    job.message(1, "recv", 0, 0, 10);
    job.0.tracks[1].clock = None;
    let messages = job.across().point_to_point.expect("there are messages");
    assert_eq!((messages.matched, messages.late_sender_ms, messages.late_receiver_ms), (1, None, None));
}

/// Deterministic noise, about normal with deviation 1: twelve uniform numbers.
fn normal(seed: u64) -> f64 {
    let uniform = |draw: u64| {
        let mut mixed = (seed * 12 + draw).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..12).map(uniform).sum::<f64>() - 6.0
}

/// Four ranks on a loaded machine: how late a rank is lasts, as x' = 0.8 x + noise does, and rank 2 is
/// late by `lag_ms` more.
fn loaded_job(steps: i64, lag_ms: f64, seed: u64) -> Job {
    let mut job = Job::ranks(4);
    let mut late = [0.0_f64; 4];
    for step in 0..steps {
        let call = Call { seq: step as u64, step: Some(step), bytes: Some(4096), ..CALL };
        let arrivals: Vec<i64> = (0..4)
            .map(|rank| {
                late[rank] = 0.8 * late[rank] + normal(seed << 32 | (step as u64) << 8 | rank as u64);
                let lag = if rank == 2 { lag_ms } else { 0.0 };
                step * 1000 * MS + ((late[rank].abs() * 3.0 + lag) * MS as f64) as i64
            })
            .collect();
        let last = arrivals.iter().copied().max().unwrap_or_default();
        for (rank, &arrival) in arrivals.iter().enumerate() {
            let names = &mut job.0.names;
            let mut event = Comm::new(names.intern(call.op), arrival, last + 3 * MS);
            event.comm = Some(names.intern(call.comm));
            (event.seq, event.bytes, event.step) = (Some(call.seq), call.bytes, call.step);
            job.0.tracks[rank].comm.push(event);
        }
    }
    job
}

#[test]
fn lateness_that_lasts_for_some_steps_is_no_imbalance_and_a_slow_rank_is() {
    use commtrace_report::advise::Strategy;
    let (mut false_claims, mut found, mut ratios, mut cases) = (0, 0, 0, 0);
    for seed in 0..60 {
        for steps in [30, 60, 200] {
            let quiet = loaded_job(steps, 0.0, seed).report();
            ratios += usize::from(quiet.hotspot_events[0].rank_imbalance_ratio.unwrap() > 0.20);
            false_claims += usize::from(quiet.mitigation.strategy == Strategy::RebalanceRanksOrExperts);
            let slow = loaded_job(steps, 15.0, seed).report();
            found += usize::from(slow.mitigation.strategy == Strategy::RebalanceRanksOrExperts);
            cases += 1;
        }
    }
    println!("{false_claims} false of {cases}, {ratios} by the ratio alone; {found} found");
    assert!(ratios * 10 > cases, "{ratios} of {cases}: too little lateness for a test");
    assert!(false_claims * 20 <= cases, "{false_claims} of {cases} claim an imbalance that is none");
    assert_eq!(found, cases, "a rank that is late by 15 ms in every step was not found");
}
