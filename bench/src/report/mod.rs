//! What a folder of records shows: latency region, knee and bandwidth plateau per collective and algorithm, which
//! algorithm was fastest, what overlapping gained, and what to measure next.
//!
//! Records are compared only with those of the same workload on the same hardware: each such [`Group`] stands for
//! itself. What cannot be used is named with the reason, never left out in silence.
//!
//! ```no_run
//! use commtrace_bench::report::{Sources, render, report};
//! let sources = Sources::read(&["results".into()], &[])?;
//! print!("{}", render::text(&report(sources)));
//! # Ok::<(), commtrace_bench::report::SourceError>(())
//! ```

mod beside;
mod check;
mod compare;
mod curve;
mod fit;
mod group;
mod overlap;
mod reading;
pub mod render;
#[cfg(feature = "schema")]
mod schema;
mod source;
mod step;

pub use beside::{Beside, TestsPoint, TestsTable};
pub use compare::{Candidate, Comparison, TwoSteps};
pub use curve::{Basis, Enough, Knee, NEARLY, ONE_LINE_BOUND, Point, Region, Shape};
pub use fit::{Fit, Sample, fit};
pub use group::{Curve, Group, Setting};
pub use overlap::{Conclusion, OverlapFinding, ScheduleFinding};
pub use reading::Reading;
#[cfg(feature = "schema")]
pub use schema::report_schema;
pub use source::{LeftOut, SourceError, Sources};
pub use step::Step;

use crate::record::{Experiment, FailureKind, Record};
use serde::{Deserialize, Serialize};

/// Version of the report's JSON. If you change its keys or their meaning, raise this.
pub const REPORT_SCHEMA_VERSION: u32 = 1;

/// What records show.
///
/// In names that end so, `gbps` is 10^9 bytes per second, as nccl-tests prints it, and `ms` is milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BenchReport {
    /// [`REPORT_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Records of collectives that can be compared with each other, group by group.
    pub groups: Vec<Group>,
    /// Records of the overlap experiment, each for itself.
    pub overlap: Vec<OverlapFinding>,
    /// Candidates that failed. They have no times.
    pub failed: Vec<FailedCandidate>,
    /// Tables of nccl-tests put beside the records.
    pub nccl_tests: Vec<TestsTable>,
    /// Files that could not be used, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// A candidate that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedCandidate {
    /// The record's file.
    pub file: String,
    /// Which experiment it is of.
    pub experiment: Experiment,
    /// What was to carry the collectives.
    pub backend: String,
    /// Number of ranks.
    pub world_size: u32,
    /// Element type.
    pub dtype: String,
    /// The algorithm that was asked for.
    pub algorithm_requested: String,
    /// The run label.
    pub run_label: String,
    /// What kind of failure.
    pub kind: FailureKind,
    /// What went wrong, where, and what to do.
    pub message: String,
    /// The rank that failed, if one did.
    pub rank: Option<u32>,
    /// The collective that was running.
    pub collective: Option<String>,
    /// The payload that was running, in bytes per rank.
    pub payload_bytes_per_rank: Option<u64>,
    /// The logs that were kept.
    pub logs: Vec<String>,
}

/// Reports what `sources` show.
pub fn report(sources: Sources) -> BenchReport {
    let Sources { records, nccl_tests, mut left_out } = sources;
    let mut failed = Vec::new();
    let mut collectives = Vec::new();
    let mut overlap = Vec::new();
    for (file, record) in records {
        if let Some(reason) = check::problem(&record) {
            left_out.push(LeftOut { file, reason });
        } else if record.failure.is_some() {
            failed.extend(failure(file, record));
        } else {
            match record.experiment {
                Experiment::Collectives => collectives.push((file, record)),
                Experiment::Overlap => match overlap::finding(&file, &record) {
                    Ok(finding) => overlap.push(finding),
                    Err(reason) => left_out.push(LeftOut { file, reason }),
                },
            }
        }
    }
    left_out.sort_by(|a, b| a.file.cmp(&b.file));
    let mut groups = group::groups(collectives);
    for group in &mut groups {
        group.reading = reading::reading(group, &failed);
    }
    let nccl_tests = beside::tables(nccl_tests, &groups);
    BenchReport { schema_version: REPORT_SCHEMA_VERSION, groups, overlap, failed, nccl_tests, left_out }
}

fn failure(file: String, record: Record) -> Option<FailedCandidate> {
    let failure = record.failure?;
    Some(FailedCandidate {
        file,
        experiment: record.experiment,
        backend: record.workload.backend,
        world_size: record.workload.world_size,
        dtype: record.workload.dtype,
        algorithm_requested: record.workload.algorithm_requested,
        run_label: record.workload.run_label,
        kind: failure.kind,
        message: failure.message,
        rank: failure.rank,
        collective: failure.collective,
        payload_bytes_per_rank: failure.payload_bytes_per_rank,
        logs: record.artifacts.nccl_log.into_iter().chain(record.artifacts.log).collect(),
    })
}

/// Bytes in binary units, without digits that say nothing: `4 MiB`, `1.50 MiB`.
fn bytes(value: u64) -> String {
    let text = commtrace_report::units::bytes(value);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

/// Algorithms of which there is evidence, or that there is none.
fn observed(observed: &crate::record::AlgorithmObserved) -> String {
    match observed {
        crate::record::AlgorithmObserved::Observed(names) if !names.is_empty() => names.join(", "),
        _ => "unconfirmed".to_owned(),
    }
}
