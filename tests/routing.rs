//! How tokens are routed to experts: from the calls to record files and reports.

use commtrace::collectives::Result;
use commtrace::prelude::*;
use commtrace::report::analyze::{AnalyzeOptions, Report, analyze};
use commtrace::report::read::{ReadOptions, read};
use commtrace::report::timeline::{Exchange, RoutingPhase, Timeline};
use commtrace::{Config, Guard, Mode, PeerCounts, TokenExchange, record_routing};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tracing_subscriber::layer::SubscriberExt;

const RANKS: usize = 4;
const HIDDEN: usize = 8;
const STEPS: i64 = 3;

/// Tokens from each rank to each: rank 2 has the expert that most want.
const TOKENS: [[usize; RANKS]; RANKS] = [[1, 0, 5, 2], [0, 2, 6, 0], [1, 1, 4, 2], [3, 0, 5, 0]];

fn sent(rank: usize) -> Vec<usize> {
    TOKENS[rank].iter().map(|tokens| tokens * HIDDEN).collect()
}

fn received(rank: usize) -> Vec<usize> {
    TOKENS.iter().map(|row| row[rank] * HIDDEN).collect()
}

fn buffer(counts: &[usize]) -> Vec<f32> {
    vec![1.0; counts.iter().sum()]
}

/// Records what `rank` does on each rank.
fn record<R: Send>(mode: Mode, rank: impl Fn(LocalComm) -> Result<R> + Sync) -> Guard {
    let (layer, guard) = Config::default().mode(mode).layer().unwrap();
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let results = tracing::dispatcher::with_default(&dispatch, || {
        LocalComm::run(RANKS, |comm| tracing::dispatcher::with_default(&dispatch, || rank(comm)))
    });
    results.into_iter().for_each(|result| drop(result.unwrap()));
    guard
}

/// Dispatches and combines once a step: blocking, not blocking, and in a group.
fn experts(comm: &LocalComm) -> Result<()> {
    let (out, back) = (sent(comm.rank()), received(comm.rank()));
    for step in 0..STEPS {
        let _step = step_span!(step).entered();
        let (tokens, mut arrived) = (buffer(&out), buffer(&back));
        {
            let _dispatch = dispatch_scope(HIDDEN);
            match step {
                0 => comm.all_to_all_v(&tokens, &out, &mut arrived, &back)?,
                1 => drop(comm.all_to_all_v_async(tokens, &out, buffer(&back), &back).wait()?),
                _ => comm.group(|group| group.all_to_all_v(&tokens, &out, &mut arrived, &back))?,
            }
        }
        let mut results = buffer(&out);
        comm.group(|group| {
            // It ends before the group does.
            let _combine = combine_scope(HIDDEN);
            group.all_to_all_v(&arrived, &back, &mut results, &out)
        })?;
    }
    Ok(())
}

fn read_folder(folder: &Path) -> Timeline {
    read(&[folder.to_owned()], &ReadOptions::default()).unwrap()
}

fn exchanges(timeline: &Timeline, rank: usize) -> Vec<Option<Exchange<'_>>> {
    // A communication thread's calls may be written after later ones of the caller's thread.
    let mut calls: Vec<_> = timeline.tracks[rank].comm.iter_exchanges().collect();
    calls.sort_by_key(|(call, _)| call.seq);
    calls.into_iter().map(|(_, exchange)| exchange).collect()
}

fn bytes(counts: &[usize]) -> Vec<u64> {
    counts.iter().map(|&count| 4 * count as u64).collect()
}

#[test]
fn a_record_holds_the_bytes_for_each_rank() {
    let folder = tempfile::tempdir().unwrap();
    let guard = record(Mode::Directory(folder.path().into()), |comm| {
        experts(&comm)?;
        // Without a scope: bytes, and no tokens. Parts of equal length say nothing then.
        let (out, back) = (sent(comm.rank()), received(comm.rank()));
        comm.all_to_all_v(&buffer(&out), &out, &mut buffer(&back), &back)?;
        comm.all_to_all(&[1_u8; RANKS], &mut [0; RANKS])?;
        let _dispatch = dispatch_scope(1);
        comm.all_to_all(&[1_i32; RANKS], &mut [0; RANKS])?;
        // Half tokens, and tokens of nothing.
        let _half = dispatch_scope(2 * HIDDEN);
        comm.all_to_all_v(&buffer(&out), &out, &mut buffer(&back), &back)?;
        let _nothing = combine_scope(0);
        comm.all_to_all_v(&buffer(&out), &out, &mut buffer(&back), &back)
    });
    drop(guard);
    let timeline = read_folder(folder.path());
    for rank in 0..RANKS {
        let (out, back) = (bytes(&sent(rank)), bytes(&received(rank)));
        let exchange = |phase, tokens: usize, (sent_bytes, received_bytes)| {
            let token_bytes = (tokens > 0).then_some(4 * tokens as u64);
            Some(Exchange { phase, token_bytes, sent_bytes, received_bytes })
        };
        let (dispatch, combine) = (Some(RoutingPhase::Dispatch), Some(RoutingPhase::Combine));
        let mut expected = Vec::new();
        for _ in 0..STEPS {
            expected.push(exchange(dispatch, HIDDEN, (&out[..], &back[..])));
            expected.push(exchange(combine, HIDDEN, (&back, &out)));
        }
        expected.push(exchange(None, 0, (&out, &back)));
        expected.push(None);
        let equal = &[4; RANKS][..];
        expected.push(exchange(dispatch, 0, (equal, equal)).map(|e| Exchange { token_bytes: Some(4), ..e }));
        expected.push(exchange(dispatch, 0, (&out, &back)));
        expected.push(exchange(combine, 0, (&out, &back)));
        assert_eq!(exchanges(&timeline, rank), expected, "rank {rank}");
    }
    assert!(timeline.warnings.is_empty(), "{:?}", timeline.warnings);
}

#[test]
fn a_span_of_the_application_has_counts_too_and_wrong_ones_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let guard = record(Mode::Directory(folder.path().into()), |comm| {
        let (sent, received) = (&[3, 1, 0, 0][..], &[3, 0, 0, 9][..]);
        let call = |size: u64, counts: PeerCounts<'_>| {
            let span = comm_span!("my_exchange", comm = "ep", comm_size = size, rank = comm.rank() as u64);
            record_routing(&span, &counts);
            // The second time the span is entered, nothing is known any more.
            (0..2).for_each(|_| span.in_scope(|| ()));
        };
        let tokens = Some(TokenExchange { phase: RoutingPhase::Dispatch, elements_per_token: 1 });
        let counts = PeerCounts { comm_rank: comm.rank(), sent, received, element_bytes: 16, tokens };
        call(4, counts);
        call(3, counts);
        call(4, PeerCounts { sent: &[1], ..counts });
        call(4, PeerCounts { comm_rank: 4, ..counts });
        Ok(())
    });
    drop(guard);
    let timeline = read_folder(folder.path());
    for rank in 0..RANKS {
        let exchanges = exchanges(&timeline, rank);
        assert_eq!(exchanges.len(), 8);
        let first = exchanges[0].unwrap();
        assert_eq!((first.sent_bytes, first.received_bytes), (&[48, 16, 0, 0][..], &[48, 0, 0, 144][..]));
        assert_eq!(first.token_bytes, Some(16));
        assert!(exchanges[1..].iter().all(Option::is_none));
        assert_eq!(timeline.tracks[rank].comm.get(0).unwrap().comm_rank, Some(rank as u32));
    }
    let lost: u64 = timeline.inputs.iter().map(|input| input.peer_bytes_dropped).sum();
    assert_eq!(lost, 3 * RANKS as u64);
    assert!(timeline.warnings.iter().any(|warning| warning.contains("12 calls")), "{:?}", timeline.warnings);
}

/// The report as JSON, as a file has it.
fn as_json(report: &Report) -> Value {
    serde_json::from_str(&commtrace::report::render::json(report)).unwrap()
}

fn check(report: &Value) {
    let routing = &report["cross_rank"]["routing"];
    let bytes = |tokens: usize| STEPS as usize * tokens * HIDDEN * 4;
    assert_eq!(routing["dispatch_payload_bytes"], bytes(32), "{routing:#}");
    assert_eq!(routing["dispatch_cross_rank_bytes"], bytes(25));
    assert_eq!(routing["dispatched_tokens"], 32 * STEPS);
    assert_eq!(routing["cross_rank_token_ratio"], 25.0 / 32.0);
    // 5, 3, 20 and 4 tokens arrive; the mean is 8.
    assert_eq!((&routing["expert_load_skew"], &routing["hottest_rank"]), (&2.5.into(), &2.into()));
    assert!(routing["throughput_tokens_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    assert_eq!(routing["complete"], true);
    let phases: Vec<_> =
        routing["by_communicator"].as_array().unwrap().iter().map(|one| one["phase"].as_str()).collect();
    assert_eq!(phases, [Some("dispatch"), Some("combine")]);
    let dispatch = &routing["by_communicator"][0];
    assert_eq!(dispatch["exchanges"], STEPS);
    for (source, row) in TOKENS.iter().enumerate() {
        let row: Vec<usize> = row.iter().map(|&tokens| bytes(tokens)).collect();
        assert_eq!(dispatch["bytes_by_pair"][source], serde_json::json!(row));
    }
    assert_eq!((&dispatch["received_imbalance"], &dispatch["most_received_rank"]), (&2.5.into(), &2.into()));
    assert_eq!(report["ranks"][2]["routing"]["exchanges"][0]["received_tokens"], 20 * STEPS);
}

#[test]
fn the_report_of_a_folder_names_the_hottest_rank() {
    let folder = tempfile::tempdir().unwrap();
    let guard = record(Mode::Directory(folder.path().into()), |comm| experts(&comm));
    let report = guard.into_report().unwrap();
    check(&as_json(&report));
    let text = commtrace::report::render::text(&report, &Default::default());
    assert!(text.contains("rank 2 gets that many times"), "{text}");
    // Read again, as `commtrace report` does.
    let again = analyze(&read_folder(folder.path()), &AnalyzeOptions::default());
    check(&as_json(&again));
}

#[test]
fn a_summary_without_files_has_the_same_figures() {
    let guard = record(Mode::Summary, |comm| experts(&comm));
    check(&as_json(&guard.into_report().unwrap()));
}

/// The rank with the most tokens is late: who makes others wait, and why, is in the advice.
#[test]
fn advice_on_late_ranks_names_the_hottest_one() {
    let guard = record(Mode::Summary, |comm| {
        for step in 0..12 {
            let _step = step_span!(step).entered();
            let (out, back) = (sent(comm.rank()), received(comm.rank()));
            let mut arrived = buffer(&back);
            {
                let _dispatch = dispatch_scope(HIDDEN);
                comm.all_to_all_v(&buffer(&out), &out, &mut arrived, &back)?;
            }
            if comm.rank() == 2 {
                compute_span!("experts").in_scope(|| std::thread::sleep(Duration::from_millis(20)));
            }
            let _combine = combine_scope(HIDDEN);
            comm.all_to_all_v(&arrived, &back, &mut buffer(&out), &out)?;
        }
        Ok(())
    });
    let report = guard.into_report().unwrap();
    assert_eq!(report.mitigation.strategy.as_str(), "rebalance_ranks_or_experts");
    let reason = &report.followup.reason;
    assert!(reason.contains("rank 2 gets 2.50 times the mean"), "{reason}");
}
