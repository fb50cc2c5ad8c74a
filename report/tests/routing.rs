//! How calls spread over ranks: record files with and without the columns, and the figures against a slow version.

use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use commtrace_report::advise::Strategy as Advice;
use commtrace_report::aggregate::Aggregator;
use commtrace_report::analyze::{
    AnalyzeOptions, ExpertRouting, PairBytes, Pattern, Report, Straggler, analyze, assemble,
};
use commtrace_report::convert::write_records;
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::record::{Header, MAX_PEERS, RecordWriter, Row, RowKind, file_name, meta};
use commtrace_report::render::{TextOptions, text};
use commtrace_report::timeline::{Exchange, RoutingPhase, Timeline};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

fn header(rank: u32) -> Header {
    Header {
        rank,
        host: "node0".into(),
        boot_id: "boot-0".into(),
        pid: 100 + rank,
        run_id: "job-1".into(),
        start_unix_ns: 1_760_000_000_000_000_000,
        start_mono_ns: 0,
        world_size: None,
        writer_version: "0.1.0".into(),
    }
}

/// One collective of a communicator over all ranks: tokens from each rank to each.
#[derive(Debug, Clone)]
struct Call {
    phase: Option<RoutingPhase>,
    comm: &'static str,
    /// Bytes of a token; `None` where bytes are no tokens.
    token_bytes: Option<u64>,
    bytes: Vec<Vec<u64>>,
}

impl Call {
    fn sent(&self, rank: usize) -> Vec<u64> {
        self.bytes[rank].clone()
    }

    fn received(&self, rank: usize) -> Vec<u64> {
        self.bytes.iter().map(|row| row[rank]).collect()
    }
}

/// The rows of `rank`, without end: `(sent, received)` of each call, and the call.
fn rows(calls: &[Call], rank: usize, mut each: impl FnMut(&Row<'_>)) {
    let mut seqs = BTreeMap::new();
    for (number, call) in calls.iter().enumerate() {
        let (sent, received) = (call.sent(rank), call.received(rank));
        let seq: &mut u64 = seqs.entry(call.comm).or_default();
        let start = 1_000_000 * number as i64;
        each(&Row {
            start_ns: Some(start),
            dur_ns: Some(500_000),
            thread: Some(0),
            comm: Some(call.comm),
            comm_size: Some(call.bytes.len() as u32),
            comm_rank: Some(rank as u32),
            seq: Some(*seq),
            bytes: Some(sent.iter().sum()),
            phase: call.phase.map(RoutingPhase::as_str),
            token_bytes: call.token_bytes,
            sent_bytes: Some(&sent),
            received_bytes: Some(&received),
            ..Row::new(RowKind::Comm, "all_to_all_v")
        });
        *seq += 1;
    }
}

fn write(folder: &Path, rank: usize, calls: &[Call], more: &[Row<'_>]) {
    let header = header(rank as u32);
    let mut writer = RecordWriter::new(Vec::new(), &header).unwrap();
    rows(calls, rank, |row| writer.push(row));
    more.iter().for_each(|row| writer.push(row));
    writer.push(&Row::new(RowKind::Meta, meta::END));
    std::fs::write(folder.join(file_name(&header)), writer.finish().unwrap()).unwrap();
}

fn read_folder(folder: &Path) -> Timeline {
    read(&[folder.to_owned()], &ReadOptions::default()).unwrap()
}

fn job(ranks: usize, calls: &[Call]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    (0..ranks).for_each(|rank| write(folder.path(), rank, calls, &[]));
    analyze(&read_folder(folder.path()), &AnalyzeOptions::default())
}

fn routing(report: &Report) -> &ExpertRouting {
    report.cross_rank.as_ref().unwrap().routing.as_deref().unwrap()
}

/// Rank 1 has the expert that most want.
fn skewed() -> Vec<Call> {
    let call = |phase, bytes: [[u64; 3]; 3]| Call {
        phase: Some(phase),
        comm: "ep",
        token_bytes: Some(8),
        bytes: bytes.iter().map(|row| row.iter().map(|tokens| tokens * 8).collect()).collect(),
    };
    let out = [[2, 6, 0], [1, 4, 1], [0, 8, 2]];
    let back = [[2, 1, 0], [6, 4, 8], [0, 1, 2]];
    vec![call(RoutingPhase::Dispatch, out), call(RoutingPhase::Combine, back)]
}

#[test]
fn figures_of_a_known_job() {
    let report = job(3, &skewed());
    let routing = routing(&report);
    assert_eq!(routing.dispatch_payload_bytes, Some(24 * 8));
    assert_eq!(routing.dispatch_cross_rank_bytes, Some(16 * 8));
    assert_eq!((routing.dispatched_tokens, routing.cross_rank_token_ratio), (Some(24), Some(16.0 / 24.0)));
    // 3, 18 and 3 tokens arrive; the mean is 8.
    assert_eq!((routing.expert_load_skew, routing.hottest_rank), (Some(18.0 / 8.0), Some(1)));
    // From the start of the first call to the end of the second, 1.5 ms.
    assert_eq!(routing.throughput_tokens_per_s, Some(24.0 / 1.5e-3));
    assert!(routing.complete && routing.without_token_count == 0 && routing.without_peer_bytes == 0);
    let [dispatch, combine] = &routing.by_communicator[..] else { panic!("{routing:#?}") };
    assert_eq!((dispatch.phase, dispatch.exchanges), (Some(RoutingPhase::Dispatch), 1));
    assert_eq!((dispatch.sent_imbalance, dispatch.most_sent_rank), (Some(10.0 * 3.0 / 24.0), Some(2)));
    assert_eq!((dispatch.received_imbalance, dispatch.most_received_rank), (Some(2.25), Some(1)));
    assert_eq!(dispatch.ranks, [0, 1, 2]);
    let rows = dispatch.bytes_by_pair.as_ref().unwrap();
    assert_eq!(rows, &[[16, 48, 0], [8, 32, 8], [0, 64, 16]].map(|row| row.to_vec()));
    assert_eq!(dispatch.heaviest_pairs[0], PairBytes { source: 2, destination: 1, bytes: 64 });
    assert_eq!((combine.sent_imbalance, combine.tokens), (Some(2.25), Some(24)));
    let page = text(&report, &TextOptions::default());
    for words in ["Expert routing", "rank 1 gets", "2 to 1: 64 B", "128 B of it to other ranks"] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn a_rank_that_is_missing_is_no_balance() {
    let folder = tempfile::tempdir().unwrap();
    (0..2).for_each(|rank| write(folder.path(), rank, &skewed(), &[]));
    let report = analyze(&read_folder(folder.path()), &AnalyzeOptions::default());
    let routing = routing(&report);
    assert_eq!((routing.expert_load_skew, routing.hottest_rank, routing.complete), (None, None, false));
    assert_eq!(routing.dispatch_payload_bytes, Some(14 * 8));
    assert!(
        routing.by_communicator.iter().all(|one| one.sent_imbalance.is_none() && one.bytes_by_pair.is_none())
    );
    let page = text(&report, &TextOptions::default());
    assert!(page.contains("Where ranks were not all read"), "{page}");
}

#[test]
fn a_rank_that_lost_records_or_calls_is_no_balance() {
    let lost = |reason| Row { value: Some(2), label: Some("queue full"), ..Row::new(RowKind::Meta, reason) };
    let call = Row { start_ns: Some(9), dur_ns: Some(1), ..Row::new(RowKind::Comm, "all_to_all_v") };
    for more in [lost(meta::DROPPED), lost(meta::PEER_BYTES_DROPPED), call] {
        let folder = tempfile::tempdir().unwrap();
        for rank in 0..3 {
            write(folder.path(), rank, &skewed(), if rank == 2 { std::slice::from_ref(&more) } else { &[] });
        }
        let report = analyze(&read_folder(folder.path()), &AnalyzeOptions::default());
        let routing = routing(&report);
        assert_eq!((routing.expert_load_skew, routing.complete), (None, false), "{more:?}");
        assert_eq!(routing.cross_rank_token_ratio, Some(16.0 / 24.0));
    }
    // One call more than the others.
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        let mut calls = skewed();
        calls.extend((rank == 2).then(|| skewed().swap_remove(0)));
        write(folder.path(), rank, &calls, &[]);
    }
    let report = analyze(&read_folder(folder.path()), &AnalyzeOptions::default());
    assert_eq!((routing(&report).expert_load_skew, routing(&report).complete), (None, false));
}

#[test]
fn a_single_rank_tells_what_it_sent() {
    let report = job(1, &skewed().into_iter().collect::<Vec<_>>());
    assert!(report.cross_rank.as_ref().is_none_or(|across| across.routing.is_none()));
    let routing = report.ranks[0].routing.as_deref().unwrap();
    assert_eq!((routing.dispatch_payload_bytes, routing.cross_rank_token_ratio), (Some(64), Some(0.75)));
    assert!(text(&report, &TextOptions::default()).contains("48 B of it to other ranks"));
}

/// The file as version 1 of the schema had it: without the columns, and with that version.
fn as_version_1(record: &[u8]) -> Vec<u8> {
    let columns: Vec<usize> = (0..19).collect();
    let reader = StreamReader::try_new(record, Some(columns)).unwrap();
    let mut metadata = reader.schema().metadata().clone();
    metadata.insert("commtrace.schema_version", "1");
    let schema = reader.schema().as_ref().clone().with_metadata(metadata);
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    for batch in reader {
        writer.write(&batch.unwrap()).unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn files_without_the_columns_are_read_as_before() {
    let folder = tempfile::tempdir().unwrap();
    (0..3).for_each(|rank| write(folder.path(), rank, &skewed(), &[]));
    let now = analyze(&read_folder(folder.path()), &AnalyzeOptions::default());
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        std::fs::write(&path, as_version_1(&std::fs::read(&path).unwrap())).unwrap();
    }
    let old = analyze(&read_folder(folder.path()), &AnalyzeOptions::default());
    assert!(old.warnings.is_empty(), "{:?}", old.warnings);
    assert!(old.ranks.iter().all(|rank| rank.routing.is_none()));
    let across = old.cross_rank.as_ref().unwrap();
    assert_eq!(across.routing, None);
    assert_eq!(across.ops, now.cross_rank.as_ref().unwrap().ops);
    assert_eq!(old.ranks[0].summary, now.ranks[0].summary);
}

#[test]
fn counts_that_do_not_fit_their_communicator_are_an_anomaly() {
    let folder = tempfile::tempdir().unwrap();
    let (two, three) = ([1, 2], [1, 2, 3]);
    let row = |comm_size, sent, received| Row {
        start_ns: Some(1),
        dur_ns: Some(1),
        comm: Some("ep"),
        comm_rank: Some(0),
        comm_size,
        sent_bytes: Some(sent),
        received_bytes: Some(received),
        ..Row::new(RowKind::Comm, "all_to_all_v")
    };
    let bad = [row(Some(3), &two[..], &two[..]), row(None, &two, &two), row(Some(2), &two, &three)];
    write(
        folder.path(),
        0,
        &[],
        &[&bad[..], &[row(Some(1000), &two, &two), row(Some(2), &two, &two)]].concat(),
    );
    let timeline = read_folder(folder.path());
    assert_eq!(timeline.inputs[0].anomalies["malformed_peer_bytes"], 3);
    let exchanges: Vec<bool> =
        timeline.tracks[0].comm.iter_exchanges().map(|(_, one)| one.is_some()).collect();
    assert_eq!(exchanges, [false, false, false, true, true]);
}

#[test]
fn exchanges_stay_with_their_calls_where_steps_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = RecordWriter::new(Vec::new(), &header(0)).unwrap();
    for step in 0..4_i64 {
        let sent = [step as u64, 7];
        let row = Row {
            start_ns: Some(step * 10),
            dur_ns: Some(5),
            comm: Some("ep"),
            comm_rank: Some(0),
            comm_size: Some(2),
            step: Some(step),
            ..Row::new(RowKind::Comm, "all_to_all_v")
        };
        writer.push(&Row {
            phase: Some("dispatch"),
            sent_bytes: Some(&sent),
            received_bytes: Some(&sent),
            ..row
        });
        writer.push(&Row { start_ns: Some(step * 10 + 6), dur_ns: Some(1), name: "all_reduce", ..row });
    }
    writer.push(&Row::new(RowKind::Meta, meta::END));
    std::fs::write(folder.path().join(file_name(&header(0))), writer.finish().unwrap()).unwrap();
    let steps = Some("2..4".parse().unwrap());
    let options = AnalyzeOptions { steps, ..AnalyzeOptions::default() };
    let report = analyze(&read_folder(folder.path()), &options);
    let routing = report.ranks[0].routing.as_deref().unwrap();
    assert_eq!(routing.exchanges[0].calls, 2);
    assert_eq!(routing.dispatch_payload_bytes, Some(2 + 3 + 14));
    assert_eq!((routing.dispatched_tokens, routing.without_token_count), (None, 2));
}

/// Few of the many ranks of a large communicator, whose counts are two numbers.
#[test]
fn large_communicators_have_own_and_others() {
    let ranks = MAX_PEERS as u32 + 44;
    let mut aggregator = Aggregator::new(AnalyzeOptions::default());
    for rank in 0..ranks {
        let own = [5, u64::from(rank)];
        aggregator.push(
            rank,
            &Row {
                start_ns: Some(0),
                dur_ns: Some(1_000_000_000),
                comm: Some("ep"),
                comm_size: Some(ranks),
                comm_rank: Some(rank),
                phase: Some("dispatch"),
                token_bytes: Some(1),
                sent_bytes: Some(&own),
                received_bytes: Some(&own),
                ..Row::new(RowKind::Comm, "all_to_all_v")
            },
        );
    }
    let report = aggregator.finish();
    let routing = routing(&report);
    let others: u64 = (0..u64::from(ranks)).sum();
    let all = others + 5 * u64::from(ranks);
    assert_eq!((routing.dispatched_tokens, routing.dispatch_cross_rank_bytes), (Some(all), Some(others)));
    let skew = f64::from(5 + ranks - 1) * f64::from(ranks) / all as f64;
    assert_eq!((routing.expert_load_skew, routing.hottest_rank), (Some(skew), Some(ranks - 1)));
    assert_eq!(routing.throughput_tokens_per_s, Some(all as f64));
    assert!(routing.by_communicator[0].heaviest_pairs.is_empty());
    assert_eq!(routing.by_communicator[0].bytes_by_pair, None);
}

fn call(ranks: usize) -> impl Strategy<Value = Call> {
    let phases =
        prop_oneof![Just(None), Just(Some(RoutingPhase::Dispatch)), Just(Some(RoutingPhase::Combine))];
    let row = prop::collection::vec(prop_oneof![Just(0_u64), 0_u64..1000], ranks);
    (phases, prop_oneof![Just("ep"), Just("tp")], 1_u64..5, prop::collection::vec(row, ranks), any::<bool>())
        .prop_map(|(phase, comm, unit, tokens, counted)| Call {
            phase,
            comm,
            token_bytes: (phase.is_some() && counted).then_some(unit),
            bytes: tokens.iter().map(|row| row.iter().map(|tokens| tokens * unit).collect()).collect(),
        })
}

fn calls() -> impl Strategy<Value = (usize, Vec<Call>)> {
    (2_usize..5).prop_flat_map(|ranks| (Just(ranks), prop::collection::vec(call(ranks), 1..12)))
}

fn largest_over_mean(numbers: &[u64]) -> Option<f64> {
    let sum: u64 = numbers.iter().sum();
    let most = *numbers.iter().max()?;
    (sum > 0).then(|| most as f64 * numbers.len() as f64 / sum as f64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn figures_are_those_of_a_slow_version((ranks, calls) in calls()) {
        let report = job(ranks, &calls);
        let routing = routing(&report);
        let dispatches: Vec<&Call> =
            calls.iter().filter(|call| call.phase == Some(RoutingPhase::Dispatch)).collect();
        let pairs = || (0..ranks).flat_map(|source| (0..ranks).map(move |destination| (source, destination)));
        let (mut bytes, mut crossing, mut tokens, mut crossing_tokens) = (0, 0, 0, 0);
        let mut arrived = vec![0; ranks];
        for call in &dispatches {
            for (source, destination) in pairs() {
                let sent = call.bytes[source][destination];
                let crosses = u64::from(source != destination);
                bytes += sent;
                crossing += sent * crosses;
                if let Some(unit) = call.token_bytes {
                    tokens += sent / unit;
                    crossing_tokens += sent / unit * crosses;
                    arrived[destination] += sent / unit;
                }
            }
        }
        let any = !dispatches.is_empty();
        let counted = dispatches.iter().any(|call| call.token_bytes.is_some());
        let all_counted = dispatches.iter().all(|call| call.token_bytes.is_some());
        prop_assert_eq!(routing.dispatch_payload_bytes, any.then_some(bytes));
        prop_assert_eq!(routing.dispatch_cross_rank_bytes, any.then_some(crossing));
        prop_assert_eq!(routing.dispatched_tokens, counted.then_some(tokens));
        let ratio = (tokens > 0).then(|| crossing_tokens as f64 / tokens as f64);
        prop_assert_eq!(routing.cross_rank_token_ratio, ratio);
        let skew = largest_over_mean(&arrived).filter(|_| all_counted);
        prop_assert_eq!(routing.expert_load_skew, skew);
        prop_assert_eq!(routing.hottest_rank.is_some(), skew.is_some());
        if let Some(hottest) = routing.hottest_rank {
            prop_assert_eq!(arrived[hottest as usize], *arrived.iter().max().unwrap());
        }
        for one in &routing.by_communicator {
            let of_it: Vec<&Call> = calls
                .iter()
                .filter(|call| Some(call.comm) == one.comm.as_deref() && call.phase == one.phase)
                .collect();
            prop_assert_eq!(one.exchanges, of_it.len() as u64);
            prop_assert!(one.complete);
            let sum = |source: usize, destination: usize| -> u64 {
                of_it.iter().map(|call| call.bytes[source][destination]).sum()
            };
            for (source, destination) in pairs() {
                prop_assert_eq!(one.bytes_by_pair.as_ref().unwrap()[source][destination], sum(source, destination));
            }
            let sent: Vec<u64> = (0..ranks).map(|rank| (0..ranks).map(|to| sum(rank, to)).sum()).collect();
            let received: Vec<u64> = (0..ranks).map(|rank| (0..ranks).map(|from| sum(from, rank)).sum()).collect();
            prop_assert_eq!(one.sent_imbalance, largest_over_mean(&sent));
            prop_assert_eq!(one.received_imbalance, largest_over_mean(&received));
            prop_assert_eq!(one.bytes, sent.iter().sum::<u64>());
            let heaviest = pairs().filter(|(a, b)| a != b).map(|(a, b)| sum(a, b)).max().unwrap();
            prop_assert_eq!(one.heaviest_pairs.first().map_or(0, |pair| pair.bytes), heaviest);
        }
        // What a run adds up while it goes on is the same.
        let mut aggregator = Aggregator::new(AnalyzeOptions::default());
        for rank in 0..ranks {
            rows(&calls, rank, |row| aggregator.push(rank as u32, row));
        }
        let live = aggregator.finish();
        prop_assert_eq!(self::routing(&live), routing);
        for (live, read) in live.ranks.iter().zip(&report.ranks) {
            prop_assert_eq!(&live.routing, &read.routing);
        }
    }
}

#[test]
fn an_exchange_survives_a_conversion_of_its_timeline() {
    let folder = tempfile::tempdir().unwrap();
    (0..3).for_each(|rank| write(folder.path(), rank, &skewed(), &[]));
    let timeline = read_folder(folder.path());
    let target = folder.path().join("converted");
    write_records(&timeline, &target, false).unwrap();
    let converted = read_folder(&target);
    for (before, after) in timeline.tracks.iter().zip(&converted.tracks) {
        let of = |track: &commtrace_report::timeline::Track| {
            track
                .comm
                .iter_exchanges()
                .map(|(_, one)| {
                    one.map(|Exchange { sent_bytes, token_bytes, .. }| (sent_bytes.to_vec(), token_bytes))
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(of(before), of(after));
    }
}

/// Ranks that wait for each other unevenly, `skewed` or not, and whether one of them is claimed to be the cause.
fn advice_of_late_ranks(calls: &[Call], stragglers: &[Straggler]) -> Advice {
    let report = job(3, calls);
    let mut across = report.cross_rank.unwrap();
    for op in &mut across.ops {
        (op.rank_imbalance_ratio, op.rank_imbalance_lower, op.bootstrap_steps) = (0.6, Some(0.5), 20);
    }
    across.stragglers = stragglers.to_vec();
    assemble(report.ranks, Some(across), Vec::new(), Vec::new(), &AnalyzeOptions::default())
        .mitigation
        .strategy
}

#[test]
fn even_experts_are_rebalanced_only_where_a_rank_is_to_blame() {
    let even = |phase| Call {
        phase: Some(phase),
        comm: "ep",
        token_bytes: Some(8),
        bytes: vec![vec![40, 40, 40]; 3],
    };
    let even = [even(RoutingPhase::Dispatch), even(RoutingPhase::Combine)];
    let late = Straggler {
        rank: 2,
        arrived_last: 20,
        collectives: 20,
        caused_wait_ms: 40.0,
        suffered_wait_ms: 0.0,
        span: None,
        span_label: None,
        span_excess_ms: None,
        late_ms: 2.0,
        outside_span_ms: 2.0,
        lost_share: 0.4,
        pattern: Pattern::Throughout,
        by_step: true,
        steps: 20,
        late_steps: 20,
        late_step_numbers: Vec::new(),
        excess_to_noise: Some(10.0),
        relative_score: None,
        individual_score: None,
    };
    assert_eq!(advice_of_late_ranks(&even, &[]), Advice::IncreaseOverlapOrDelaySync);
    assert_eq!(advice_of_late_ranks(&even, &[late]), Advice::RebalanceRanksOrExperts);
    assert_eq!(advice_of_late_ranks(&skewed(), &[]), Advice::RebalanceRanksOrExperts);
    // Where nothing is known of the experts, the waits alone decide.
    let unknown = even.map(|call| Call { phase: None, token_bytes: None, ..call });
    assert_eq!(advice_of_late_ranks(&unknown, &[]), Advice::RebalanceRanksOrExperts);
}
