//! Stragglers of synthetic jobs: who was planted is named with its span, and nobody else; the running summary
//! says the same.

mod synthetic;

use commtrace_report::aggregate::Aggregator;
use commtrace_report::analyze::{AnalyzeOptions, CrossRank, Pattern, Report, Straggler, analyze};
use commtrace_report::record::{Row, RowKind};
use commtrace_report::timeline::Timeline;
use synthetic::{JobSpec, Straggler as Planted, timeline};

/// Compute differs by 3 % from time to time, ends by 5 µs. A step takes about 12 ms.
fn job(tensor: u32, data: u32, pipeline: u32, steps: i64) -> JobSpec {
    JobSpec { tensor, data, pipeline, steps, compute_jitter: 0.03, end_noise_ns: 5e3, ..JobSpec::default() }
}

fn across(timeline: &Timeline) -> CrossRank {
    analyze(timeline, &AnalyzeOptions::default()).cross_rank.expect("ranks are matched")
}

/// The only straggler, which must be `rank` with `span`.
fn only(across: &CrossRank, rank: u32, span: &str) -> Straggler {
    let [straggler] = across.stragglers.as_slice() else {
        panic!("rank {rank} with {span}, not {:?}; {:?}", across.stragglers, across.by_rank)
    };
    assert_eq!((straggler.rank, straggler.span.as_deref()), (rank, Some(span)), "{straggler:?}");
    straggler.clone()
}

/// The rows of a timeline, as a recorder would push them: by end.
fn aggregated(timeline: &Timeline) -> Report {
    let names = &timeline.names;
    let mut rows: Vec<(i64, u32, Row<'_>)> = Vec::new();
    for track in &timeline.tracks {
        let device = track.device;
        let mut push = |start: i64, end: i64, row: Row<'static>| {
            rows.push((end, track.rank, Row { start_ns: Some(start), dur_ns: Some(end - start), ..row }));
        };
        let own = |text: &str| -> &'static str { text.to_owned().leak() };
        for (one, label) in track.compute.iter_labelled() {
            let label = label.map(|label| own(names.get(label)));
            let row = Row::new(RowKind::Compute, own(names.get(one.name)));
            push(one.start_ns, one.end_ns, Row { step: one.step, device, label, ..row });
        }
        for one in track.comm.iter() {
            let row = Row {
                bytes: one.bytes,
                comm: one.comm.map(|comm| own(names.get(comm))),
                comm_size: one.comm_size,
                comm_rank: one.comm_rank,
                seq: one.seq,
                stream: one.stream.map(|stream| own(names.get(stream))),
                step: one.step,
                device,
                ..Row::new(RowKind::Comm, own(names.get(one.op)))
            };
            push(one.start_ns, one.end_ns, row);
        }
        for one in &track.steps {
            push(one.start_ns, one.end_ns, Row { step: Some(one.step), ..Row::new(RowKind::Step, "step") });
        }
    }
    rows.sort_by_key(|row| row.0);
    let mut aggregator = Aggregator::new(AnalyzeOptions::default());
    // What is still to come of a step starts after the one before the last has ended.
    let horizon_ns =
        timeline.tracks.iter().flat_map(|track| &track.steps).map(|step| step.end_ns - step.start_ns);
    let horizon_ns = 2 * horizon_ns.max().unwrap_or(i64::MAX / 4);
    for (index, (end_ns, rank, row)) in rows.iter().enumerate() {
        aggregator.push(*rank, row);
        if index % 1000 == 999 {
            aggregator.advance(end_ns - horizon_ns);
        }
    }
    aggregator.finish()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs()))
}

/// The running summary agrees with the analysis of the whole.
fn assert_aggregated_is_the_same(timeline: &Timeline) {
    let whole = across(timeline);
    let live = aggregated(timeline).cross_rank.expect("ranks are matched");
    assert_eq!(live.by_rank.len(), whole.by_rank.len());
    for (live, whole) in live.by_rank.iter().zip(&whole.by_rank) {
        assert_eq!((live.rank, live.collectives), (whole.rank, whole.collectives));
        assert_eq!(live.arrived_last, whole.arrived_last, "rank {}", live.rank);
        assert!(close(live.caused_wait_ms, whole.caused_wait_ms), "{live:?}, not {whole:?}");
        assert!(close(live.suffered_wait_ms, whole.suffered_wait_ms), "{live:?}, not {whole:?}");
        for (live, whole) in
            [(live.relative_score, whole.relative_score), (live.individual_score, whole.individual_score)]
        {
            assert!(close(live.unwrap_or(-1.0), whole.unwrap_or(-1.0)), "{live:?}, not {whole:?}");
        }
    }
    assert_eq!(live.stragglers.len(), whole.stragglers.len());
    for (live, whole) in live.stragglers.iter().zip(&whole.stragglers) {
        let said = |one: &Straggler| {
            let steps = (one.steps, one.late_steps, one.late_step_numbers.clone());
            (one.rank, one.arrived_last, one.span.clone(), one.span_label.clone(), one.pattern, steps)
        };
        assert_eq!(said(live), said(whole));
        for (live, whole) in [
            (live.caused_wait_ms, whole.caused_wait_ms),
            (live.late_ms, whole.late_ms),
            (live.outside_span_ms, whole.outside_span_ms),
            (live.lost_share, whole.lost_share),
            (live.span_excess_ms.unwrap_or(-1.0), whole.span_excess_ms.unwrap_or(-1.0)),
            (live.excess_to_noise.unwrap_or(-1.0), whole.excess_to_noise.unwrap_or(-1.0)),
        ] {
            assert!(close(live, whole), "{live}, not {whole}");
        }
    }
}

#[test]
fn a_straggler_is_named_with_its_span_in_every_kind_of_job() {
    for (tensor, data, pipeline) in [(1, 2, 1), (1, 4, 1), (2, 1, 1), (4, 2, 1), (2, 2, 2), (4, 4, 2)] {
        let ranks = tensor * data * pipeline;
        for (rank, span) in [(0, "load_batch"), (ranks - 1, "backward"), (ranks / 2, "mlp"), (1, "optimizer")]
        {
            let mut spec = job(tensor, data, pipeline, 20);
            spec.stragglers.push(Planted::always(rank, span, 4_000_000));
            let (timeline, _) = timeline(&spec);
            let straggler = only(&across(&timeline), rank, span);
            assert_eq!(straggler.pattern, Pattern::Throughout);
            // The first step has no past to judge it by.
            assert_eq!((straggler.steps, straggler.late_steps), (19, 19));
            let excess = straggler.span_excess_ms.expect("a span is named");
            assert!((excess - 4.0).abs() < 0.4, "{tensor}x{data}x{pipeline}, {span}: {straggler:?}");
            assert!(
                (straggler.late_ms - 4.0).abs() < 0.8,
                "{tensor}x{data}x{pipeline}, {span}: {straggler:?}"
            );
        }
    }
}

#[test]
fn a_straggler_is_named_also_where_every_rank_has_its_own_clock() {
    // Clocks of hosts, and clocks of which nothing is known, seconds apart and drifting.
    for ranks_per_host in [Some(2), None] {
        let clocks =
            |spec: JobSpec| JobSpec { ranks_per_host, max_offset_ns: 3e9, max_drift_ppm: 100.0, ..spec };
        let mut spec = clocks(job(2, 4, 1, 30));
        assert_eq!(across(&timeline(&spec).0).stragglers, []);
        spec.stragglers.push(Planted::always(5, "mlp", 4_000_000));
        let straggler = only(&across(&timeline(&spec).0), 5, "mlp");
        assert!(straggler.span_excess_ms.is_some_and(|excess| (excess - 4.0).abs() < 0.4), "{straggler:?}");
    }
}

#[test]
fn no_straggler_is_claimed_where_none_was_planted() {
    for (tensor, data, pipeline) in [(1, 2, 1), (1, 3, 1), (2, 2, 1), (2, 2, 2), (4, 4, 1)] {
        for seed in 0..8 {
            let mut spec = job(tensor, data, pipeline, 30);
            spec.seed = seed;
            spec.compute_jitter = [0.0, 0.03, 0.3][seed as usize % 3];
            (spec.outlier_share, spec.outlier_ns) = (0.01, 20e6);
            let across = across(&timeline(&spec).0);
            assert_eq!(across.stragglers, [], "{tensor}x{data}x{pipeline}, seed {seed}");
            assert_eq!(across.by_rank.len() as u32, tensor * data * pipeline);
        }
    }
}

#[test]
fn a_rank_that_a_neighbour_held_up_is_not_blamed() {
    // Rank 1 holds up its tensor group; so rank 0 comes late to its data group as well.
    let mut spec = job(2, 4, 1, 20);
    spec.stragglers.push(Planted::always(1, "backward", 6_000_000));
    let across = across(&timeline(&spec).0);
    only(&across, 1, "backward");
    let caused = |rank: usize| across.by_rank[rank].caused_wait_ms;
    let all: f64 = across.by_rank.iter().map(|rank| rank.caused_wait_ms).sum();
    let suffered: f64 = across.by_rank.iter().map(|rank| rank.suffered_wait_ms).sum();
    assert!(caused(1) > 0.85 * suffered, "{:?}", across.by_rank);
    assert!(caused(0) < 0.05 * suffered, "{:?}", across.by_rank);
    assert!(all <= suffered * (1.0 + 1e-9), "no more is charged than was waited: {all} of {suffered}");
    // It waits for nobody, and the others wait 6 ms a step.
    assert!(across.by_rank[1].suffered_wait_ms < 0.1 * across.by_rank[0].suffered_wait_ms);
    assert!(suffered > 0.9 * 7.0 * 6.0 * 20.0, "{suffered}");
}

#[test]
fn with_one_communicator_all_waits_are_charged() {
    let mut spec = job(1, 5, 1, 20);
    spec.world_all_reduce = false;
    spec.stragglers.push(Planted::always(3, "mlp", 2_000_000));
    let across = across(&timeline(&spec).0);
    let caused: f64 = across.by_rank.iter().map(|rank| rank.caused_wait_ms).sum();
    let suffered: f64 = across.by_rank.iter().map(|rank| rank.suffered_wait_ms).sum();
    assert!((caused - suffered).abs() < 0.02 * suffered, "{caused} of {suffered}");
    let ops: f64 = across.ops.iter().map(|op| op.wait_ms * 5.0).sum();
    assert!((ops - suffered).abs() < 1e-6 * suffered, "the waits are those of the ops: {ops}, {suffered}");
}

#[test]
fn when_a_straggler_is_late_is_told() {
    let planted = |planted: Planted| {
        let mut spec = job(1, 4, 1, 60);
        spec.stragglers.push(planted);
        only(&across(&timeline(&spec).0), 2, "mlp")
    };
    let always = Planted::always(2, "mlp", 4_000_000);
    assert_eq!(planted(always.clone()).pattern, Pattern::Throughout);

    let sometimes = planted(Planted { every: 5, extra_ns: 10_000_000, ..always.clone() });
    assert_eq!(sometimes.pattern, Pattern::SomeSteps);
    assert_eq!(sometimes.late_step_numbers, (5..60).step_by(5).collect::<Vec<_>>());
    assert!((7.0..11.0).contains(&sometimes.late_ms), "{sometimes:?}");

    let drifting = planted(Planted { extra_ns: 0, growth_ns: 200_000, ..always.clone() });
    assert_eq!(drifting.pattern, Pattern::Drifting);
    assert!(drifting.individual_score.is_some_and(|score| score < 0.8), "{drifting:?}");

    let later = planted(Planted { steps: 30..60, ..always });
    assert_eq!((later.pattern, later.late_steps), (Pattern::SomeSteps, 30));
    assert!(later.individual_score.is_some_and(|score| score < 0.9), "{later:?}");
    assert!(later.relative_score.is_some_and(|score| score < 0.95), "{later:?}");
}

#[test]
fn two_slow_ranks_are_both_named_worst_first() {
    let mut spec = job(1, 6, 1, 20);
    spec.stragglers.push(Planted::always(4, "load_batch", 3_000_000));
    spec.stragglers.push(Planted::always(2, "load_batch", 5_000_000));
    let across = across(&timeline(&spec).0);
    let named: Vec<_> = across.stragglers.iter().map(|one| (one.rank, one.span.as_deref())).collect();
    assert_eq!(named, [(2, Some("load_batch")), (4, Some("load_batch"))]);
}

#[test]
fn lateness_outside_spans_is_said_to_be_outside() {
    let mut spec = job(1, 3, 1, 20);
    spec.stragglers.push(Planted::always(1, "load_batch", 4_000_000));
    let (mut timeline, _) = timeline(&spec);
    let load_batch = timeline.names.find("load_batch").expect("the span is there");
    for track in &mut timeline.tracks {
        let kept: Vec<_> = track.compute.iter().filter(|one| one.name != load_batch).collect();
        track.compute = Default::default();
        kept.into_iter().for_each(|one| track.compute.push(one));
    }
    let across = across(&timeline);
    let [straggler] = across.stragglers.as_slice() else { panic!("{:?}", across.stragglers) };
    assert_eq!((straggler.rank, &straggler.span, straggler.span_excess_ms), (1, &None, None));
    assert!((3.0..4.4).contains(&straggler.outside_span_ms), "{straggler:?}");
}

#[test]
fn without_steps_the_run_is_judged_in_stretches_of_time() {
    let mut spec = job(2, 2, 1, 100);
    spec.stragglers.push(Planted::always(3, "mlp", 4_000_000));
    let (mut timeline, _) = timeline(&spec);
    for track in &mut timeline.tracks {
        track.steps.clear();
        let (compute, comm): (Vec<_>, Vec<_>) = (track.compute.iter().collect(), track.comm.iter().collect());
        (track.compute, track.comm) = Default::default();
        compute
            .into_iter()
            .for_each(|one| track.compute.push(commtrace_report::timeline::Compute { step: None, ..one }));
        comm.into_iter()
            .for_each(|one| track.comm.push(commtrace_report::timeline::Comm { step: None, ..one }));
    }
    let straggler = only(&across(&timeline), 3, "mlp");
    assert!(!straggler.by_step && straggler.steps == 20, "{straggler:?}");
    assert_aggregated_is_the_same(&timeline);
}

#[test]
fn a_sample_of_the_steps_is_judged_by_the_time_of_its_steps() {
    // Late by about an eighth of a step; next to the time of all steps, a fifth of them would be a fortieth.
    let mut spec = job(1, 4, 1, 100);
    spec.stragglers.push(Planted::always(2, "optimizer", 1_500_000));
    let (mut timeline, _) = timeline(&spec);
    let whole = only(&across(&timeline), 2, "optimizer");
    for track in &mut timeline.tracks {
        let sampled = |step: Option<i64>| step.is_some_and(|step| step % 5 == 0);
        track.steps.retain(|step| sampled(Some(step.step)));
        let (compute, comm): (Vec<_>, Vec<_>) = (track.compute.iter().collect(), track.comm.iter().collect());
        (track.compute, track.comm) = Default::default();
        compute.into_iter().filter(|one| sampled(one.step)).for_each(|one| track.compute.push(one));
        comm.into_iter().filter(|one| sampled(one.step)).for_each(|one| track.comm.push(one));
    }
    let sample = only(&across(&timeline), 2, "optimizer");
    assert_eq!((whole.steps, sample.steps), (99, 19));
    assert!((sample.lost_share / whole.lost_share - 1.0).abs() < 0.2, "{sample:?}, {whole:?}");
}

#[test]
fn waits_that_compute_hides_make_no_straggler() {
    // The data group's reduce_scatter runs beside compute that takes longer than the rank is late.
    let mut spec = JobSpec { layers: 6, world_all_reduce: false, ..job(1, 2, 1, 20) };
    spec.stragglers.push(Planted::always(1, "mlp", 300_000));
    let across = across(&timeline(&spec).0);
    assert_eq!(across.stragglers, []);
}

#[test]
fn the_running_summary_finds_the_same() {
    for (tensor, data, pipeline, seed) in
        [(1, 2, 1, 1), (2, 2, 1, 2), (2, 2, 2, 3), (1, 5, 1, 4), (4, 2, 1, 5)]
    {
        let mut spec = JobSpec { seed, ..job(tensor, data, pipeline, 24) };
        assert_aggregated_is_the_same(&timeline(&spec).0);
        spec.stragglers.push(Planted::always(1, "mlp", 4_000_000));
        assert_aggregated_is_the_same(&timeline(&spec).0);
        spec.stragglers[0] = Planted { every: 4, extra_ns: 12_000_000, ..spec.stragglers[0].clone() };
        assert_aggregated_is_the_same(&timeline(&spec).0);
    }
}

#[test]
fn hundreds_of_ranks_over_more_steps_than_fit_are_judged_in_blocks() {
    let mut spec = JobSpec { layers: 1, ..job(2, 64, 1, 1) };
    // 128 ranks in up to three communicators each leave room for about 2,700 blocks.
    spec.steps = 60;
    spec.stragglers.push(Planted::always(77, "backward", 4_000_000));
    let straggler = only(&across(&timeline(&spec).0), 77, "backward");
    assert_eq!(straggler.steps, 59);
    assert!(straggler.caused_wait_ms > 100.0 * 4.0 * 60.0, "{straggler:?}");
}
