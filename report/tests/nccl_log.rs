//! Debug logs of NCCL: prefixes of launchers, several processes, numeric and textual choices.

use commtrace_report::analyze::{AnalyzeOptions, Report, analyze};
use commtrace_report::nccl::{Evidence, NcclLog, Selection};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::render::{TextOptions, json, text};
use commtrace_report::timeline::Timeline;
use std::path::{Path, PathBuf};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nccl").join(name)
}

fn timeline(name: &str) -> Result<Timeline> {
    Ok(read(&[data(name)], &ReadOptions::default())?)
}

fn log(name: &str) -> Result<NcclLog> {
    let timeline = timeline(name)?;
    let [input] = timeline.inputs.as_slice() else { return Err("one input was expected".into()) };
    assert_eq!(input.format, "nccl-log");
    Ok(input.nccl_log.as_deref().cloned().ok_or("the input has no log")?)
}

fn report(timeline: &Timeline) -> Report {
    analyze(timeline, &AnalyzeOptions::default())
}

fn ring(protocol: &'static str) -> Evidence<'static> {
    Evidence::Observed(Selection { algorithm: "ring", protocol: Some(protocol) })
}

#[test]
fn mpirun_and_the_numeric_form() -> Result {
    let log = log("log_2_21_mpirun.txt")?;
    assert_eq!(log.versions, ["2.21.5+cuda12.4"]);
    assert_eq!((log.processes, log.networks.as_slice()), (2, &["IB".to_owned()][..]));
    assert_eq!(log.environment["NCCL_IB_HCA"], "mlx5_0,mlx5_1");

    let [world] = log.communicators.as_slice() else { panic!("{:?}", log.communicators) };
    assert_eq!((world.comm_id.as_deref(), world.nranks), (Some("0x9f1c2d3e4b5a6978"), 2));
    let members: Vec<_> = world
        .members
        .iter()
        .map(|m| (m.rank, m.launcher_rank, m.host.as_str(), m.pid, m.nvml_dev, m.bus_id.as_deref(), m.calls))
        .collect();
    assert_eq!(
        members,
        [
            (0, Some(0), "alpha", 1001, Some(0), Some("7000"), 3),
            (1, Some(1), "beta", 2002, Some(3), Some("c1000"), 2)
        ]
    );
    assert!(world.members.iter().all(|member| member.initialized));
    // Rank 1 never made the third call.
    let behind: Vec<u32> = world.stragglers().iter().map(|member| member.rank).collect();
    assert_eq!(behind, [1]);

    let [net] = log.transports.as_slice() else { panic!("{:?}", log.transports) };
    assert_eq!((net.via.as_str(), net.connections, net.pairs), ("NET/IB/GDRDMA", 4, 2));

    // No line of this version names the operation; the calls before do. 4096 bf16 of each of two ranks
    // are 16384 bytes gathered.
    assert_eq!(log.algorithm_observed("all_reduce", 4_194_304, Some(2)), ring("simple"));
    assert_eq!(log.algorithm_observed("all_gather", 16_384, None), ring("ll"));
    let tree = Selection { algorithm: "tree", protocol: Some("ll128") };
    assert_eq!(log.algorithm_observed("all_reduce", 1024, None), Evidence::Observed(tree));
    assert_eq!(log.algorithm_observed("all_reduce", 2048, None), Evidence::Unconfirmed);
    assert_eq!(log.algorithm_observed("all_reduce", 4_194_304, Some(4)), Evidence::Unconfirmed);
    assert_eq!(log.algorithm_observed("broadcast", 1024, None), Evidence::Unconfirmed);
    Ok(())
}

#[test]
fn torchrun_the_textual_form_splits_and_warnings() -> Result {
    let log = log("log_2_28_torchrun.txt")?;
    assert_eq!(log.versions, ["2.28.3+cuda13.0"]);
    let communicators: Vec<_> =
        log.communicators.iter().map(|c| (c.comm_id.as_deref(), c.nranks, c.members.len())).collect();
    assert_eq!(communicators, [(Some("0x1111111111111111"), 2, 2), (None, 2, 2)]);
    assert!(log.communicators[0].members.iter().all(|member| member.initialized));
    assert!(log.communicators[1].members.iter().all(|member| !member.initialized));

    let nvls = Selection { algorithm: "nvls", protocol: Some("simple") };
    assert_eq!(log.algorithm_observed("all_reduce", 1_048_576, Some(2)), Evidence::Observed(nvls));
    // The line has one rank's share, 8192; the payload is both.
    assert_eq!(log.algorithm_observed("reduce_scatter", 16_384, Some(2)), ring("ll"));
    assert_eq!(log.algorithm_observed("reduce_scatter", 8192, Some(2)), Evidence::Unconfirmed);
    let symmetric = Selection { algorithm: "symmetric", protocol: Some("ll") };
    assert_eq!(log.algorithm_observed("all_reduce", 2048, Some(2)), Evidence::Observed(symmetric));
    let channels: Vec<_> = log.algorithms.iter().map(|choice| choice.channels).collect();
    assert_eq!(channels, [Some(16), Some(2), Some(1)]);

    let [warning] = log.warnings.as_slice() else { panic!("{:?}", log.warnings) };
    assert_eq!((log.warning_count, warning.count, warning.host.as_str()), (2, 2, "gpu-7"));
    assert!(warning.message.contains("port error"));
    assert_eq!(warning.source.as_deref(), Some("transport/net_ib.cc:94 (ncclIbAsyncThreadMain)"));
    Ok(())
}

#[test]
fn old_logs_have_no_communicator_id() -> Result {
    let log = log("log_2_8.txt")?;
    let [world] = log.communicators.as_slice() else { panic!("{:?}", log.communicators) };
    assert_eq!((world.comm_id.as_ref(), world.members.len()), (None, 2));
    let via: Vec<&str> = log.transports.iter().map(|transport| transport.via.as_str()).collect();
    assert_eq!(via, ["direct shared memory", "P2P/IPC"]);
    Ok(())
}

#[test]
fn a_log_alone_is_a_report_too() -> Result {
    let report = report(&timeline("log_2_21_mpirun.txt")?);
    let object: serde_json::Value = serde_json::from_str(&json(&report))?;
    assert_eq!(object["ranks"], serde_json::json!([]));
    assert_eq!(object["inputs"][0]["format"], "nccl-log");
    assert_eq!(object["inputs"][0]["nccl_log"]["algorithms"][0]["algorithm"], "ring");
    assert_eq!(object["hotspots"]["priority"], serde_json::Value::Null);
    assert_eq!(serde_json::from_str::<Report>(&json(&report))?.inputs, report.inputs);

    let page = text(&report, &TextOptions::default());
    for words in
        ["NCCL debug log", "2.21.5+cuda12.4", "NET/IB/GDRDMA", "ring", "ll128", "Behind", "rank 1 of"]
    {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
    Ok(())
}

#[test]
fn evidence_reaches_the_collectives_of_traces() -> Result {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("run.timeline.json");
    std::fs::write(
        &trace,
        r#"{"compute": [], "comm": [
            {"op": "all_reduce", "start": 0, "end": 1, "bytes": 4194304},
            {"op": "all_gather", "start": 1, "end": 2, "bytes": 16384},
            {"op": "all_reduce", "start": 2, "end": 3, "bytes": 77}]}"#,
    )?;
    let timeline = read(&[trace, data("log_2_21_mpirun.txt")], &ReadOptions::default())?;
    let chosen: Vec<_> = timeline.tracks[0]
        .comm
        .iter()
        .map(|comm| {
            (comm.algorithm.map(|a| timeline.names.get(a)), comm.protocol.map(|p| timeline.names.get(p)))
        })
        .collect();
    assert_eq!(chosen, [(Some("ring"), Some("simple")), (Some("ring"), Some("ll")), (None, None)]);
    let said = timeline.warnings.iter().any(|w| w.contains("2 observed in the NCCL log, 1 unconfirmed"));
    assert!(said, "{:?}", timeline.warnings);
    // The log adds no interval.
    assert_eq!(report(&timeline).ranks[0].summary.num_comm_events, 3);
    Ok(())
}

#[test]
fn logs_that_disagree_confirm_nothing() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("nccl.log");
    std::fs::write(
        &path,
        "h:1:2 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n\
         h:1:2 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}\n\
         h:1:2 [0] NCCL INFO AllGather: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n",
    )?;
    let timeline = read(&[path], &ReadOptions::default())?;
    let log = timeline.inputs[0].nccl_log.as_ref().ok_or("no log")?;
    assert_eq!(log.algorithm_observed("all_reduce", 4096, None), Evidence::Unconfirmed);
    // How many ranks gather is not known, so neither is the payload.
    assert_eq!((log.algorithms[2].bytes, log.algorithms[2].logged_bytes), (None, 4096));
    Ok(())
}

#[test]
fn other_text_is_not_a_log() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("train.log");
    std::fs::write(&path, "epoch 1 loss 0.5\nusing the NCCL backend\n".repeat(1000))?;
    let error = read(&[path], &ReadOptions::default()).err().ok_or("it was read")?.to_string();
    assert!(error.contains("train.log"), "{error}");
    Ok(())
}
