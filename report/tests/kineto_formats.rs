//! What the files in `data/kineto` are read as: small traces of all shapes, with figures by hand.

use commtrace_report::analyze::{AnalyzeOptions, RankReport, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::timeline::{Comm, Input, Timeline};
use std::path::{Path, PathBuf};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto").join(name)
}

fn load_with(name: &str, options: &ReadOptions) -> Timeline {
    read(&[file(name)], options).unwrap()
}

fn load(name: &str) -> Timeline {
    load_with(name, &ReadOptions::default())
}

fn ranks(timeline: &Timeline) -> Vec<RankReport> {
    analyze(timeline, &AnalyzeOptions::default()).ranks
}

/// Σ comm, Σ overlap and ∪ compute in nanoseconds.
fn figures(rank: &RankReport) -> [i64; 3] {
    let wall = rank.wall.as_ref().unwrap();
    let figures = [rank.summary.total_comm_time, rank.summary.overlap_time.unwrap(), wall.compute_ms];
    figures.map(|ms| (ms * 1e6).round() as i64)
}

/// Op, calls and nanoseconds, in the report's order.
fn ops(rank: &RankReport) -> Vec<(&str, u64, i64)> {
    let ops = rank.summary.by_op.iter();
    ops.map(|(op, sums)| (op.as_str(), sums.count, (sums.time * 1e6).round() as i64)).collect()
}

fn comm(timeline: &Timeline, track: usize) -> Vec<Comm> {
    timeline.tracks[track].comm.iter().collect()
}

fn counts(counts: &indexmap::IndexMap<String, u64>) -> Vec<(&str, u64)> {
    let mut counts: Vec<_> = counts.iter().map(|(name, &count)| (name.as_str(), count)).collect();
    counts.sort_unstable();
    counts
}

fn rules(input: &Input) -> Vec<(&str, Option<&str>, u64, u64)> {
    input
        .rules
        .iter()
        .map(|rule| (rule.rule.as_str(), rule.op.as_deref(), rule.events, rule.time_ns / 1000))
        .collect()
}

#[test]
fn fractions_of_microseconds_several_devices_and_process_groups() {
    let timeline = load("nanoseconds.json");
    let tracks: Vec<_> = timeline.tracks.iter().map(|track| (track.rank, track.device)).collect();
    assert_eq!(tracks, [(3, Some(0)), (3, Some(1))]);
    let ranks = ranks(&timeline);
    assert_eq!(figures(&ranks[0]), [50_001, 40_000, 60_000]);
    assert_eq!(figures(&ranks[1]), [10_000, 0, 0]);

    let text = |sym| timeline.names.get(sym);
    let gather = comm(&timeline, 0)[0];
    assert_eq!(text(gather.op), "all_gather");
    // The time of the file counts from its base.
    assert_eq!(gather.start_ns, 1_700_000_000_000_000_000 + 1_030_125);
    assert_eq!((gather.bytes, gather.seq), (Some(8192 * 2), Some(41)));
    assert_eq!((gather.comm.map(text), gather.comm_size, gather.comm_rank), (Some("0"), Some(8), Some(3)));
    assert_eq!((gather.stream.map(text), gather.dtype.map(text)), (Some("20"), Some("bf16")));
    assert_eq!((gather.algorithm.map(text), gather.protocol.map(text)), (Some("ring"), Some("ll")));
    let scatter = comm(&timeline, 1)[0];
    assert_eq!((text(scatter.op), scatter.bytes), ("reduce_scatter", Some(4096 * 4)));
    assert_eq!((scatter.comm.map(text), scatter.comm_size, scatter.comm_rank), (Some("5"), Some(2), Some(0)));

    // The kernel was launched in step 10; when the all-gather was, is not recorded.
    assert_eq!(timeline.tracks[0].compute.get(0).unwrap().step, Some(10));
    assert_eq!(gather.step, None);
    let steps: Vec<i64> = timeline.tracks[0].steps.iter().map(|step| step.step).collect();
    assert_eq!(steps, [10, 11]);

    assert_eq!(timeline.world_size, Some(8));
    let groups: Vec<_> =
        timeline.communicators.iter().map(|(&name, ranks)| (text(name), ranks.len())).collect();
    assert_eq!(groups, [("0", 8), ("5", 2)]);
    let input = &timeline.inputs[0];
    assert_eq!((input.format.as_str(), input.rank, input.events), ("kineto", Some(3), 3 + 2 * 2));
    assert_eq!(
        counts(&input.skipped),
        [
            ("annotation", 1),
            ("host_call", 3),
            ("memcpy", 1),
            ("memset", 1),
            ("not_an_interval", 3),
            ("sync", 1)
        ]
    );
    assert_eq!(
        rules(input),
        [
            ("memcpy", None, 1, 7),
            ("memset", None, 1, 2),
            ("sync", None, 1, 3),
            ("other kernels", None, 1, 60),
            ("NCCL kernel", Some("all_gather"), 1, 50),
            ("NCCL kernel", Some("reduce_scatter"), 1, 10),
        ]
    );
}

#[test]
fn older_categories_and_whole_microseconds() {
    let timeline = load("year_2022_microseconds.json");
    let ranks = ranks(&timeline);
    assert_eq!(figures(&ranks[0]), [40_000, 20_000, 30_000]);
    let all_reduce = comm(&timeline, 0)[0];
    assert_eq!(all_reduce.start_ns, 1_682_725_898_236_610_000);
    assert_eq!(timeline.names.get(all_reduce.op), "all_reduce");
    assert_eq!(all_reduce.bytes, None);
    assert_eq!(all_reduce.dtype.map(|dtype| timeline.names.get(dtype)), Some("f32"));
    let skipped = counts(&timeline.inputs[0].skipped);
    assert_eq!(skipped, [("host_call", 2), ("memcpy", 1), ("memset", 1), ("sync", 1)]);
}

#[test]
fn what_a_kernel_does_not_say_its_launch_does() {
    let timeline = load("launched_by_host.json");
    let ranks = ranks(&timeline);
    assert_eq!(figures(&ranks[0]), [155_000, 10_000, 10_000]);
    assert_eq!(
        ops(&ranks[0]),
        [
            ("all_reduce", 2, 15_000),
            ("all_gather", 1, 20_000),
            ("unknown", 1, 40_000),
            ("send_recv", 1, 80_000)
        ]
    );
    let text = |sym| timeline.names.get(sym);
    let found: Vec<_> = comm(&timeline, 0)
        .iter()
        .map(|comm| (comm.bytes, comm.seq, comm.comm.map(text), comm.comm_size))
        .collect();
    assert_eq!(
        found,
        [
            // By the launch within the call; half precision.
            (Some(2000), Some(1), Some("0"), Some(4)),
            // By PyTorch's number.
            (Some(4096), Some(2), Some("0"), Some(4)),
            // Nothing leads to its call.
            (None, None, None, None),
            // An all-to-all is made of sends and receives; the shapes tell its size.
            (Some(512), None, None, None),
            // `wait` is no collective, whatever it is said to move.
            (None, None, None, None),
        ]
    );
}

#[test]
fn rocm() {
    let timeline = load("rocm.json");
    let ranks = ranks(&timeline);
    assert_eq!((ranks[0].rank, ranks[0].device), (1, Some(1)));
    assert_eq!(figures(&ranks[0]), [65_000, 30_000, 100_000]);
    assert_eq!(ops(&ranks[0]), [("all_reduce", 1, 60_000), ("reduce", 1, 5_000)]);
    assert_eq!(comm(&timeline, 0)[0].bytes, Some(200));
}

#[test]
fn communication_that_is_not_nccl_s() {
    let timeline = load("inference.json");
    let report = ranks(&timeline);
    assert_eq!(figures(&report[0]), [60_000, 60_000, 150_000]);
    assert_eq!(ops(&report[0]), [("all_reduce", 1, 10_000), ("all_to_all_v", 2, 50_000)]);
    assert_eq!(
        rules(&timeline.inputs[0]),
        [
            ("memcpy", None, 1, 5),
            ("other kernels", None, 3, 150),
            ("custom all-reduce (vLLM, SGLang, AITER)", Some("all_reduce"), 1, 10),
            ("DeepEP", Some("all_to_all_v"), 2, 50),
        ]
    );
    let hint = timeline.warnings.iter().find(|warning| warning.contains("--comm-pattern")).unwrap();
    assert!(hint.contains("acme::all_to_all_rows") && hint.contains("0.05 ms"), "{hint}");
    assert!(!hint.contains("halo"), "{hint}");
}

#[test]
fn a_user_s_patterns_extend_the_table() {
    let comm_patterns = ["halo=halo_exchange", "AllToAll=all_to_all_rows", "mine=flash_fwd"];
    let options = ReadOptions {
        comm_patterns: comm_patterns.iter().map(|text| text.parse().unwrap()).collect(),
        copies_as_compute: true,
        ..ReadOptions::default()
    };
    let timeline = load_with("inference.json", &options);
    let report = ranks(&timeline);
    assert_eq!(
        ops(&report[0]),
        [
            ("all_reduce", 1, 10_000),
            ("all_to_all_v", 2, 50_000),
            ("halo", 1, 40_000),
            ("all_to_all", 1, 50_000),
            ("mine", 1, 60_000)
        ]
    );
    // The copy is all the compute that is left.
    assert_eq!(figures(&report[0])[2], 5_000);
    let rule = timeline.inputs[0].rules.iter().find(|rule| rule.op.as_deref() == Some("halo")).unwrap();
    assert_eq!(rule.rule, "--comm-pattern halo=halo_exchange");
    assert!(timeline.warnings.is_empty(), "{:?}", timeline.warnings);

    let options = ReadOptions { compute_pattern: Some("(".into()), ..ReadOptions::default() };
    let error = read(&[file("inference.json")], &options).unwrap_err().to_string();
    assert!(error.contains("`(` is not a regular expression"), "{error}");
}

#[test]
fn odd_events_are_counted_and_do_not_hide_the_others() {
    let timeline = load("odd_events.json");
    let report = ranks(&timeline);
    // k0 10, said twice 10, in two parts 5, async 4; both claims of the same time count.
    assert_eq!(figures(&report[0]), [20_000, 10_000, 29_000]);
    assert_eq!(timeline.tracks.len(), 1);
    assert_eq!(timeline.tracks[0].compute.len(), 6);
    let input = &timeline.inputs[0];
    assert_eq!(
        counts(&input.skipped),
        [
            ("bad_time", 3),
            ("begin_without_end", 2),
            ("end_without_begin", 2),
            ("implausible_time", 2),
            ("not_an_object", 4),
            ("without_time", 1)
        ]
    );
    assert_eq!(
        counts(&input.anomalies),
        [("end_before_start", 1), ("same_time_on_stream", 1), ("without_duration", 1)]
    );
    let warning = timeline.warnings.iter().find(|warning| warning.contains("for their time")).unwrap();
    assert!(warning.contains("3 events") && warning.contains("`ts` of \"ts NaN\" is \"NaN\""), "{warning}");
}

#[test]
fn text_that_strict_parsers_refuse() {
    let timeline = load("odd_text.json");
    let names: Vec<&str> =
        timeline.tracks[0].compute.iter().map(|compute| timeline.names.get(compute.name)).collect();
    assert_eq!(names, ["C:\\models\\", "caf\u{fffd}\u{fffd}", "étape \"2\""]);
    assert_eq!(counts(&timeline.inputs[0].skipped), [("malformed", 1)]);
    let warning = timeline.warnings.iter().find(|warning| warning.contains("valid JSON")).unwrap();
    assert!(warning.contains("1 event") && warning.contains("byte "), "{warning}");
}

#[test]
fn metadata_alone() {
    let timeline = load("metadata_only.json");
    assert!(timeline.tracks.is_empty());
    assert_eq!((timeline.inputs[0].format.as_str(), timeline.inputs[0].events), ("kineto", 0));
    let says = |text: &str| timeline.warnings.iter().any(|warning| warning.contains(text));
    assert!(says("holds no compute and no communication"), "{:?}", timeline.warnings);
}

#[test]
fn operators_communicate_where_no_backend_is_seen() {
    let timeline = load("gloo_operators.json");
    let report = ranks(&timeline);
    assert_eq!((report[0].rank, report[0].device), (0, None));
    assert_eq!(figures(&report[0]), [70_000, 10_000, 130_000]);
    assert_eq!(ops(&report[0]), [("all_reduce", 1, 60_000), ("send", 1, 10_000)]);
    let found: Vec<_> = comm(&timeline, 0).iter().map(|comm| (comm.bytes, comm.seq)).collect();
    assert_eq!(found, [(Some(80), Some(4)), (Some(12), None)]);
    assert_eq!(counts(&timeline.inputs[0].skipped), [("nested", 4)]);
}

#[test]
fn a_gpu_s_collectives_have_no_time_in_a_trace_of_the_host_alone() {
    let timeline = load("nccl_without_gpu.json");
    let report = ranks(&timeline);
    assert_eq!(report[0].summary.num_comm_events, 0);
    assert_eq!((report[0].untimed.count, report[0].untimed.bytes), (1, 100));
    assert_eq!(timeline.tracks[0].untimed.reasons.get("gpu_not_recorded"), Some(&1));
    assert_eq!(counts(&timeline.inputs[0].skipped), [("collective_call", 1)]);
}

#[test]
fn spans_of_another_program_by_patterns() {
    let timeline = load("spans.json");
    // Our own spans are known wherever they were recorded.
    let report = ranks(&timeline);
    assert_eq!(timeline.inputs[0].format, "chrome-trace");
    assert_eq!(ops(&report[0]), [("all_reduce", 1, 10_000)]);
    let all_reduce = comm(&timeline, 0)[0];
    let text = |sym| timeline.names.get(sym);
    assert_eq!((all_reduce.bytes, all_reduce.seq), (Some(64), Some(3)));
    assert_eq!((all_reduce.comm.map(text), all_reduce.dtype.map(text)), (Some("world"), Some("f32")));
    assert_eq!(timeline.tracks[0].steps.len(), 1);
    assert_eq!(counts(&timeline.inputs[0].skipped), [("unmatched", 3)]);
    assert!(timeline.inputs[0].rules.is_empty());

    let options = ReadOptions {
        comm_patterns: vec!["halo=^exchange".parse().unwrap()],
        compute_pattern: Some("^forward".into()),
        ..ReadOptions::default()
    };
    let timeline = load_with("spans.json", &options);
    let report = ranks(&timeline);
    assert_eq!(figures(&report[0]), [110_000, 49_750, 100_250]);
    assert_eq!(ops(&report[0]), [("halo", 1, 100_000), ("all_reduce", 1, 10_000)]);
    assert_eq!(comm(&timeline, 0)[0].bytes, Some(4096));
    assert_eq!(
        rules(&timeline.inputs[0]),
        [
            ("--compute-pattern ^forward", None, 1, 100),
            ("--comm-pattern halo=^exchange", Some("halo"), 1, 100)
        ]
    );
}

#[test]
fn steps_that_only_the_devices_show() {
    let timeline = load("device_steps.json");
    let steps: Vec<_> =
        timeline.tracks[0].steps.iter().map(|step| (step.step, step.start_ns, step.end_ns)).collect();
    // Of each step, from the first start on any stream to the last end.
    assert_eq!(steps, [(7, 1_000_000, 1_090_000), (8, 1_100_000, 1_150_000)]);
    let report = ranks(&timeline);
    let exposed: Vec<_> = report[0].steps.iter().map(|step| (step.step, step.exposed_ms)).collect();
    assert_eq!(exposed, [(7, 0.02), (8, 0.0)]);
}
