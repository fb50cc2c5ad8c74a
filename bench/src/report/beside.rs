//! Tables of nccl-tests beside the records.

use super::curve::{Point, Shape, shape};
use super::group::{Group, Setting};
use crate::record::AlgorithmObserved;
use commtrace_report::nccl::{NcclTests, TestRow, algbw_gbs, busbw_factor};
use serde::{Deserialize, Serialize};

/// One table of nccl-tests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestsTable {
    /// The file.
    pub file: String,
    /// The program, for example `all_reduce_perf`.
    pub program: Option<String>,
    /// The collective; `None` if nothing says.
    pub collective: Option<String>,
    /// Number of ranks; `None` if the table lists no devices.
    pub world_size: Option<u32>,
    /// Element type, as records name it.
    pub dtype: Option<String>,
    /// Names of the devices, without repetition.
    pub devices: Vec<String>,
    /// Version of NCCL.
    pub nccl_version: Option<String>,
    /// The sizes in ascending order, out of place where that was measured.
    pub points: Vec<TestsPoint>,
    /// Sizes that were left out: of no bytes, without a time, or with wrong results.
    pub sizes_left_out: u32,
    /// The latency-bandwidth model of it; `None` if payload or ranks are not known.
    pub shape: Option<Shape>,
    /// Records with the same collective, payload, ranks, element type and GPUs.
    pub beside: Vec<Beside>,
    /// Why nothing stands beside it.
    pub not_compared: Option<String>,
}

/// One size of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TestsPoint {
    /// The size as the table has it.
    pub size_bytes: u64,
    /// Bytes that each rank puts in.
    pub payload_bytes_per_rank: u64,
    /// Mean time in milliseconds.
    pub mean_ms: f64,
    /// Bus bandwidth; `None` for operations without one.
    pub busbw_gbps: Option<f64>,
    /// Whether input and output are one buffer.
    pub in_place: bool,
}

/// A record's row beside a table's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Beside {
    /// The algorithm that was asked for.
    pub algorithm_requested: String,
    /// The run label.
    pub run_label: String,
    /// Bytes that each rank puts in.
    pub payload_bytes_per_rank: u64,
    /// The record's median of the slowest rank in milliseconds.
    pub median_max_rank_ms: f64,
    /// The table's mean in milliseconds.
    pub nccl_tests_mean_ms: f64,
    /// The first over the second.
    pub ratio: f64,
}

/// Element types as nccl-tests names them, and as records do.
const DTYPES: [(&str, &str); 9] = [
    ("float", "float32"),
    ("half", "float16"),
    ("double", "float64"),
    ("bfloat16", "bfloat16"),
    ("int8", "int8"),
    ("uint8", "uint8"),
    ("int32", "int32"),
    ("int64", "int64"),
    ("uint64", "uint64"),
];

pub(super) fn tables(tables: Vec<(String, NcclTests)>, groups: &[Group]) -> Vec<TestsTable> {
    tables.into_iter().map(|(file, tests)| table(file, &tests, groups)).collect()
}

fn table(file: String, tests: &NcclTests, groups: &[Group]) -> TestsTable {
    let world_size = u32::try_from(tests.devices.len()).ok().filter(|ranks| *ranks > 0);
    let mut devices: Vec<String> = tests.devices.iter().map(|device| device.name.clone()).collect();
    devices.sort();
    devices.dedup();
    let mut points: Vec<TestsPoint> =
        tests.rows.iter().filter_map(|row| point(row, tests.op.as_deref()?, world_size)).collect();
    points.sort_by_key(|point| point.payload_bytes_per_rank);
    let dtype = tests.rows.first().map(|row| {
        let known = DTYPES.iter().find(|(theirs, _)| *theirs == row.dtype);
        known.map_or(row.dtype.clone(), |(_, ours)| (*ours).to_owned())
    });
    let mut table = TestsTable {
        file,
        program: tests.program.clone(),
        collective: tests.op.clone(),
        world_size,
        dtype,
        devices,
        nccl_version: tests.nccl_version.clone(),
        sizes_left_out: u32::try_from(tests.rows.len() - points.len()).unwrap_or(u32::MAX),
        shape: (!points.is_empty()).then(|| shape(&mut points.iter().map(as_point).collect::<Vec<_>>())),
        points,
        beside: Vec::new(),
        not_compared: None,
    };
    if tests.cpu_time {
        table.not_compared = Some("its times are those of the host's calls (-C 1)".to_owned());
        return table;
    }
    let like = |group: &&Group| differs(&table, &group.setting).is_none();
    let beside = groups.iter().filter(like).flat_map(|group| beside(&table, group)).collect::<Vec<_>>();
    if beside.is_empty() {
        table.not_compared = Some(why_not(&table, groups));
    }
    table.beside = beside;
    table
}

fn point(row: &TestRow, op: &str, world_size: Option<u32>) -> Option<TestsPoint> {
    let (place, measure) = row.measures().next()?;
    let wrong = measure.wrong.is_some_and(|wrong| wrong != 0.0);
    let ms = measure.time_us / 1e3;
    if wrong || !(1e-9..=1e12).contains(&ms) {
        return None;
    }
    // The size of all_gather is what comes out.
    let payload = if op == "all_gather" { row.bytes.checked_div(u64::from(world_size?))? } else { row.bytes };
    let factor = world_size.and_then(|ranks| busbw_factor(op, ranks));
    (payload > 0).then(|| TestsPoint {
        size_bytes: row.bytes,
        payload_bytes_per_rank: payload,
        mean_ms: ms,
        busbw_gbps: algbw_gbs(row.bytes, ms).zip(factor).map(|(algbw, factor)| algbw * factor),
        in_place: place == commtrace_report::nccl::Place::InPlace,
    })
}

/// For the fit, which looks at the middle alone: a table has no P95.
fn as_point(point: &TestsPoint) -> Point {
    Point {
        payload_bytes_per_rank: point.payload_bytes_per_rank,
        median_max_rank_ms: point.mean_ms,
        p95_max_rank_ms: point.mean_ms,
        effective_payload_gbps: point.payload_bytes_per_rank as f64 / point.mean_ms / 1e6,
        busbw_gbps: point.busbw_gbps,
        fit_ms: None,
        region: None,
        algorithm_observed: AlgorithmObserved::default(),
    }
}

/// In what `setting` is not that of `table`.
fn differs(table: &TestsTable, setting: &Setting) -> Option<String> {
    if setting.backend != "nccl" {
        return Some(format!("records of backend {} were not measured with NCCL", setting.backend));
    }
    if table.world_size != Some(setting.world_size) {
        let ranks = table.world_size.map_or("an unknown number of".to_owned(), |ranks| ranks.to_string());
        return Some(format!("the table is of {ranks} ranks, the records of {}", setting.world_size));
    }
    if table.dtype.as_ref() != Some(&setting.dtype) {
        let dtype = table.dtype.as_deref().unwrap_or("an unknown type");
        return Some(format!("the table is of {dtype}, the records of {}", setting.dtype));
    }
    (table.devices != setting.gpus)
        .then(|| format!("the table is of {}, the records of {}", list(&table.devices), list(&setting.gpus)))
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "unknown devices".to_owned() } else { names.join(", ") }
}

fn beside(table: &TestsTable, group: &Group) -> Vec<Beside> {
    let curves = group.curves.iter().filter(|curve| Some(&curve.collective) == table.collective.as_ref());
    let mut rows = Vec::new();
    for curve in curves {
        for point in &curve.points {
            let same = |theirs: &&TestsPoint| theirs.payload_bytes_per_rank == point.payload_bytes_per_rank;
            let Some(theirs) = table.points.iter().find(same) else { continue };
            rows.push(Beside {
                algorithm_requested: curve.algorithm_requested.clone(),
                run_label: curve.run_label.clone(),
                payload_bytes_per_rank: point.payload_bytes_per_rank,
                median_max_rank_ms: point.median_max_rank_ms,
                nccl_tests_mean_ms: theirs.mean_ms,
                ratio: point.median_max_rank_ms / theirs.mean_ms,
            });
        }
    }
    rows
}

fn why_not(table: &TestsTable, groups: &[Group]) -> String {
    let reasons: Vec<Option<String>> = groups.iter().map(|group| differs(table, &group.setting)).collect();
    if groups.is_empty() {
        "there are no records of collectives".to_owned()
    } else if reasons.contains(&None) {
        "no record has the same collective and payload".to_owned()
    } else {
        let mut reasons: Vec<String> = reasons.into_iter().flatten().collect();
        reasons.dedup();
        reasons.join("; ")
    }
}
