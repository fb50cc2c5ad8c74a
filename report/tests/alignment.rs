//! Clocks of synthetic jobs, whose truth is known.

mod synthetic;

use commtrace_report::advise::Strategy;
use commtrace_report::analyze::{AnalyzeOptions, CrossRank, RankAlignment, Report, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render::{TextOptions, text};
use commtrace_report::timeline::{Comm, Timeline, Track};
use proptest::prelude::*;
use synthetic::{JobSpec, Random, Straggler, Truth, timeline, write_folder};

const NOISE_NS: f64 = 5_000.0;

/// Hosts whose clocks are seconds apart and drift by up to 100 ppm, calls whose ends are noisy, and now and
/// then seen milliseconds late.
fn job(tensor: u32, data: u32, pipeline: u32, ranks_per_host: Option<u32>, steps: i64) -> JobSpec {
    JobSpec {
        tensor,
        data,
        pipeline,
        ranks_per_host,
        steps,
        max_offset_ns: 5e9,
        max_drift_ppm: 100.0,
        end_noise_ns: NOISE_NS,
        outlier_share: 0.005,
        compute_jitter: 0.1,
        seed: u64::from(tensor * 1000 + data * 10 + pipeline),
        ..JobSpec::default()
    }
}

fn report(timeline: &Timeline) -> Report {
    analyze(timeline, &AnalyzeOptions::default())
}

fn across(report: &Report) -> &CrossRank {
    report.cross_rank.as_ref().expect("collectives were matched")
}

/// Offsets are within the noise and the stated uncertainty; waits and transfers within 2 % or the
/// uncertainty.
fn check(name: &str, report: &Report, truth: &Truth) {
    let across = across(report);
    assert_eq!(across.alignment.len(), truth.offset_ns.len(), "{name}");
    for one in &across.alignment {
        let rank = one.rank as usize;
        let offset_ns = one.offset_ms.expect("aligned") * 1e6;
        let error_ns = (offset_ns - truth.offset_ns[rank] as f64).abs();
        let uncertainty_ns = one.uncertainty_ms.expect("aligned") * 1e6;
        assert!(error_ns <= NOISE_NS, "{name}, rank {rank}: offset is off by {error_ns} ns");
        assert!(error_ns <= uncertainty_ns + 1.0, "{name}, rank {rank}: {error_ns} of {uncertainty_ns} ns");
        assert!(uncertainty_ns < 6.0 * NOISE_NS, "{name}, rank {rank}: {uncertainty_ns} ns");
        let drift_error_ppm = (one.drift_ppm.expect("aligned") - truth.drift_ppm[rank]).abs();
        assert!(drift_error_ppm < 100.0, "{name}, rank {rank}: {drift_error_ppm} ppm");
    }
    for (op, true_op) in &truth.ops {
        let found = across.ops.iter().find(|one| one.collective == *op).expect("the op was matched");
        assert_eq!(found.matched, true_op.matched, "{name}, {op}");
        let uncertain_ms = found.uncertainty_ms * found.matched as f64;
        let times = [(found.wait_ms, true_op.wait_ns / 1e6), (found.transfer_ms, true_op.transfer_ns / 1e6)];
        for (found_ms, true_ms) in times {
            let error_ms = (found_ms - true_ms).abs();
            let allowed_ms = (0.02 * true_ms).max(uncertain_ms);
            assert!(error_ms <= allowed_ms, "{name}, {op}: {found_ms} ms for {true_ms} ms");
        }
    }
}

#[test]
fn clocks_and_waits_of_jobs_of_8_to_512_ranks() {
    let jobs = [
        ("8 ranks, 4 hosts", job(2, 2, 2, Some(2), 30)),
        ("8 ranks, a clock each", job(2, 2, 2, None, 30)),
        ("32 ranks, 4 hosts", job(4, 4, 2, Some(8), 20)),
        ("64 ranks, a clock each", job(4, 8, 2, None, 20)),
        ("128 ranks, 16 hosts", job(8, 8, 2, Some(8), 10)),
        ("512 ranks, 64 hosts", job(8, 16, 4, Some(8), 6)),
    ];
    for (name, spec) in jobs {
        let (timeline, truth) = timeline(&spec);
        let report = report(&timeline);
        assert_eq!(report.warnings, Vec::<String>::new(), "{name}");
        check(name, &report, &truth);
    }
}

/// 512 ranks of which nothing is known but what they recorded: no group holds them all but the world.
#[test]
fn clocks_of_512_imported_ranks() {
    let spec = JobSpec { layers: 1, ..job(8, 16, 4, None, 10) };
    let (timeline, truth) = timeline(&spec);
    check("512 clocks", &report(&timeline), &truth);
}

/// Clocks of decades ago and hosts that only the data-parallel groups tie together.
#[test]
fn clocks_are_joined_over_sub_communicators() {
    let spec = JobSpec {
        world_all_reduce: false,
        max_offset_ns: 1.7e18,
        ranks_per_host: Some(1),
        ..job(4, 4, 1, None, 40)
    };
    let (timeline, truth) = timeline(&spec);
    let report = report(&timeline);
    assert!(!timeline.tracks[0].comm.iter().any(|comm| comm.comm_size == Some(16)));
    check("sub-communicators", &report, &truth);
}

#[test]
fn a_long_run_tells_the_drift() {
    let spec = JobSpec { compute_scale: 100.0, ..job(2, 4, 1, Some(2), 60) };
    let (timeline, truth) = timeline(&spec);
    let report = report(&timeline);
    check("a long run", &report, &truth);
    for one in &across(&report).alignment {
        let error_ppm = (one.drift_ppm.expect("aligned") - truth.drift_ppm[one.rank as usize]).abs();
        // 5 us over half a minute are 0.2 ppm.
        assert!(error_ppm < 0.2, "rank {}: {error_ppm} ppm", one.rank);
    }
}

/// The same job with and without clocks that differ: all figures agree, also those of what compute hid.
#[test]
fn figures_are_those_of_one_clock() {
    let spec = JobSpec { outlier_share: 0.0, ..job(2, 4, 2, Some(4), 20) };
    let one =
        JobSpec { ranks_per_host: Some(u32::MAX), max_offset_ns: 0.0, max_drift_ppm: 0.0, ..spec.clone() };
    let (aligned, one_clock) = (report(&timeline(&spec).0), report(&timeline(&one).0));
    assert!(across(&one_clock).alignment.iter().all(|rank| *rank == RankAlignment::reference(rank.rank)));
    for (found, expected) in across(&aligned).ops.iter().zip(&across(&one_clock).ops) {
        assert_eq!((&found.collective, found.matched), (&expected.collective, expected.matched));
        assert_eq!(expected.uncertainty_ms, 0.0);
        assert_eq!(found.verdict, expected.verdict);
        let uncertain_ms = found.uncertainty_ms * found.matched as f64;
        for (name, found, expected) in [
            ("wait", found.wait_ms, expected.wait_ms),
            ("transfer", found.transfer_ms, expected.transfer_ms),
            ("exposed wait", found.exposed_wait_ms, expected.exposed_wait_ms),
            ("exposed transfer", found.exposed_transfer_ms, expected.exposed_transfer_ms),
        ] {
            let allowed = (0.02 * expected).max(uncertain_ms);
            assert!((found - expected).abs() <= allowed, "{name}: {found} ms for {expected} ms");
        }
        assert!(found.exposed_transfer_ms <= found.transfer_ms);
    }
}

#[test]
fn ranks_of_one_host_share_a_clock_that_is_not_fitted() {
    let spec = JobSpec { ranks_per_host: Some(64), ..job(8, 8, 1, None, 5) };
    let (timeline, truth) = timeline(&spec);
    let report = report(&timeline);
    assert!(across(&report).alignment.iter().all(|rank| *rank == RankAlignment::reference(rank.rank)));
    for op in &across(&report).ops {
        let true_op = truth.ops[op.collective.as_str()];
        // No fit, no uncertainty: as exact as the nanosecond that a clock counts in.
        assert_eq!(op.uncertainty_ms, 0.0);
        assert!((op.wait_ms - true_op.wait_ns / 1e6).abs() < 2e-4 * true_op.wait_ns / 1e6, "{op:?}");
    }
    assert!(text(&report, &TextOptions::default()).contains("One clock"));
}

/// Two pipeline stages on two hosts: messages between them do not tie their clocks together.
#[test]
fn parts_that_share_no_collective_are_said_to_be_unaligned() {
    let spec = JobSpec { world_all_reduce: false, ..job(4, 1, 2, Some(4), 20) };
    let (timeline, truth) = timeline(&spec);
    let report = report(&timeline);
    let aligned: Vec<bool> = across(&report).alignment.iter().map(|one| one.aligned).collect();
    assert_eq!(aligned, [true, true, true, true, false, false, false, false]);
    assert!(across(&report).alignment[4..].iter().all(|one| one.offset_ms.is_none()));
    assert!(
        report.warnings[0].contains("clocks of ranks 4, 5, 6, 7 could not be aligned"),
        "{:?}",
        report.warnings
    );
    // Within each part, waits are as good as ever.
    let [op] = &across(&report).ops[..] else { panic!("one op") };
    let wait_ms = truth.ops["all_reduce"].wait_ns / 1e6;
    assert!((op.wait_ms - wait_ms).abs() < 0.001 * wait_ms, "{} for {wait_ms}", op.wait_ms);
    let text = text(&report, &TextOptions::default());
    assert!(text.contains("4-7") && text.contains("not aligned"), "{text}");
}

/// All ranks arrive at the same time; only their ends are noisy.
#[test]
fn no_wait_is_claimed_that_the_clocks_cannot_tell() {
    for seed in 0..20 {
        let mut random = Random::new(seed, 0);
        let mut timeline = Timeline::default();
        let all_reduce = timeline.names.intern("all_reduce");
        let world = timeline.names.intern("world");
        for rank in 0..8 {
            let clock = timeline.names.intern(&format!("boot-{}", rank / 2));
            timeline.tracks.push(Track { clock: Some(clock), ..Track::new(rank, None) });
        }
        let clocks: Vec<(i64, f64)> =
            (0..4).map(|_| ((random.signed() * 3e9) as i64, random.signed() * 1e-4)).collect();
        for seq in 0..200 {
            let start = seq as i64 * 10_000_000;
            for (rank, track) in timeline.tracks.iter_mut().enumerate() {
                let (offset, drift) = clocks[rank / 2];
                let local = |at: i64| at + offset + (drift * at as f64).round() as i64;
                let end = start + 400_000 + (NOISE_NS * random.exponential()) as i64;
                track.comm.push(Comm {
                    comm: Some(world),
                    seq: Some(seq),
                    ..Comm::new(all_reduce, local(start), local(end))
                });
            }
        }
        let report = report(&timeline);
        let op = &across(&report).ops[0];
        assert!(op.uncertainty_ms > 0.0 && op.uncertainty_ms < 0.05, "seed {seed}: {op:?}");
        // Ranks of one host may be a nanosecond apart by rounding; nothing else is a wait.
        assert!(op.wait_ms <= 200.0 * 1e-6, "seed {seed}: a wait of {} ms is claimed", op.wait_ms);
        assert!(op.arrival_spread_ratio < 1e-5 && op.rank_imbalance_ratio < 1e-5, "{op:?}");
    }
}

#[test]
fn a_straggler_shows_across_hosts() {
    let spec = JobSpec {
        stragglers: vec![Straggler::always(2, "mlp", 2_000_000)],
        compute_jitter: 0.01,
        ..job(1, 4, 1, Some(1), 30)
    };
    let (timeline, truth) = timeline(&spec);
    let report = report(&timeline);
    check("a straggler", &report, &truth);
    let worst = (0..4).max_by(|&a, &b| truth.caused_wait_ns[a].total_cmp(&truth.caused_wait_ns[b]));
    assert_eq!(worst, Some(2));
    let waits = across(&report).ops.iter().find(|op| op.collective == "reduce_scatter").expect("matched");
    assert!(waits.rank_imbalance_ratio > 0.5, "{waits:?}");
    assert_eq!(report.mitigation.strategy, Strategy::RebalanceRanksOrExperts);
}

#[test]
fn record_files_are_aligned_like_the_job_in_memory() {
    let spec = job(2, 2, 2, Some(2), 20);
    let folder = tempfile::tempdir().expect("a folder");
    write_folder(&spec, folder.path()).expect("files can be written");
    let read = read(&[folder.path().to_owned()], &ReadOptions::default()).expect("files can be read");
    assert_eq!(report(&read).cross_rank, report(&timeline(&spec).0).cross_rank);
}

/// What several ranks of one communicator do not record is not made up.
#[test]
fn a_rank_without_a_record_is_not_in_the_alignment() {
    let faults = vec![synthetic::Fault::NoRecord { rank: 3 }];
    let (timeline, _) = timeline(&JobSpec { faults, ..job(2, 2, 2, Some(2), 20) });
    let report = report(&timeline);
    let ranks: Vec<u32> = across(&report).alignment.iter().map(|one| one.rank).collect();
    assert_eq!(ranks, [0, 1, 2, 4, 5, 6, 7]);
    assert!(across(&report).alignment.iter().all(|one| one.aligned));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn offsets_are_within_the_stated_uncertainty(
        (tensor, data, pipeline) in (1..4_u32, 2..5_u32, 1..3_u32),
        ranks_per_host in prop::option::of(1..5_u32),
        offset_ns in 0.0..1e12,
        noise_ns in 0.0..50_000.0,
        outlier_share in 0.0..0.05,
        seed in any::<u64>(),
    ) {
        let spec = JobSpec {
            max_offset_ns: offset_ns,
            end_noise_ns: noise_ns,
            outlier_share,
            seed,
            ..job(tensor, data, pipeline, ranks_per_host, 20)
        };
        let (timeline, truth) = timeline(&spec);
        let report = report(&timeline);
        for one in &across(&report).alignment {
            prop_assert!(one.aligned);
            let error_ms = one.offset_ms.map(|offset| (offset - truth.offset_ns[one.rank as usize] as f64 / 1e6).abs());
            prop_assert!(error_ms <= one.uncertainty_ms.map(|known| known + 2e-6), "{error_ms:?} {one:?}");
        }
        for op in &across(&report).ops {
            let true_op = truth.ops[op.collective.as_str()];
            let allowed_ms = (0.02 * true_op.wait_ns / 1e6).max(op.uncertainty_ms * op.matched as f64) + 1e-3;
            prop_assert!((op.wait_ms - true_op.wait_ns / 1e6).abs() <= allowed_ms, "{op:?} {true_op:?}");
        }
    }
}
