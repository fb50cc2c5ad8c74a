//! What exports of Nsight Systems tell: kernels, NCCL's ranges and payloads, steps, graphs, copies; with and
//! without each table and column.

mod nsys_database;

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::ReadOptions;
use commtrace_report::timeline::{MatchKind, Timeline};
use nsys_database::*;

const PID: i64 = 144;
const MAIN: i64 = 1 << 48 | PID << 24 | PID;
const COMM: u64 = 0xabc0_0000_0000_0def;
const NAME: Option<&str> = Some("0xabc0000000000def");

#[test]
fn kernels_alone() {
    let export = Export::new();
    export.kernel(PID, 0, GEMM, (100, 200), 1);
    export.kernel(PID, 0, ALL_REDUCE, (150, 260), 2);
    let timeline = export.read();
    assert_eq!(places(&timeline), [(0, Some(0))]);
    let report = analyze(&timeline, &AnalyzeOptions::default());
    assert_eq!(report.ranks[0].summary.total_comm_time, 110e-6);
    assert_eq!(report.ranks[0].summary.exposed_comm_time, Some(60e-6));
    let track = &timeline.tracks[0];
    assert_eq!(told(&timeline, track), [("all_reduce", None, None, None, None)]);
    let comm = track.comm.get(0).unwrap();
    let text = |sym| timeline.names.get(sym);
    assert_eq!(comm.stream.map(text), Some("7"));
    assert_eq!((comm.algorithm.map(text), comm.protocol.map(text)), (Some("ring"), Some("ll")));
    assert_eq!(comm.dtype.map(text), Some("f32"));
    assert_eq!(text(track.compute.get(0).unwrap().name), GEMM);
    assert_eq!((comm.start_ns, comm.end_ns, comm.step), (150, 260, None));
    assert_no_warning(&timeline);

    let input = &timeline.inputs[0];
    assert_eq!((input.format.as_str(), input.events), ("nsys-sqlite", 2));
    let rules: Vec<_> =
        input.rules.iter().map(|rule| (rule.rule.as_str(), rule.kind, rule.time_ns)).collect();
    assert_eq!(rules, [("other kernels", MatchKind::Compute, 100), ("NCCL kernel", MatchKind::Comm, 110)]);
}

#[test]
fn schemas_with_little_in_them() {
    let kernels = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL";
    for (schema, device, stream) in [
        (
            format!(
                "{kernels} (start, end, demangledName TEXT);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 5, '{GEMM}'), (6, 9, '{ALL_REDUCE}')"
            ),
            None,
            None,
        ),
        (
            format!(
                "{kernels} (start, end, shortName TEXT, deviceId, streamId);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 5, '{GEMM}', 1, 7),
                (6, 9, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL', 1, 7)"
            ),
            Some(1),
            Some("7"),
        ),
        // Numbers as text, names only in the table of strings, some rows without the full name.
        (
            format!(
                "CREATE TABLE StringIds (id, value);
            INSERT INTO StringIds VALUES (1, '{GEMM}'), (2, '{ALL_REDUCE}');
            {kernels} (start TEXT, end TEXT, demangledName INTEGER, shortName INTEGER, deviceId TEXT);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('1', '5', NULL, 1, '0'), ('6', ' 9 ', 0, 2, '0')"
            ),
            Some(0),
            None,
        ),
        (
            format!(
                "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            INSERT INTO StringIds VALUES (1, '{GEMM}'), (2, '{ALL_REDUCE}');
            {kernels} (start, end, mangledName, deviceId);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1.0, 5.0, 1, 0), (6, 9, 2, -1)"
            ),
            Some(0),
            None,
        ),
    ] {
        let export = Export::with_schema(&schema);
        let timeline = export.read();
        let mut totals = (0, 0);
        for track in &timeline.tracks {
            totals = (totals.0 + track.compute.len(), totals.1 + track.comm.len());
            assert_eq!(track.rank, 0);
        }
        assert_eq!(totals, (1, 1), "{schema}");
        let of_compute = timeline.tracks.iter().find(|track| !track.compute.is_empty()).unwrap();
        assert_eq!(of_compute.device, device, "{schema}");
        let comm = timeline.tracks.iter().find_map(|track| track.comm.get(0)).unwrap();
        assert_eq!(timeline.names.get(comm.op), "all_reduce");
        assert_eq!(comm.stream.map(|sym| timeline.names.get(sym)), stream, "{schema}");
    }
}

#[test]
fn a_name_that_is_not_there_is_not_made_up() {
    let export = Export::new();
    export.kernel(PID, 0, GEMM, (1, 2), 1);
    export.sql("DELETE FROM StringIds");
    let timeline = export.read();
    let name = timeline.tracks[0].compute.get(0).unwrap().name;
    assert_eq!(timeline.names.get(name), "unnamed");
    let without = Export::new();
    without.kernel(PID, 0, GEMM, (1, 2), 1);
    without.sql("DROP TABLE StringIds");
    assert_eq!(without.read().tracks[0].compute.len(), 1);
}

#[test]
fn payloads_of_calls_that_launch_by_themselves() {
    let export = Export::new();
    export.comm(MAIN, 1, COMM, (1, 4), 0);
    for (at, name, words) in [
        (100, "ncclAllReduce", [COMM, 4096, 0]),
        (200, "ncclAllGather", [COMM, 100, 0]),
        (300, "ncclAllReduce", [COMM, 64, 0]),
    ] {
        export.nccl(MAIN, name, (at, at + 50), Some((2, &words)));
        export.launch(MAIN, at + 10, at);
        let kernel = if name == "ncclAllGather" { ALL_GATHER } else { ALL_REDUCE };
        export.kernel(PID, 0, kernel, (at + 1000, at + 1020), at);
    }
    // Launched outside of any call.
    export.launch(MAIN, 400, 400);
    export.kernel(PID, 0, ALL_REDUCE, (1400, 1420), 400);
    let timeline = export.read();
    assert_eq!(
        told(&timeline, &timeline.tracks[0]),
        [
            ("all_reduce", Some(4096), NAME, Some(0), None),
            // NCCL records one rank's share.
            ("all_gather", Some(400), NAME, Some(1), None),
            ("all_reduce", Some(64), NAME, Some(2), None),
            ("all_reduce", None, None, None, None),
        ]
    );
    let comm = timeline.tracks[0].comm.get(0).unwrap();
    assert_eq!((comm.comm_size, comm.comm_rank), (Some(4), Some(1)));
    assert_eq!(timeline.tracks[0].rank, 1);
    assert_eq!(timeline.world_size, Some(4));
}

#[test]
fn without_the_communicator_s_beginning_there_are_no_numbers() {
    let export = Export::new();
    export.nccl(MAIN, "ncclAllGather", (100, 150), Some((2, &[COMM, 100, 0])));
    export.launch(MAIN, 110, 1);
    export.kernel(PID, 0, ALL_GATHER, (1000, 1020), 1);
    let timeline = export.read();
    // Nor is the number of ranks known, from which the payload follows.
    assert_eq!(told(&timeline, &timeline.tracks[0]), [("all_gather", None, NAME, None, None)]);
    // A communicator that is only seen to end tells its size, not how many calls there were before.
    export.nccl(MAIN, "ncclCommDestroy", (900, 901), Some((1, &[COMM, 4, 0])));
    let timeline = export.read();
    assert_eq!(told(&timeline, &timeline.tracks[0]), [("all_gather", Some(400), NAME, None, None)]);
}

#[test]
fn groups_launch_at_their_end() {
    let export = Export::new();
    let group = |at: i64, calls: &[(&str, u64, u64)], launches: i64, kernel: &str| {
        export.nccl(MAIN, "ncclGroupStart", (at, at + 1), None);
        for (&(name, bytes, peer), start) in calls.iter().zip(at + 2..) {
            export.nccl(MAIN, name, (start, start + 1), Some((2, &[COMM, bytes, peer])));
        }
        export.nccl(MAIN, "ncclGroupEnd", (at + 50, at + 90), None);
        for launch in 0..launches {
            export.launch(MAIN, at + 60 + launch, at + launch);
            export.kernel(PID, 0, kernel, (at + launch * 10, at + launch * 10 + 5), at + launch);
        }
    };
    group(100, &[("ncclSend", 10, 1), ("ncclRecv", 20, 1), ("ncclSend", 30, 1)], 1, SEND_RECV);
    group(200, &[("ncclSend", 10, 1), ("ncclSend", 30, 2)], 1, SEND_RECV);
    group(300, &[("ncclRecv", 10, 3)], 1, SEND_RECV);
    group(400, &[("ncclAllReduce", 10, 0), ("ncclAllReduce", 20, 0)], 1, ALL_REDUCE);
    group(500, &[("ncclAllReduce", 10, 0), ("ncclAllReduce", 20, 0)], 2, ALL_REDUCE);
    // Three calls in two kernels: which does which is not known.
    group(600, &[("ncclAllReduce", 1, 0), ("ncclAllReduce", 2, 0), ("ncclAllReduce", 3, 0)], 2, ALL_REDUCE);
    group(700, &[("ncclAllReduce", 1, 0), ("ncclAllGather", 2, 0)], 1, "ncclDevKernel_Generic(x)");
    group(800, &[("ncclBroadcast", 64, 0)], 1, "ncclDevKernel_Generic(x)");
    let timeline = export.read();
    let expected = [
        ("send_recv", Some(40), NAME, None, Some(1)),
        ("send", Some(40), NAME, None, None),
        ("recv", Some(10), NAME, None, Some(3)),
        ("all_reduce", Some(30), NAME, None, None),
        ("all_reduce", Some(10), NAME, None, None),
        ("all_reduce", Some(20), NAME, None, None),
        ("all_reduce", None, NAME, None, None),
        ("all_reduce", None, NAME, None, None),
        ("unknown", None, NAME, None, None),
        ("broadcast", Some(64), NAME, None, None),
    ];
    assert_eq!(told(&timeline, &timeline.tracks[0]), expected);
}

#[test]
fn calls_of_another_thread_or_another_op_are_not_taken() {
    let export = Export::new();
    let other = thread(PID, 99);
    export.nccl(other, "ncclAllReduce", (100, 200), Some((2, &[COMM, 4096, 0])));
    export.launch(MAIN, 150, 1);
    export.kernel(PID, 0, ALL_REDUCE, (1000, 1020), 1);
    export.nccl(MAIN, "ncclAllReduce", (300, 400), Some((2, &[COMM, 4096, 0])));
    export.launch(MAIN, 350, 2);
    export.kernel(PID, 0, ALL_GATHER, (1100, 1120), 2);
    // The same correlation in another process.
    export.launch(thread(7, 7), 350, 3);
    export.kernel(PID, 0, ALL_REDUCE, (1200, 1220), 3);
    let timeline = export.read();
    assert_eq!(
        told(&timeline, &timeline.tracks[0]),
        [
            ("all_reduce", None, None, None, None),
            ("all_gather", None, None, None, None),
            ("all_reduce", None, None, None, None),
        ]
    );
}

#[test]
fn sends_and_receives_within_pytorch_s_all_to_all() {
    let export = Export::new();
    for (at, name, second) in
        [(100, "nccl:all_to_all, op_id = 4", 10), (200, "nccl:all_to_all", 30), (300, "x", 10)]
    {
        export.range(MAIN, name, (at, at + 90));
        export.nccl(MAIN, "ncclGroupStart", (at + 1, at + 2), None);
        for (name, bytes, peer, start) in [
            ("ncclSend", 10, 0, 3),
            ("ncclRecv", 10, 0, 4),
            ("ncclSend", second, 1, 5),
            ("ncclRecv", 10, 1, 6),
        ] {
            export.nccl(MAIN, name, (at + start, at + start + 1), Some((2, &[COMM, bytes, peer])));
        }
        export.nccl(MAIN, "ncclGroupEnd", (at + 10, at + 80), None);
        export.launch(MAIN, at + 20, at);
        export.kernel(PID, 0, SEND_RECV, (at + 1000, at + 1010), at);
    }
    let timeline = export.read();
    assert_eq!(
        told(&timeline, &timeline.tracks[0]),
        [
            ("all_to_all", Some(20), NAME, None, None),
            ("all_to_all_v", Some(40), NAME, None, None),
            ("send_recv", Some(20), NAME, None, None),
        ]
    );
}

#[test]
fn payloads_as_text() {
    let export = Export::new();
    let json = format!(r#"{{"NCCL communicator ID": {COMM}, "Message size [bytes]": 77}}"#);
    for at in [100, 200] {
        export.nccl(MAIN, "ncclAllReduce", (at, at + 50), None);
        export.launch(MAIN, at + 10, at);
        export.kernel(PID, 0, ALL_REDUCE, (at + 1000, at + 1020), at);
    }
    export.sql(&format!("UPDATE NVTX_EVENTS SET jsonText = '{json}' WHERE start = 100"));
    export.sql(&format!("INSERT INTO StringIds VALUES (1000, '{json}')"));
    export.sql("UPDATE NVTX_EVENTS SET jsonTextId = 1000 WHERE start = 200");
    let timeline = export.read();
    let one = ("all_reduce", Some(77), NAME, None, None);
    assert_eq!(told(&timeline, &timeline.tracks[0]), [one, one]);
}

#[test]
fn a_payload_that_cannot_be_decoded_is_counted() {
    let export = Export::new();
    export.nccl(MAIN, "ncclAllReduce", (100, 150), Some((99, &[COMM, 4096, 0])));
    export.kernel(PID, 0, ALL_REDUCE, (1000, 1020), 1);
    let timeline = export.read();
    assert_eq!(timeline.inputs[0].anomalies.get("undecoded_payload"), Some(&1));
}

/// Steps of the first track: those of its compute, and the list with start and end.
type Steps = (Vec<Option<i64>>, Vec<(i64, i64, i64)>);

fn steps(timeline: &Timeline) -> Steps {
    let track = &timeline.tracks[0];
    let of_work = track.compute.iter().map(|interval| interval.step).collect();
    (of_work, track.steps.iter().map(|step| (step.step, step.start_ns, step.end_ns)).collect())
}

#[test]
fn work_belongs_to_the_step_that_launched_it() {
    let export = Export::new();
    let autograd = thread(PID, 99);
    export.range(MAIN, "step 4", (100, 200));
    export.range(MAIN, "step 5", (200, 300));
    export.range(MAIN, "iteration 7", (110, 120));
    export.range(thread(7, 7), "step 9", (100, 900));
    for (index, (thread, launched)) in
        [(MAIN, 115), (MAIN, 199), (autograd, 201), (MAIN, 350), (thread(7, 7), 150)].into_iter().enumerate()
    {
        let correlation = index as i64 + 1;
        export.launch(thread, launched, correlation);
        let pid = if index == 4 { 7 } else { PID };
        // All of it runs long after the steps.
        export.kernel(pid, 0, GEMM, (1000 + correlation * 10, 1005 + correlation * 10), correlation);
    }
    // Not launched by any call that was recorded.
    export.kernel(PID, 0, GEMM, (2000, 2001), 77);
    let timeline = export.read();
    let of_main = timeline.tracks.iter().position(|track| track.steps.len() == 2).unwrap();
    let mut timeline = timeline;
    timeline.tracks.swap(0, of_main);
    let (of_work, listed) = steps(&timeline);
    assert_eq!(of_work, [Some(4), Some(4), Some(5), None, None]);
    assert_eq!(listed, [(4, 100, 200), (5, 200, 300)]);
    assert_eq!(timeline.tracks[1].compute.get(0).unwrap().step, Some(9));
    assert_eq!(timeline.inputs[0].skipped.get("nested_step"), Some(&1));
    assert_eq!(timeline.inputs[0].anomalies.get("no_launch"), Some(&1));
    assert_warns(&timeline, "for 1 of 6 kernels no call that launched them was recorded");
}

#[test]
fn a_step_of_the_launching_thread_comes_first() {
    let export = Export::new();
    let other = thread(PID, 99);
    export.range(MAIN, "step 1", (100, 200));
    export.range(other, "step 2", (110, 190));
    for (thread, correlation) in [(MAIN, 1), (other, 2), (thread(PID, 5), 3)] {
        export.launch(thread, 150, correlation);
        export.kernel(PID, 0, GEMM, (correlation * 1000, correlation * 1000 + 1), correlation);
    }
    assert_eq!(steps(&export.read()).0, [Some(1), Some(2), Some(2)]);
}

#[test]
fn steps_by_a_pattern() {
    let export = Export::new();
    export.range(MAIN, "train_batch", (100, 200));
    export.range(MAIN, "train_batch", (200, 300));
    export.range(MAIN, "mb 8", (120, 130));
    export.launch(MAIN, 250, 1);
    export.kernel(PID, 0, GEMM, (1000, 1010), 1);
    assert_eq!(steps(&export.read()), (vec![None], vec![]));
    let with = |pattern: &str| {
        let options = ReadOptions { step_pattern: Some(pattern.to_owned()), ..ReadOptions::default() };
        steps(&export.read_with(&options))
    };
    assert_eq!(with("^train_"), (vec![Some(1)], vec![(0, 100, 200), (1, 200, 300)]));
    assert_eq!(with(r"mb (\d+)"), (vec![None], vec![(8, 120, 130)]));
    let options = ReadOptions { step_pattern: Some("(".into()), ..ReadOptions::default() };
    let error = commtrace_report::read::read(std::slice::from_ref(&export.path), &options).unwrap_err();
    assert!(error.to_string().contains("not a regular expression"), "{error}");
}

#[test]
fn ranges_that_are_none() {
    let export = Export::new();
    export.kernel(PID, 0, GEMM, (1000, 1010), 1);
    export.range(MAIN, "step 1", (100, 200));
    export.sql("UPDATE NVTX_EVENTS SET end = NULL");
    export.range(MAIN, "step 2", (100, 200));
    // A mark.
    export.sql("UPDATE NVTX_EVENTS SET eventType = 34 WHERE text = 'step 2'");
    export.range(MAIN, "step 3", (300, 400));
    export.sql("UPDATE NVTX_EVENTS SET eventType = 60 WHERE text = 'step 3'");
    export.range(MAIN, "forward", (300, 400));
    let timeline = export.read();
    assert_eq!(steps(&timeline).1, [(3, 300, 400)]);
    let skipped = &timeline.inputs[0].skipped;
    assert_eq!((skipped.get("open_range"), skipped.get("annotation")), (Some(&1), Some(&2)));
}

#[test]
fn kernels_of_cuda_graphs() {
    let export = Export::new();
    export.sql(
        "CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, end INTEGER, globalTid INTEGER, graphNodeId INTEGER,
             originalGraphNodeId INTEGER)",
    );
    export.comm(MAIN, 1, COMM, (0, 2), 0);
    export.nccl(MAIN, "ncclAllReduce", (100, 150), Some((2, &[COMM, 4096, 0])));
    // Node 20 was captured in the call; 30 is its copy in the graph that runs.
    export.sql(&format!(
        "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (110, 111, {MAIN}, 20, NULL), (500, 501, {MAIN}, 30, 20)"
    ));
    export.range(MAIN, "step 0", (900, 1000));
    export.range(MAIN, "step 1", (1900, 2000));
    for (at, correlation) in [(950, 1), (1950, 2)] {
        export.launch(MAIN, at, correlation);
        export.graph_kernel(PID, 0, ALL_REDUCE, (at + 50, at + 90), correlation, Some(30));
        export.graph_kernel(PID, 0, GEMM, (at + 60, at + 80), correlation, Some(31));
    }
    let timeline = export.read();
    let track = &timeline.tracks[0];
    // Every run is of the step that launched the graph; the call has a number, its repetitions have none.
    assert_eq!(told(&timeline, track), [("all_reduce", Some(4096), NAME, None, None); 2]);
    assert_eq!(track.comm.iter().map(|comm| comm.step).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!(steps(&timeline).0, [Some(0), Some(1)]);

    // Without the table of nodes, the kernels are counted all the same.
    export.sql("DROP TABLE CUDA_GRAPH_NODE_EVENTS");
    let timeline = export.read();
    assert_eq!(told(&timeline, &timeline.tracks[0]), [("all_reduce", None, None, None, None); 2]);
}

#[test]
fn graphs_as_wholes_are_said() {
    let export = Export::new();
    export.kernel(PID, 0, GEMM, (1000, 1010), 1);
    export.sql(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (0, 2000000, 0), (3000000, 3500000, 0)",
    );
    let timeline = export.read();
    assert_warns(&timeline, "2 executions of CUDA graphs (2.5 ms) were traced as wholes");
    assert_eq!(timeline.inputs[0].skipped.get("graph_as_a_whole"), Some(&2));
    export.sql("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL");
    assert!(export.error().contains("--cuda-graph-trace=node"), "{}", export.error());
}

#[test]
fn copies_are_neither_unless_wanted() {
    let export = Export::new();
    export.kernel(PID, 0, ALL_REDUCE, (100, 200), 1);
    export.sql(&format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (100, 150, 0, 7, 2, {0}, 64, 1), (0, 10, 0, 7, 3, {0}, 64, 99);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (160, 170, 0, 7, 4, {0})",
        process(PID)
    ));
    let timeline = export.read();
    assert!(timeline.tracks[0].compute.is_empty());
    let skipped = &timeline.inputs[0].skipped;
    assert_eq!((skipped.get("memcpy"), skipped.get("memset")), (Some(&2), Some(&1)));
    let neither = timeline.inputs[0].rules.iter().filter(|rule| rule.kind == MatchKind::Neither);
    assert_eq!(neither.map(|rule| rule.time_ns).collect::<Vec<_>>(), [60, 10]);

    let options = ReadOptions { copies_as_compute: true, ..ReadOptions::default() };
    let timeline = export.read_with(&options);
    let names: Vec<_> =
        timeline.tracks[0].compute.iter().map(|interval| timeline.names.get(interval.name)).collect();
    assert_eq!(names, ["memcpy HtoD", "memcpy", "memset"]);
    let report = analyze(&timeline, &AnalyzeOptions::default());
    assert_eq!(report.ranks[0].summary.overlap_time, Some(60e-6));
}

#[test]
fn kernels_by_a_user_s_pattern() {
    let export = Export::new();
    export.kernel(PID, 0, "fused_ar_rmsnorm", (100, 200), 1);
    export.kernel(PID, 0, "void acme::allGatherSlices<float>(float*)", (300, 400), 2);
    let timeline = export.read();
    assert_eq!(timeline.tracks[0].compute.len(), 2);
    assert_warns(&timeline, "although their names suggest communication: void acme::allGatherSlices");
    let options =
        ReadOptions { comm_patterns: vec!["halo=^fused_ar_".parse().unwrap()], ..ReadOptions::default() };
    let timeline = export.read_with(&options);
    assert_eq!(told(&timeline, &timeline.tracks[0]), [("halo", None, None, None, None)]);
}

#[test]
fn times_that_are_odd() {
    let export = Export::new();
    let at = 1_000_000_000_000;
    export.kernel(PID, 0, GEMM, (at, at + 10), 1);
    export.kernel(PID, 0, GEMM, (at, at + 5), 2);
    export.kernel(PID, 0, GEMM, (at + 20, at + 10), 3);
    export.kernel(PID, 0, GEMM, (at + 30, i64::MAX), 4);
    export.kernel(PID, 0, GEMM, (at + 40, at + 50), 5);
    export.sql(
        "CREATE TABLE copy AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL;
        DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; ALTER TABLE copy RENAME TO CUPTI_ACTIVITY_KIND_KERNEL;
        UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = NULL WHERE correlationId = 5",
    );
    let timeline = export.read();
    let input = &timeline.inputs[0];
    assert_eq!(timeline.tracks[0].compute.len(), 3);
    assert_eq!((input.skipped.get("bad_time"), input.skipped.get("implausible_time")), (Some(&1), Some(&1)));
    assert_eq!(input.anomalies.get("end_before_start"), Some(&1));
    assert_eq!(input.anomalies.get("same_time_on_stream"), Some(&1));
}

#[test]
fn times_of_the_session_become_absolute() {
    let export = Export::new();
    let utc = 1_779_782_330_176_752_435;
    export.kernel(PID, 0, GEMM, (100, 200), 1);
    export.sql(&format!("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({utc})"));
    assert_eq!(export.read().tracks[0].compute.starts_ns(), [utc + 100]);
    // Normalized times (`nsys export --ts-normalize`) are so already.
    export.sql(&format!("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = {0}, end = {0} + 1", utc + 100));
    assert_eq!(export.read().tracks[0].compute.starts_ns(), [utc + 100]);
}

#[test]
fn collectives_of_all_ranks_in_one_file_are_matched() {
    let export = Export::new();
    for (rank, pid) in [(0, 10), (1, 11)] {
        let main = thread(pid, pid);
        export.comm(main, 1, COMM, (rank, 2), rank);
        for call in 0..8 {
            let at = 100 + call * 1000;
            export.nccl(main, "ncclAllReduce", (at, at + 50), Some((2, &[COMM, 4096, 0])));
            export.launch(main, at + 10, call + 1);
            // Rank 1 is 300 ns late each time.
            let start = at + 100 + 300 * rank as i64;
            export.kernel(pid, rank as i64, ALL_REDUCE, (start, at + 500), call + 1);
        }
    }
    let timeline = export.read();
    let report = analyze(&timeline, &AnalyzeOptions::default());
    assert_eq!(places(&timeline), [(0, Some(0)), (1, Some(1))]);
    assert_eq!(timeline.tracks[0].clock, timeline.tracks[1].clock);
    let hotspot = report.hotspot_events.iter().find(|event| event.collective == "all_reduce").unwrap();
    assert!(hotspot.rank_imbalance_observed);
    // Of 400 ns, rank 0 waits 300 each time.
    assert_eq!(hotspot.rank_imbalance_ratio, Some(0.75));
}
