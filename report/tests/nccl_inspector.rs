//! Dumps of the NCCL Inspector: durations without places in time, and with them.

use commtrace_report::analyze::{AnalyzeOptions, Report, analyze};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render::{TextOptions, json, text};
use std::path::{Path, PathBuf};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nccl").join(name)
}

fn report(paths: &[PathBuf]) -> Result<Report> {
    Ok(analyze(&read(paths, &ReadOptions::default())?, &AnalyzeOptions::default()))
}

#[test]
fn without_positions_what_was_hidden_is_null() -> Result {
    let report = report(&[data("inspector.log")])?;
    let [rank] = report.ranks.as_slice() else { panic!("{:?}", report.ranks) };
    // Rank 2 of the communicator of all four, whatever its number in the pair.
    assert_eq!((rank.rank, rank.wall), (2, None));
    let summary = &rank.summary;
    assert_eq!((summary.num_comm_events, summary.total_comm_time), (4, 3.564));
    let ops: Vec<_> = summary.by_op.iter().map(|(op, f)| (op.as_str(), f.count, f.time, f.bytes)).collect();
    assert_eq!(
        ops,
        [
            ("all_reduce", 2, 3.0, Some(16_000_000)),
            // One rank's share of two: the payload is 2 MB.
            ("all_gather", 1, 0.5, Some(2_000_000)),
            ("send", 1, 0.064, Some(65_536)),
        ]
    );

    let object: serde_json::Value = serde_json::from_str(&json(&report))?;
    let rank = &object["ranks"][0];
    for figure in ["overlap_time", "overlap_ratio", "exposed_comm_time"] {
        assert!(rank["summary"].get(figure).is_some_and(serde_json::Value::is_null), "{figure}: {rank}");
    }
    assert!(rank["summary"]["by_op"]["all_reduce"]["exposed_time"].is_null());
    for figure in ["comm_ms", "exposed_ms", "compute_ms", "overlap_ms", "idle_ms", "span_ms"] {
        assert!(rank["wall"].get(figure).is_some_and(serde_json::Value::is_null), "{figure}: {rank}");
    }
    let event = &object["hotspot_events"][0];
    assert_eq!((&event["collective"], &event["total_comm_ms"]), (&"all_reduce".into(), &3.0.into()));
    assert!(event["exposed_comm_ms"].is_null() && event["overlap_ratio"].is_null());
    // Nothing can be said of what to tune.
    assert!(object["hotspots"]["priority"].is_null());
    assert_eq!(object["followup"]["decision"], "collect_more_evidence");
    assert_eq!(serde_json::from_value::<Report>(object.clone())?.ranks, report.ranks);

    let page = text(&report, &TextOptions::default());
    assert!(page.contains("unknown: the input says how long"), "{page}");
    assert!(!page.contains("NaN"));
    Ok(())
}

#[test]
fn bandwidths_per_communicator() -> Result {
    let report = report(&[data("inspector.log")])?;
    let facts = report.inputs[0].inspector.as_ref().ok_or("no facts")?;
    assert_eq!(facts.format_version.as_deref(), Some("v4.0"));
    assert_eq!(
        (facts.timing_sources["kernel_gpu"], facts.timing_sources["kernel_cpu"], facts.positions),
        (3, 1, false)
    );
    let [world, pair] = facts.communicators.as_slice() else { panic!("{facts:?}") };
    assert_eq!((world.nranks, world.comm_rank, world.host.as_str(), world.pid), (4, 2, "node-a", 500));
    assert_eq!((pair.nranks, pair.comm_rank, pair.name.as_deref()), (2, 0, Some("TP group 1")));
    let all_reduce = &world.by_op["all_reduce"];
    // 16 MB in 3 ms, times 2 * 3 / 4.
    assert!((all_reduce.algbw_gbs.ok_or("algbw")? - 16.0 / 3.0).abs() < 1e-9);
    assert!((all_reduce.busbw_gbs.ok_or("busbw")? - 8.0).abs() < 1e-9);
    assert_eq!((all_reduce.min_busbw_gbs, all_reduce.max_busbw_gbs), (Some(6.0), Some(12.0)));
    assert!((pair.by_op["all_gather"].busbw_gbs.ok_or("busbw")? - 2.0).abs() < 1e-9);
    let page = text(&report, &TextOptions::default());
    assert!(page.contains("TP group 1") && page.contains("8.00 GB/s"), "{page}");
    assert!(page.contains("1 by kernel_cpu"));
    Ok(())
}

#[test]
fn verbose_dumps_give_positions() -> Result {
    let report = report(&[data("inspector_verbose_0.log"), data("inspector_verbose_1.log")])?;
    let ranks: Vec<_> = report.ranks.iter().map(|rank| (rank.rank, rank.summary.exposed_comm_time)).collect();
    assert_eq!(ranks, [(0, Some(1.5)), (1, Some(1.2))]);
    // From the first kernel of the first operation, at 0, to the end of the last, 2.0 + 0.5 ms.
    assert_eq!(report.ranks[0].wall.map(|wall| (wall.comm_ms, wall.span_ms)), Some((1.5, 2.5)));
    // One host, one clock: rank 0 waits 0.3 ms for rank 1 in the first of the two.
    let across = report.cross_rank.as_ref().ok_or("not matched")?;
    assert_eq!((across.ops[0].matched, across.ops[0].wait_ms), (2, 0.15));
    assert!(
        report.warnings.iter().any(|warning| warning.contains("records no compute")),
        "{:?}",
        report.warnings
    );
    Ok(())
}

#[test]
fn a_torn_last_line_is_said() -> Result {
    let whole = std::fs::read(data("inspector.log"))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("node-a-pid500.log");
    std::fs::write(&path, &whole[..whole.len() - 40])?;
    let report = report(&[path])?;
    assert_eq!(report.ranks[0].summary.num_comm_events, 3);
    assert_eq!(report.inputs[0].anomalies["truncated"], 1);
    assert!(
        report.warnings.iter().any(|warning| warning.contains("within the record at byte")),
        "{:?}",
        report.warnings
    );
    Ok(())
}

#[test]
fn a_record_over_several_lines_and_one_torn_in_the_middle() -> Result {
    let whole = std::fs::read_to_string(data("inspector.log"))?;
    let lines: Vec<&str> = whole.lines().collect();
    let indented = serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(lines[0])?)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("dump");
    std::fs::write(&path, format!("{indented}\n{}\n{}\nnoise\n", &lines[1][..300], lines[2]))?;
    let report = report(&[path])?;
    assert_eq!(report.ranks[0].summary.num_comm_events, 2);
    assert_eq!((report.inputs[0].skipped["torn"], report.inputs[0].skipped["malformed"]), (1, 1));
    Ok(())
}

#[test]
fn dumps_that_claim_the_same_rank_are_told_apart() -> Result {
    let line = |pid: u32, comm: &str| {
        format!(
            "{{\"header\":{{\"id\":\"{comm}\",\"rank\":0,\"n_ranks\":2,\"nnodes\":1}},\"metadata\":{{\"hostname\":\"h\",\
             \"pid\":{pid}}},\"coll_perf\":{{\"coll\":\"AllReduce\",\"coll_sn\":1,\"coll_msg_size_bytes\":8192,\
             \"coll_exec_time_us\":10}}}}\n"
        )
    };
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("h-pid1.log"), line(1, "0xa"))?;
    std::fs::write(folder.path().join("h-pid2.log"), line(2, "0xb"))?;
    let apart = report(&[folder.path().to_owned()])?;
    let ranks: Vec<_> = apart.ranks.iter().map(|rank| (rank.rank, rank.summary.num_comm_events)).collect();
    assert_eq!(ranks, [(0, 1), (1, 1)]);
    assert!(
        apart.warnings.iter().any(|warning| warning.contains("largest communicator")),
        "{:?}",
        apart.warnings
    );

    let one = folder.path().join("both.log");
    std::fs::write(&one, line(1, "0xa") + &line(2, "0xb"))?;
    let both = report(&[one])?;
    assert_eq!(both.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1]);
    Ok(())
}

#[test]
fn a_rank_in_a_dump_and_in_a_trace_is_said() -> Result {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("trace.json");
    std::fs::write(
        &trace,
        r#"{"ranks": [{"rank": 0, "device": 0, "compute": [], "comm": [
        {"op": "all_reduce", "start": 0, "end": 1, "bytes": 8}]}]}"#,
    )?;
    let both = report(&[trace.clone(), data("inspector_verbose_0.log")])?;
    assert!(both.warnings.iter().any(|warning| warning.contains("counted for both")), "{:?}", both.warnings);
    let apart = report(&[trace, data("inspector_verbose_1.log")])?;
    assert!(
        !apart.warnings.iter().any(|warning| warning.contains("counted for both")),
        "{:?}",
        apart.warnings
    );
    Ok(())
}

#[test]
fn plugins_made_after_it_name_no_communicator_and_an_algorithm() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("dump.jsonl");
    std::fs::write(
        &path,
        "{\"header\":{\"rank\":1,\"n_ranks\":8},\"coll_perf\":{\"coll\":\"AllReduce\",\"coll_sn\":10,\
         \"coll_msg_size_bytes\":4194304,\"coll_algo\":\"Ring\",\"coll_proto\":\"Simple\",\
         \"coll_exec_time_us\":150.25,\"event_trace_ts\":{\"kernel_events\":[{\"channel_id\":0,\
         \"kernel_start_ts\":123456,\"kernel_stop_ts\":128006}]}}}\n",
    )?;
    let timeline = read(&[path], &ReadOptions::default())?;
    let comm = timeline.tracks[0].comm.get(0).ok_or("no call")?;
    assert_eq!((timeline.tracks[0].rank, comm.comm), (1, None));
    assert_eq!((comm.start_ns, comm.end_ns), (123_456_000, 123_606_250));
    let name = |sym: Option<_>| sym.map(|sym| timeline.names.get(sym));
    assert_eq!((name(comm.algorithm), name(comm.protocol)), (Some("ring"), Some("simple")));
    Ok(())
}

#[test]
fn odd_records_are_counted() -> Result {
    let header = "\"header\":{\"id\":\"0x1\",\"rank\":0,\"n_ranks\":2}";
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("dump");
    let records = [
        format!(
            "{{{header},\"coll_perf\":{{\"coll\":\"AllReduce\",\"coll_exec_time_us\":5,\"coll_busbw_gbs\":\"nan\"}}}}"
        ),
        format!("{{{header},\"coll_perf\":{{\"coll\":\"AllReduce\"}}}}"),
        format!("{{{header}}}"),
        format!(
            "{{{},\"coll_perf\":{{\"coll\":\"AllReduce\",\"coll_exec_time_us\":5}}}}",
            header.replace(":0,", ":9,")
        ),
        format!("{{{header},\"coll_perf\":{{\"coll\":\"AllReduce\",\"coll_exec_time_us\":-5}}}}"),
    ];
    std::fs::write(&path, records.join("\n"))?;
    let report = report(&[path])?;
    let skipped: Vec<_> =
        report.inputs[0].skipped.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(report.ranks[0].summary.num_comm_events, 1);
    assert_eq!(skipped, [("no_duration", 2), ("no_operation", 1), ("bad_rank", 1)]);
    assert_eq!(report.ranks[0].summary.by_op["all_reduce"].bytes, None);
    Ok(())
}
