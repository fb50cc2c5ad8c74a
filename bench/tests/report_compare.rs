//! Algorithms, groups, failures, overlap, and the reading.

mod report;

use commtrace_bench::record::AlgorithmObserved;
use commtrace_bench::report::{Conclusion, render};
use report::{Change, PAYLOADS, failed, local, of, overlap, record, row, rows};

#[test]
fn the_fastest_is_named_and_a_difference_within_the_spread_is_a_tie() {
    let report = of(vec![
        (
            "auto.json",
            record(
                "Auto",
                &["Ring"],
                vec![row("all_reduce", 1 << 20, 1.00, 1.02), row("all_reduce", 4 << 20, 4.0, 4.4)],
            ),
        ),
        (
            "ring.json",
            record(
                "Ring",
                &["Ring"],
                vec![row("all_reduce", 1 << 20, 1.50, 1.52), row("all_reduce", 4 << 20, 3.9, 4.0)],
            ),
        ),
        ("tree.json", record("Tree", &[], vec![row("all_reduce", 1 << 20, 0.80, 0.81)])),
    ]);
    let [first, second] = report.groups[0].comparisons.as_slice() else { panic!("{report:?}") };
    assert_eq!(first.fastest.as_deref(), Some("Tree"));
    assert!((first.faster_by_ratio - 0.25).abs() < 1e-9, "{first:?}");
    let order: Vec<&str> = first.candidates.iter().map(|one| one.algorithm_requested.as_str()).collect();
    assert_eq!(order, ["Tree", "Auto", "Ring"]);
    assert_eq!(first.candidates[0].algorithm_observed, AlgorithmObserved::default());
    assert_eq!(
        (second.fastest.as_deref(), second.candidates.len()),
        (None, 2),
        "0.1 ms apart, spread 0.4 ms"
    );
    let text = render::text(&report);
    for words in
        ["Tree [unconfirmed]", "Tree requested, unconfirmed observed", "Auto requested, Ring observed", "tie"]
    {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    assert!(!text.contains("Tree [Tree]"), "{text}");
}

#[test]
fn runs_of_one_algorithm_are_not_compared_with_each_other_but_widen_its_spread() {
    let run = |label: &str, algorithm: &str, ms: f64| {
        let mut record = record(algorithm, &[], vec![row("broadcast", 1 << 20, ms, ms * 1.001)]);
        record.workload.run_label = label.to_owned();
        record
    };
    let report = of(vec![
        ("a1.json", run("first", "Ring", 1.0)),
        ("a2.json", run("second", "Ring", 1.4)),
        ("b1.json", run("first", "Tree", 1.3)),
    ]);
    let [only] = report.groups[0].comparisons.as_slice() else { panic!("{report:?}") };
    assert_eq!((only.candidates[0].runs, only.fastest.as_deref()), (2, None), "{only:?}");
    assert!(render::text(&report).contains("Ring (second)"));
}

#[test]
fn an_algorithm_that_was_requested_and_not_observed_is_said() {
    let report = of(vec![("a.json", record("Tree", &["Ring"], rows("all_reduce", &PAYLOADS, 0.1, 10.0)))]);
    let path = &report.groups[0].reading[1];
    assert!(path.action.contains("was not observed"), "{path:?}");
}

#[test]
fn what_differs_in_workload_or_hardware_is_never_compared() {
    let base = || record("Ring", &["Ring"], rows("all_reduce", &PAYLOADS, 0.1, 10.0));
    let changed: Vec<(&str, Change)> = vec![
        ("dtype", |record| record.workload.dtype = "bfloat16".to_owned()),
        ("world_size", |record| record.workload.world_size = 4),
        ("backend", |record| record.workload.backend = "mpi".to_owned()),
        ("repeats", |record| record.workload.repeats = 10),
        ("library", |record| record.versions.library = Some("NCCL 2.20.5".to_owned())),
        ("gpu", |record| record.hardware.hosts[0].gpus[1].name = "NVIDIA A100".to_owned()),
    ];
    for (what, change) in changed {
        let mut other = base();
        other.workload.algorithm_requested = "Tree".to_owned();
        let same = of(vec![("a.json", base()), ("b.json", other.clone())]);
        assert_eq!((same.groups.len(), same.groups[0].comparisons.len()), (1, 3), "{what}");
        change(&mut other);
        let differing = of(vec![("a.json", base()), ("b.json", other)]);
        assert_eq!(differing.groups.len(), 2, "{what}");
        assert!(differing.groups.iter().all(|group| group.comparisons.is_empty()), "{what}");
        assert!(render::text(&differing).contains("Groups differ"), "{what}");
    }
}

#[test]
fn failed_candidates_are_listed_with_their_log_and_not_compared() {
    let report = of(vec![
        ("auto.json", record("Auto", &["Ring"], rows("all_reduce", &PAYLOADS, 0.1, 10.0))),
        ("tree.json", failed("Tree", "rank 1 ended with signal 9")),
    ]);
    assert_eq!((report.groups[0].comparisons.len(), report.failed.len()), (0, 1));
    let text = render::text(&report);
    for words in
        ["rank_failed, rank 1, in all_gather of 4 MiB", "signal 9", "Tree.log", "Failed: Tree (default)."]
    {
        assert!(text.replace("\n    ", " ").contains(words), "{words} is not in\n{text}");
    }
}

#[test]
fn nonsense_is_named_and_left_out() {
    let cases: Vec<(&str, Change)> = vec![
        ("median_max_rank_ms is -1", |record| record.metrics.rows[0].median_max_rank_ms = -1.0),
        ("payload", |record| record.metrics.rows[0].payload_bytes_per_rank = 0),
        ("no time that was measured", |record| record.metrics.rows[1].p95_max_rank_ms = f64::INFINITY),
        ("no time that was measured", |record| record.metrics.rows[1].median_max_rank_ms = 1e-300),
        ("P95 is less", |record| record.metrics.rows[1].p95_max_rank_ms = 1e-3),
        ("time is -3 ms", |record| record.metrics.rows[0].rank_mean_ms[1] = -3.0),
        ("a bandwidth is not finite", |record| record.metrics.rows[0].busbw_gbps = Some(f64::NAN)),
        ("world size is 0", |record| record.workload.world_size = 0),
        ("neither times nor a failure", |record| record.metrics.rows.clear()),
        ("3 elements were wrong", |record| record.metrics.rows[0].wrong_elements = 3),
    ];
    for (said, break_it) in cases {
        let mut broken = record("Ring", &[], rows("all_reduce", &PAYLOADS, 0.1, 10.0));
        break_it(&mut broken);
        let good = record("Auto", &[], rows("all_reduce", &PAYLOADS, 0.1, 10.0));
        let report = of(vec![("good.json", good), ("broken.json", broken)]);
        assert_eq!(report.groups.len(), 1, "{said}");
        assert_eq!(report.groups[0].curves.len(), 1, "{said}");
        let [left] = report.left_out.as_slice() else { panic!("{said}: {:?}", report.left_out) };
        assert!(left.file == "broken.json" && left.reason.contains(said), "{left:?}");
        for output in [render::text(&report), render::html(&report), render::json(&report)] {
            let bad = |word: &str| output.split(|c: char| !c.is_alphanumeric()).any(|part| part == word);
            assert!(!bad("inf") && !bad("NaN"), "{said}:\n{output}");
        }
    }
}

#[test]
fn two_steps_stand_beside_the_all_reduce_and_prove_nothing() {
    let mut all = rows("all_reduce", &PAYLOADS, 0.1, 10.0);
    all.extend(rows("reduce_scatter_all_gather", &PAYLOADS, 0.2, 5.0));
    let report = of(vec![("a.json", record("Ring", &[], all))]);
    let steps = &report.groups[0].two_steps;
    assert_eq!(steps.len(), 3);
    assert!(steps.iter().all(|steps| (steps.ratio - 2.0).abs() < 1e-9), "{steps:?}");
    assert!(render::text(&report).replace("\n ", "").contains("does not prove that NCCL runs Ring"));
}

/// Chapter 48: median and P95 improve, and no rank shows a new tail.
#[test]
fn overlapping_pays_only_if_all_three_hold() {
    for (serial, overlapped, tails, expected) in [
        ((10.0, 11.0), (8.0, 9.0), &[][..], Conclusion::OverlapPays),
        ((10.0, 11.0), (8.0, 9.0), &[1][..], Conclusion::NotShown),
        ((10.0, 11.0), (8.0, 12.0), &[][..], Conclusion::NotShown),
        ((10.0, 11.0), (10.5, 10.9), &[][..], Conclusion::NotShown),
        ((10.0, 11.0), (10.0, 11.0), &[][..], Conclusion::NotShown),
    ] {
        let report = of(vec![("a.json", overlap(serial, overlapped, tails))]);
        let [finding] = report.overlap.as_slice() else { panic!("{report:?}") };
        assert_eq!(finding.conclusion, expected, "{finding:?}");
        let text = render::text(&report).replace("\n    ", " ");
        assert!(
            text.contains("does not stand for the buckets, dependencies and schedule of a real model"),
            "{text}"
        );
    }
    let pays = render::text(&of(vec![("a.json", overlap((10.0, 11.0), (8.0, 9.0), &[]))]));
    assert!(pays.contains("saved 2.00 ms of the median, an overlap gain ratio of 20.0 %"), "{pays}");
}

#[test]
fn a_comparison_that_is_not_that_of_its_rows_is_left_out() {
    let mut record = overlap((10.0, 11.0), (8.0, 9.0), &[]);
    record.metrics.comparison.as_mut().unwrap().saved_ms = 3.0;
    let report = of(vec![("a.json", record)]);
    assert!(report.overlap.is_empty() && report.left_out[0].reason.contains("not that of its two rows"));
}

#[test]
fn the_reading_has_chapter_47s_four_rows_and_the_bucket_size() {
    let payloads: Vec<u64> = (10..=26).map(|power| 1 << power).collect();
    let report = of(vec![("a.json", record("Auto", &["Ring"], rows("all_reduce", &payloads, 0.02, 100.0)))]);
    let reading = &report.groups[0].reading;
    let rows: Vec<&str> = reading.iter().map(|reading| reading.observation.as_str()).collect();
    assert_eq!(
        rows,
        ["Run and comparability", "Algorithm path", "Startup and bandwidth regions", "Next step"]
    );
    // 9 times a knee of 2 MB.
    assert!(reading[3].found[1].contains("at least 17.2 MiB per rank"), "{reading:?}");
    assert!(reading[3].action.contains("commtrace bench overlap"), "{reading:?}");
    assert!(!reading[3].action.contains("--backend nccl"), "{reading:?}");
    let of_cpu = of(vec![("a.json", local(rows_of_cpu()))]);
    let next = &of_cpu.groups[0].reading[3];
    assert!(next.found[0].contains("nothing of GPUs") && next.action.contains("--backend nccl"), "{next:?}");
}

fn rows_of_cpu() -> Vec<commtrace_bench::record::Row> {
    rows("all_reduce", &PAYLOADS, 0.1, 10.0)
}
