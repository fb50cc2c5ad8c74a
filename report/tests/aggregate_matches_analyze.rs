//! The running summary gives the figures of the analysis of the whole record.

use commtrace_report::aggregate::Aggregator;
use commtrace_report::analyze::{AnalyzeOptions, Report, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::record::{Header, RecordWriter, Row, RowKind, file_name};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Event {
    rank: u32,
    kind: RowKind,
    name: &'static str,
    thread: Option<u32>,
    device: Option<u32>,
    stream: Option<&'static str>,
    start: i64,
    dur: i64,
    bytes: Option<u64>,
    comm: Option<&'static str>,
    comm_size: Option<u32>,
    seq: Option<u64>,
    step: Option<i64>,
}

impl Event {
    fn row(&self) -> Row<'static> {
        Row {
            start_ns: Some(self.start),
            dur_ns: Some(self.dur),
            bytes: self.bytes,
            comm: self.comm,
            comm_size: self.comm_size,
            seq: self.seq,
            device: self.device,
            stream: self.stream,
            thread: self.thread,
            step: self.step,
            ..Row::new(self.kind, self.name)
        }
    }
}

/// The events through record files, one per rank, and the analysis of the folder.
fn analyzed(events: &[Event]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let mut ranks: Vec<u32> = events.iter().map(|event| event.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for rank in ranks {
        let header = Header {
            rank,
            host: "node0".into(),
            boot_id: "boot-0".into(),
            pid: 100,
            run_id: "job-1".into(),
            start_unix_ns: 1_760_000_000_000_000_000,
            start_mono_ns: 5,
            world_size: None,
            writer_version: "0.1.0".into(),
        };
        let file = std::fs::File::create_new(folder.path().join(file_name(&header))).unwrap();
        let mut writer = RecordWriter::new(file, &header).unwrap();
        events.iter().filter(|event| event.rank == rank).for_each(|event| writer.push(&event.row()));
        writer.finish().unwrap();
    }
    let timeline = read(&[folder.path().to_owned()], &ReadOptions::default()).unwrap();
    analyze(&timeline, &AnalyzeOptions::default())
}

/// The events through the aggregator, in order of their end, with a watermark after some of them that is
/// the earliest start of those to come.
fn aggregated(events: &[Event], watermarks: &[bool]) -> Report {
    let mut aggregator = Aggregator::new(AnalyzeOptions::default());
    for (index, event) in events.iter().enumerate() {
        aggregator.push(event.rank, &event.row());
        if watermarks[index % watermarks.len()] {
            let earliest = events[index + 1..].iter().map(|event| event.start).min();
            aggregator.advance(earliest.unwrap_or(i64::MAX));
        }
    }
    aggregator.finish()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

fn assert_same(live: &Report, whole: &Report) -> Result<(), TestCaseError> {
    prop_assert_eq!(live.ranks.len(), whole.ranks.len());
    for (live, whole) in live.ranks.iter().zip(&whole.ranks) {
        prop_assert_eq!((live.rank, live.device), (whole.rank, whole.device));
        prop_assert_eq!(&live.summary, &whole.summary);
        prop_assert_eq!(
            live.summary.by_op.keys().collect::<Vec<_>>(),
            whole.summary.by_op.keys().collect::<Vec<_>>()
        );
        prop_assert_eq!(&live.wall, &whole.wall);
        prop_assert_eq!(&live.untimed, &whole.untimed);
        prop_assert_eq!(&live.steps, &whole.steps);
    }
    prop_assert_eq!(&live.hotspots.priority.is_some(), &whole.hotspots.priority.is_some());
    let anomalies = |report: &Report, kind: &str| -> u64 {
        report.inputs.iter().filter_map(|input| input.anomalies.get(kind)).sum()
    };
    for kind in ["nested_comm", "end_before_start", "late"] {
        prop_assert_eq!(anomalies(live, kind), anomalies(whole, kind), "{}", kind);
    }
    prop_assert_eq!(live.cross_rank.is_some(), whole.cross_rank.is_some());
    let (Some(live), Some(whole)) = (&live.cross_rank, &whole.cross_rank) else { return Ok(()) };
    prop_assert_eq!(live.unmatched_events, whole.unmatched_events);
    prop_assert_eq!(live.ops.len(), whole.ops.len());
    for whole in &whole.ops {
        let live = live.ops.iter().find(|op| op.collective == whole.collective);
        prop_assert!(live.is_some(), "{}", whole.collective);
        let Some(live) = live else { continue };
        prop_assert_eq!((live.matched, live.partial), (whole.matched, whole.partial));
        prop_assert_eq!(live.bootstrap_blocks, whole.bootstrap_blocks);
        for (figure, live, whole) in [
            ("wait", live.wait_ms, whole.wait_ms),
            ("transfer", live.transfer_ms, whole.transfer_ms),
            ("exposed wait", live.exposed_wait_ms, whole.exposed_wait_ms),
            ("exposed transfer", live.exposed_transfer_ms, whole.exposed_transfer_ms),
            ("imbalance", live.rank_imbalance_ratio, whole.rank_imbalance_ratio),
            ("spread", live.arrival_spread_ratio, whole.arrival_spread_ratio),
        ] {
            prop_assert!(close(live, whole), "{figure} of {}: {live}, not {whole}", &live_name(figure));
        }
        let lower = (live.rank_imbalance_lower, whole.rank_imbalance_lower);
        prop_assert!(
            match lower {
                (Some(live), Some(whole)) => close(live, whole),
                (None, None) => true,
                _ => false,
            },
            "{lower:?}"
        );
    }
    Ok(())
}

fn live_name(figure: &str) -> String {
    format!("the running summary ({figure})")
}

/// Intervals of one rank on a few lanes, with communication nested, beside and around compute.
fn intervals(rank: u32, on_device: bool) -> impl Strategy<Value = Vec<Event>> {
    let one = (0..4_u32, 0..60_i64, -2..20_i64, 0..5_u8, 0..3_i64);
    proptest::collection::vec(one, 0..25).prop_map(move |ones| {
        ones.into_iter()
            .map(|(lane, start, dur, what, step)| {
                // A lane stays within a step: what runs on it at a time is of one step.
                let step = i64::from(lane) * 10 + if lane == 3 { step } else { 0 };
                let (kind, name) = match what {
                    0 | 1 => (RowKind::Compute, "forward"),
                    2 => (RowKind::Comm, "broadcast"),
                    3 => (RowKind::Comm, "send"),
                    _ if lane == 3 => (RowKind::Compute, "backward"),
                    _ => (RowKind::Comm, "all_gather"),
                };
                let gpu = on_device && lane < 2;
                Event {
                    rank,
                    kind,
                    name,
                    thread: (lane != 3).then_some(lane % 2),
                    device: gpu.then_some(0),
                    stream: gpu.then_some(["s0", "s1"][lane as usize % 2]),
                    start,
                    dur,
                    bytes: (what != 3).then_some(start as u64 * 10),
                    comm: None,
                    comm_size: None,
                    seq: None,
                    step: Some(step),
                }
            })
            .collect()
    })
}

/// Collectives over three ranks: some ranks may be missing, late, or of another mind.
fn collectives() -> impl Strategy<Value = Vec<Event>> {
    let member = (0..12_i64, 1..15_i64, 0..20_u8);
    let one = (proptest::collection::vec(member, 3), 0..4_u8);
    proptest::collection::vec(one, 0..12).prop_map(|ones| {
        let mut events = Vec::new();
        for (seq, (members, op)) in ones.into_iter().enumerate() {
            for (rank, (start, dur, fate)) in members.into_iter().enumerate() {
                if fate == 0 {
                    continue;
                }
                events.push(Event {
                    rank: rank as u32,
                    kind: RowKind::Comm,
                    name: if op == 0 { "barrier" } else { "all_reduce" },
                    thread: Some(7),
                    device: None,
                    stream: None,
                    start: seq as i64 * 10 + start,
                    // A few have no length.
                    dur: if fate == 2 { 0 } else { dur },
                    bytes: Some(if fate == 1 { 3 } else { 8 }),
                    comm: Some("dp"),
                    comm_size: if op == 3 { None } else { Some(3) },
                    seq: Some(seq as u64),
                    step: Some(seq as i64 / 2),
                });
            }
        }
        events
    })
}

fn histories() -> impl Strategy<Value = (Vec<Event>, Vec<bool>)> {
    let ranks = (intervals(0, false), intervals(1, true), intervals(2, false), collectives());
    (ranks, proptest::collection::vec(any::<bool>(), 1..9), any::<bool>()).prop_map(
        |((mut events, b, c, d), watermarks, steps)| {
            events.extend(b.into_iter().chain(c).chain(d));
            if steps {
                for rank in 0..3 {
                    for step in 0..4 {
                        events.push(Event {
                            rank,
                            kind: RowKind::Step,
                            name: "step",
                            thread: Some(0),
                            device: None,
                            stream: None,
                            start: step * 20,
                            dur: 20,
                            bytes: None,
                            comm: None,
                            comm_size: None,
                            seq: None,
                            step: Some(step),
                        });
                    }
                }
            }
            // Rows come as intervals end.
            events.sort_by_key(|event| event.start + event.dur);
            (events, watermarks)
        },
    )
}

/// `COMMTRACE_TEST_CASES` in the environment of the build asks for more.
const CASES: u32 = match option_env!("COMMTRACE_TEST_CASES") {
    Some(_) => 20_000,
    None => 150,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn figures_are_those_of_the_analysis((events, watermarks) in histories()) {
        let (live, whole) = (aggregated(&events, &watermarks), analyzed(&events));
        assert_same(&live, &whole)?;
    }
}
