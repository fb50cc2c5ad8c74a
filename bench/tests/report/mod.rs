//! Records made by hand.
#![allow(dead_code, reason = "each test file uses a part of it")]

use commtrace_bench::record::{
    AlgorithmObserved, Artifacts, Comparison, Decision, EvidenceLevel, Experiment, Failure, FailureKind, Gpu,
    Hardware, Host, Metrics, RECORD_SCHEMA_VERSION, Record, Row, Schedule, Verdict, Versions, Workload,
};
use commtrace_bench::report::{BenchReport, Sources, report};
use std::fs;
use std::path::Path;

/// Sizes that chapter 47 starts with, in bytes of float32.
pub const PAYLOADS: [u64; 3] = [1 << 20, 4 << 20, 16 << 20];

/// What makes a record another.
pub type Change = fn(&mut Record);

/// A row of two ranks.
pub fn row(collective: &str, payload: u64, median_ms: f64, p95_ms: f64) -> Row {
    let size = if collective == "all_gather" { 2 * payload } else { payload };
    let algbw = size as f64 / median_ms / 1e6;
    // Factors of 2 ranks, by nccl-tests' PERFORMANCE.md.
    let factor = match collective {
        "all_reduce" | "reduce_scatter_all_gather" | "broadcast" => 1.0,
        _ => 0.5,
    };
    Row {
        collective: collective.to_owned(),
        payload_elements: payload / 4,
        payload_bytes_per_rank: payload,
        size_bytes: size,
        median_max_rank_ms: median_ms,
        p95_max_rank_ms: p95_ms,
        min_max_rank_ms: median_ms * 0.98,
        effective_payload_gbps: Some(payload as f64 / median_ms / 1e6),
        algbw_gbps: Some(algbw),
        busbw_gbps: Some(algbw * factor),
        rank_mean_ms: vec![median_ms, median_ms * 0.99],
        rank_p95_ms: vec![p95_ms, p95_ms],
        ..Row::default()
    }
}

/// Rows of a collective with this startup latency and bandwidth, P95 2 % above the median.
pub fn rows(collective: &str, payloads: &[u64], latency_ms: f64, gbps: f64) -> Vec<Row> {
    payloads
        .iter()
        .map(|&payload| {
            let ms = latency_ms + payload as f64 / (gbps * 1e6);
            row(collective, payload, ms, ms * 1.02)
        })
        .collect()
}

/// A record of two ranks on two GPUs.
pub fn record(algorithm: &str, observed: &[&str], rows: Vec<Row>) -> Record {
    let algorithm_observed = if observed.is_empty() {
        AlgorithmObserved::default()
    } else {
        AlgorithmObserved::Observed(observed.iter().map(|name| (*name).to_owned()).collect())
    };
    let rows =
        rows.into_iter().map(|row| Row { algorithm_observed: algorithm_observed.clone(), ..row }).collect();
    let gpu = |ordinal| Gpu { ordinal, name: "NVIDIA H100 80GB HBM3".to_owned(), ..Gpu::default() };
    Record {
        schema_version: RECORD_SCHEMA_VERSION,
        experiment: Experiment::Collectives,
        started_at: "2026-11-30T08:00:00Z".to_owned(),
        versions: Versions {
            commtrace: "0.1.0".to_owned(),
            library: Some("NCCL 2.28.7".to_owned()),
            cuda_driver: Some("12.8".to_owned()),
        },
        workload: Workload {
            workload_id: "par-nccl-collective-matrix".to_owned(),
            backend: "nccl".to_owned(),
            world_size: 2,
            dtype: "float32".to_owned(),
            payload_elements: PAYLOADS.map(|bytes| bytes / 4).to_vec(),
            warmup: 5,
            repeats: 20,
            compute_dim: None,
            algorithm_requested: algorithm.to_owned(),
            algorithm_observed,
            run_label: "default".to_owned(),
        },
        hardware: Hardware {
            hosts: vec![Host {
                name: "node".to_owned(),
                ranks: vec![0, 1],
                gpus: vec![gpu(0), gpu(1)],
                ..Host::default()
            }],
        },
        metrics: Metrics { rows, comparison: None },
        evidence_level: EvidenceLevel::MeasuredGpu,
        failure: None,
        decision: Decision {
            decision: Verdict::VerifyOverlap,
            reason: "measured".to_owned(),
            next_measurements: vec!["exposed_comm_ms".to_owned()],
        },
        artifacts: Artifacts::default(),
    }
}

/// A record of threads of one process.
pub fn local(rows: Vec<Row>) -> Record {
    let mut record = record("Auto", &[], rows);
    record.workload.backend = "local".to_owned();
    record.versions = Versions { commtrace: "0.1.0".to_owned(), ..Versions::default() };
    record.evidence_level = EvidenceLevel::MeasuredCpu;
    record.hardware.hosts[0].gpus.clear();
    record
}

/// A candidate that failed.
pub fn failed(algorithm: &str, message: &str) -> Record {
    let mut record = record(algorithm, &[], Vec::new());
    record.evidence_level = EvidenceLevel::None;
    record.failure = Some(Failure {
        kind: FailureKind::RankFailed,
        message: message.to_owned(),
        rank: Some(1),
        collective: Some("all_gather".to_owned()),
        payload_bytes_per_rank: Some(4 << 20),
    });
    record.decision.decision = Verdict::InspectFailure;
    record.artifacts.nccl_log = Some(format!("{algorithm}.log"));
    record
}

/// A record of the overlap experiment.
pub fn overlap(serial: (f64, f64), overlapped: (f64, f64), new_tails: &[u32]) -> Record {
    let schedule = |schedule, (median, p95)| {
        let row = row("all_reduce", 8 << 20, median, p95);
        Row { schedule: Some(schedule), algbw_gbps: None, busbw_gbps: None, ..row }
    };
    let rows = vec![schedule(Schedule::Serial, serial), schedule(Schedule::Overlapped, overlapped)];
    let mut record = record("Auto", &["Ring"], rows);
    record.experiment = Experiment::Overlap;
    record.workload.workload_id = "par-overlap-allreduce-matmul".to_owned();
    record.workload.compute_dim = Some(2048);
    let saved_ms = serial.0 - overlapped.0;
    record.metrics.comparison = Some(Comparison {
        saved_ms,
        overlap_gain_ratio: Some(saved_ms / serial.0),
        saved_p95_ms: serial.1 - overlapped.1,
        ranks_with_new_tail: new_tails.to_vec(),
    });
    record
}

/// The report of `records`, each in a file of the name beside it.
pub fn of(records: Vec<(&str, Record)>) -> BenchReport {
    let records = records.into_iter().map(|(file, record)| (file.to_owned(), record)).collect();
    report(Sources { records, ..Sources::default() })
}

pub fn write(folder: &Path, name: &str, record: &Record) {
    fs::write(folder.join(name), serde_json::to_vec_pretty(record).expect("a record is JSON"))
        .expect("a file");
}
