//! Random timelines, analyzed and computed again the slow, obvious way: instant by instant.

use commtrace_report::analyze::{AnalyzeOptions, CommProfiler, Cover, Report, analyze, overlaps_ns};
use commtrace_report::timeline::{Comm, Compute, Step, Timeline, Track};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Times are below this, so that intervals often touch, nest, coincide, are empty or reversed.
const END: i64 = 24;
const OPS: [&str; 4] = ["reduce_scatter", "all_reduce", "broadcast", "all_gather"];
const STREAMS: [&str; 2] = ["7", "13"];

#[derive(Debug, Clone)]
struct PlainComm {
    op: usize,
    start: i64,
    end: i64,
    bytes: Option<u64>,
    stream: usize,
    step: Option<i64>,
}

#[derive(Debug, Clone)]
struct PlainTrack {
    rank: u32,
    device: Option<u32>,
    compute: Vec<(i64, i64, Option<i64>)>,
    comm: Vec<PlainComm>,
    steps: Vec<(i64, i64, i64)>,
}

fn step_number() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![2 => Just(None), 3 => (0_i64..3).prop_map(Some)]
}

fn interval() -> impl Strategy<Value = (i64, i64)> {
    prop_oneof![
        8 => (0..END, 0_i64..8).prop_map(|(start, length)| (start, start + length)),
        1 => (0..END).prop_map(|at| (at, at)),
        1 => (0..END, 1_i64..8).prop_map(|(start, length)| (start, start - length)),
    ]
}

fn comm() -> impl Strategy<Value = PlainComm> {
    let bytes = prop_oneof![Just(None), (0_u64..100).prop_map(Some)];
    (0..OPS.len(), interval(), bytes, 0..STREAMS.len(), step_number())
        .prop_map(|(op, (start, end), bytes, stream, step)| PlainComm { op, start, end, bytes, stream, step })
}

fn track() -> impl Strategy<Value = PlainTrack> {
    let compute = (interval(), step_number()).prop_map(|((start, end), step)| (start, end, step));
    let step = (0_i64..3, interval()).prop_map(|(step, (start, end))| (step, start, end));
    (
        0_u32..3,
        prop_oneof![Just(None), (0_u32..2).prop_map(Some)],
        prop::collection::vec(compute, 0..8),
        prop::collection::vec(comm(), 0..8),
        prop::collection::vec(step, 0..3),
    )
        .prop_map(|(rank, device, compute, comm, steps)| PlainTrack {
            rank,
            device,
            compute,
            comm,
            steps,
        })
}

fn tracks() -> impl Strategy<Value = Vec<PlainTrack>> {
    prop::collection::vec(track(), 1..5).prop_map(|mut tracks| {
        tracks.sort_by_key(|track| (track.rank, track.device));
        tracks.dedup_by_key(|track| (track.rank, track.device));
        // Each track has intervals and steps of its own: how ranks share steps is tested by example.
        for track in &mut tracks {
            track.steps.push((1, 3, 9));
            track.compute.push((2, 4, None));
        }
        tracks
    })
}

fn timeline(tracks: &[PlainTrack]) -> Timeline {
    let mut timeline = Timeline::default();
    let ops = OPS.map(|op| timeline.names.intern(op));
    let streams = STREAMS.map(|stream| timeline.names.intern(stream));
    let kernel = timeline.names.intern("kernel");
    for plain in tracks {
        let mut track = Track::new(plain.rank, plain.device);
        for &(start_ns, end_ns, step) in &plain.compute {
            track.compute.push(Compute { name: kernel, start_ns, end_ns, step });
        }
        for comm in &plain.comm {
            let mut event = Comm::new(ops[comm.op], comm.start, comm.end);
            event.bytes = comm.bytes;
            event.stream = Some(streams[comm.stream]);
            event.step = comm.step;
            track.comm.push(event);
        }
        track.steps =
            plain.steps.iter().map(|&(step, start_ns, end_ns)| Step { step, start_ns, end_ns }).collect();
        timeline.tracks.push(track);
    }
    timeline
}

fn instants((start, end): (i64, i64)) -> BTreeSet<i64> {
    (start..end).collect()
}

fn covered<'a>(intervals: impl IntoIterator<Item = &'a (i64, i64)>) -> BTreeSet<i64> {
    intervals.into_iter().flat_map(|&interval| instants(interval)).collect()
}

fn ms(ns: usize) -> f64 {
    ns as f64 / 1e6
}

/// The step that an interval belongs to: its own, else the last begun recorded step it starts in.
fn step_of(track: &PlainTrack, step: Option<i64>, start: i64) -> Option<i64> {
    let mut best: Option<(i64, i64, i64)> = None;
    for &(number, first, last) in &track.steps {
        let later = best.is_none_or(|(begin, end, _)| (first, last) >= (begin, end));
        if first < last && first <= start && later {
            best = Some((first, last, number));
        }
    }
    step.or_else(|| best.filter(|&(_, last, _)| start < last).map(|(.., number)| number))
}

#[derive(Debug, Default, Clone, PartialEq)]
struct SlowOp {
    count: u64,
    time: usize,
    exposed: usize,
    bytes: Option<u64>,
}

fn slow_by_op(track: &PlainTrack) -> Vec<(usize, SlowOp)> {
    let compute = covered(&track.compute.iter().map(|&(start, end, _)| (start, end)).collect::<Vec<_>>());
    let mut ops: Vec<(usize, SlowOp)> = Vec::new();
    for comm in &track.comm {
        if !ops.iter().any(|(op, _)| *op == comm.op) {
            ops.push((comm.op, SlowOp::default()));
        }
        let (_, op) = ops.iter_mut().find(|(op, _)| *op == comm.op).expect("just added");
        let own = instants((comm.start, comm.end));
        op.count += 1;
        op.time += own.len();
        op.exposed += own.difference(&compute).count();
        if let Some(bytes) = comm.bytes {
            op.bytes = Some(op.bytes.unwrap_or(0) + bytes);
        }
    }
    ops
}

fn check_summaries(tracks: &[PlainTrack], report: &Report) -> Result<(), TestCaseError> {
    prop_assert_eq!(report.ranks.len(), tracks.len());
    for (track, rank) in tracks.iter().zip(&report.ranks) {
        let summary = &rank.summary;
        let slow = slow_by_op(track);
        let names: Vec<&str> = slow.iter().map(|(op, _)| OPS[*op]).collect();
        prop_assert_eq!(summary.by_op.keys().map(String::as_str).collect::<Vec<_>>(), names);
        for (op, expected) in &slow {
            let op = &summary.by_op[OPS[*op]];
            prop_assert_eq!((op.count, op.bytes), (expected.count, expected.bytes));
            prop_assert_eq!((op.time, op.exposed_time), (ms(expected.time), Some(ms(expected.exposed))));
        }
        let time: usize = slow.iter().map(|(_, op)| op.time).sum();
        let exposed: usize = slow.iter().map(|(_, op)| op.exposed).sum();
        prop_assert_eq!(summary.num_comm_events, track.comm.len() as u64);
        prop_assert_eq!(summary.total_comm_time, ms(time));
        prop_assert_eq!(summary.overlap_time, Some(ms(time - exposed)));
        prop_assert_eq!(summary.exposed_comm_time, Some(ms(exposed)));
        let ratio = ms(time - exposed).min(ms(time)) / ms(time).max(1e-8);
        prop_assert_eq!(summary.overlap_ratio, Some(ratio));
    }
    Ok(())
}

fn check_wall(tracks: &[PlainTrack], report: &Report) -> Result<(), TestCaseError> {
    for (track, rank) in tracks.iter().zip(&report.ranks) {
        let compute_intervals: Vec<_> = track.compute.iter().map(|&(start, end, _)| (start, end)).collect();
        let comm_intervals: Vec<_> = track.comm.iter().map(|comm| (comm.start, comm.end)).collect();
        let (compute, comm) = (covered(&compute_intervals), covered(&comm_intervals));
        let sound = || compute_intervals.iter().chain(&comm_intervals).filter(|(start, end)| start <= end);
        let first = sound().map(|interval| interval.0).min().unwrap_or(0);
        let last = sound().map(|interval| interval.1).max().unwrap_or(0);
        let span = instants((first, last));
        let busy: BTreeSet<i64> = compute.union(&comm).copied().collect();
        let wall = rank.wall.unwrap();
        prop_assert_eq!(wall.comm_ms, ms(comm.len()));
        prop_assert_eq!(wall.compute_ms, ms(compute.len()));
        prop_assert_eq!(wall.overlap_ms, ms(comm.intersection(&compute).count()));
        prop_assert_eq!(wall.exposed_ms, ms(comm.difference(&compute).count()));
        prop_assert_eq!(wall.span_ms, ms(span.len()));
        prop_assert_eq!(wall.idle_ms, ms(span.difference(&busy).count()));
    }
    Ok(())
}

fn check_steps(tracks: &[PlainTrack], report: &Report) -> Result<(), TestCaseError> {
    let all_starts = tracks.iter().flat_map(|track| {
        let compute = track.compute.iter().map(|&(start, end, _)| (start, end));
        let comm = track.comm.iter().map(|comm| (comm.start, comm.end));
        let steps = track.steps.iter().map(|&(_, start, end)| (start, end));
        compute.chain(comm).chain(steps).filter(|(start, end)| start <= end).map(|(start, _)| start)
    });
    let base = all_starts.min().unwrap_or(0);
    for (track, rank) in tracks.iter().zip(&report.ranks) {
        let mut compute: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
        let mut comm = compute.clone();
        for &(start, end, step) in &track.compute {
            if let Some(step) = step_of(track, step, start) {
                compute.entry(step).or_default().push((start, end));
            }
        }
        for event in &track.comm {
            if let Some(step) = step_of(track, event.step, event.start) {
                comm.entry(step).or_default().push((event.start, event.end));
            }
        }
        let recorded = |step: i64| {
            let rows = || track.steps.iter().filter(move |row| row.0 == step);
            let first = rows().map(|row| row.1).min()?;
            Some((first, rows().map(|row| row.2.max(row.1)).max()?))
        };
        let mut numbers: BTreeSet<i64> = compute.keys().chain(comm.keys()).copied().collect();
        numbers.extend(track.steps.iter().map(|row| row.0));
        prop_assert_eq!(
            rank.steps.iter().map(|step| step.step).collect::<Vec<_>>(),
            numbers.into_iter().collect::<Vec<_>>()
        );
        for figures in &rank.steps {
            let compute = compute.remove(&figures.step).unwrap_or_default();
            let comm = comm.remove(&figures.step).unwrap_or_default();
            let parts = || compute.iter().chain(&comm);
            let (start, end) = recorded(figures.step).unwrap_or_else(|| {
                let first = parts().map(|part| part.0).min().unwrap_or(0);
                (first, parts().map(|part| part.1.max(part.0)).max().unwrap_or(0))
            });
            let (compute, comm) = (covered(&compute), covered(&comm));
            prop_assert_eq!(figures.start_ms, (start - base) as f64 / 1e6);
            prop_assert_eq!(figures.span_ms, (end - start) as f64 / 1e6);
            prop_assert_eq!(figures.compute_ms, ms(compute.len()));
            prop_assert_eq!(figures.comm_ms, ms(comm.len()));
            prop_assert_eq!(figures.overlap_ms, ms(comm.intersection(&compute).count()));
            prop_assert_eq!(figures.exposed_ms, ms(comm.difference(&compute).count()));
        }
    }
    Ok(())
}

fn check_hotspots(tracks: &[PlainTrack], report: &Report) -> Result<(), TestCaseError> {
    // Per op the rank with the largest exposed time, the first of equals; ops as first seen.
    let mut worst: Vec<(usize, u32, SlowOp)> = Vec::new();
    for track in tracks {
        for (op, figures) in slow_by_op(track) {
            match worst.iter_mut().find(|(known, ..)| *known == op) {
                None => worst.push((op, track.rank, figures)),
                Some(best) if figures.exposed > best.2.exposed => *best = (op, track.rank, figures),
                Some(_) => {}
            }
        }
    }
    prop_assert_eq!(report.hotspot_events.len(), worst.len());
    for (event, (op, rank, figures)) in report.hotspot_events.iter().zip(&worst) {
        prop_assert_eq!(&event.collective, OPS[*op]);
        prop_assert_eq!(event.rank, Some(*rank));
        prop_assert_eq!(event.sync_count, figures.count);
        prop_assert_eq!(event.exposed_comm_ms, Some(ms(figures.exposed)));
        prop_assert_eq!(event.total_comm_ms, ms(figures.time));
        prop_assert_eq!(event.payload_bytes, figures.bytes);
    }
    let mut priority: Option<&(usize, u32, SlowOp)> = None;
    for candidate in &worst {
        if priority.is_none_or(|best| candidate.2.exposed > best.2.exposed) {
            priority = Some(candidate);
        }
    }
    let found = report.hotspots.priority.as_ref().map(|priority| priority.collective.as_str());
    prop_assert_eq!(found, priority.map(|(op, ..)| OPS[*op]));
    Ok(())
}

/// The chapter's code, line by line.
struct Chapter {
    compute: Vec<(f64, f64)>,
}

impl Chapter {
    fn has_overlap(&self, start: f64, end: f64) -> bool {
        self.compute.iter().any(|c| !(end <= c.0 || start >= c.1))
    }

    fn overlap_duration(&self, start: f64, end: f64) -> f64 {
        let mut intersections: Vec<(f64, f64)> = self
            .compute
            .iter()
            .filter(|c| start.max(c.0) < end.min(c.1))
            .map(|c| (start.max(c.0), end.min(c.1)))
            .collect();
        intersections.sort_by(|a, b| a.partial_cmp(b).expect("finite"));
        let mut merged: Vec<(f64, f64)> = Vec::new();
        for (start, end) in intersections {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        merged.iter().map(|(start, end)| end - start).sum()
    }
}

fn coarse_or_fine_ms() -> impl Strategy<Value = f64> {
    // Multiples of a quarter meet each other's ends; the others test rounding.
    prop_oneof![3 => (-20_i32..80).prop_map(|quarters| f64::from(quarters) / 4.0), 1 => -5.0..20.0_f64]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn analysis_agrees_with_counting_instants(tracks in tracks()) {
        let report = analyze(&timeline(&tracks), &AnalyzeOptions::default());
        check_summaries(&tracks, &report)?;
        check_wall(&tracks, &report)?;
        check_steps(&tracks, &report)?;
        check_hotspots(&tracks, &report)?;
    }

    #[test]
    fn covers_agree_with_counting_instants(
        compute in prop::collection::vec(interval(), 0..12),
        comm in prop::collection::vec(interval(), 0..12),
        sorted in any::<bool>(),
    ) {
        let (mut compute, mut comm) = (compute, comm);
        if sorted {
            compute.sort_unstable();
            comm.sort_unstable();
        }
        let (starts, ends): (Vec<i64>, Vec<i64>) = compute.iter().copied().unzip();
        let cover = Cover::new(&starts, &ends);
        let instants_covered = covered(&compute);
        prop_assert_eq!(cover.total_ns(), instants_covered.len() as u64);
        prop_assert!(cover.segments().windows(2).all(|pair| pair[0].1 < pair[1].0));
        let (starts, ends): (Vec<i64>, Vec<i64>) = comm.iter().copied().unzip();
        let expected: Vec<u64> = comm
            .iter()
            .map(|&interval| instants(interval).intersection(&instants_covered).count() as u64)
            .collect();
        prop_assert_eq!(&overlaps_ns(&cover, &starts, &ends), &expected);
        for (&(start, end), overlap) in comm.iter().zip(expected) {
            prop_assert_eq!(cover.overlap_ns(start, end), overlap);
        }
        let both = covered(&comm).intersection(&instants_covered).count();
        prop_assert_eq!(cover.intersection_ns(&Cover::new(&starts, &ends)), both as u64);
    }

    /// Bit for bit: the same additions in the same order.
    #[test]
    fn the_profiler_agrees_with_the_chapter(
        events in prop::collection::vec(
            (any::<bool>(), 0..OPS.len(), coarse_or_fine_ms(), coarse_or_fine_ms(), 0_u64..1000),
            0..20,
        ),
    ) {
        let mut chapter = Chapter { compute: Vec::new() };
        let mut profiler = CommProfiler::new();
        let mut flags = Vec::new();
        for &(is_compute, op, start, end, bytes) in &events {
            if is_compute {
                chapter.compute.push((start, end));
                prop_assert!(profiler.add_compute("forward", start, end).is_ok());
            } else {
                flags.push((start, end, OPS[op], chapter.has_overlap(start, end)));
                prop_assert!(profiler.add_comm(OPS[op], start, end, bytes).is_ok());
            }
        }
        let (mut total, mut overlap) = (0.0, 0.0);
        let mut by_op: BTreeMap<&str, (u64, f64, u64, f64)> = BTreeMap::new();
        for &(_, op, start, end, bytes) in events.iter().filter(|event| !event.0) {
            let duration = (end - start).max(0.0);
            let hidden = chapter.overlap_duration(start, end);
            prop_assert_eq!(profiler.overlap_duration(start, end), hidden);
            total += duration;
            overlap += hidden;
            let item = by_op.entry(OPS[op]).or_default();
            *item = (item.0 + 1, item.1 + duration, item.2 + bytes, item.3 + (duration - hidden));
        }
        let summary = profiler.summarize();
        prop_assert_eq!(summary.total_comm_time, total);
        prop_assert_eq!(summary.overlap_time, Some(overlap));
        prop_assert_eq!(summary.overlap_ratio, Some(overlap.min(total) / total.max(1e-8)));
        prop_assert_eq!(summary.exposed_comm_time, Some((total - overlap).max(0.0)));
        prop_assert_eq!(summary.by_op.len(), by_op.len());
        for (op, item) in by_op {
            let figures = &summary.by_op[op];
            prop_assert_eq!((figures.count, figures.time, figures.bytes), (item.0, item.1, Some(item.2)));
            prop_assert_eq!(figures.exposed_time, Some(item.3));
        }
        flags.sort_by(|a, b| (a.0, a.1, a.2).partial_cmp(&(b.0, b.1, b.2)).expect("finite"));
        let timeline = profiler.timeline();
        let found: Vec<_> =
            timeline.iter().map(|record| (record.start, record.end, record.op.as_str(), record.overlap)).collect();
        prop_assert_eq!(found, flags);
    }
}
