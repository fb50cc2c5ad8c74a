//! Chapter 47's reading of a result: its table of four rows, filled with what was found.

use super::curve::{Basis, Knee};
use super::group::{Curve, Group};
use super::{FailedCandidate, bytes, observed};
use crate::record::{AlgorithmObserved, EvidenceLevel, Experiment};
use commtrace_report::render::counted;
use commtrace_report::units;
use serde::{Deserialize, Serialize};

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reading {
    /// What is looked at.
    pub observation: String,
    /// The record's fields that say it.
    pub fields: Vec<String>,
    /// What they say, each a sentence.
    pub found: Vec<String>,
    /// What it means, and what to do.
    pub action: String,
}

/// The four rows for `group`.
pub(super) fn reading(group: &Group, failed: &[FailedCandidate]) -> Vec<Reading> {
    vec![comparability(group, failed), path(group), regions(group), next(group)]
}

fn row(observation: &str, fields: &[&str], found: Vec<String>, action: String) -> Reading {
    let fields = fields.iter().map(|field| (*field).to_owned()).collect();
    Reading { observation: observation.to_owned(), fields, found, action }
}

fn comparability(group: &Group, failed: &[FailedCandidate]) -> Reading {
    let mut files: Vec<&str> = group.curves.iter().map(|curve| curve.file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    let setting = &group.setting;
    let mut found = vec![format!(
        "{} of the same workload and hardware: {}.",
        counted(files.len() as u64, "record", "records"),
        setting.title()
    )];
    let of_this = |failed: &&FailedCandidate| {
        failed.experiment == Experiment::Collectives
            && (failed.backend.as_str(), failed.world_size) == (setting.backend.as_str(), setting.world_size)
            && failed.dtype == setting.dtype
    };
    let failed: Vec<String> = failed
        .iter()
        .filter(of_this)
        .map(|failed| format!("{} ({})", failed.algorithm_requested, failed.run_label))
        .collect();
    let action = if failed.is_empty() {
        "The times can be compared with each other, and with no other group's.".to_owned()
    } else {
        found.push(format!("Failed: {}.", failed.join(", ")));
        "Failed candidates keep their log and have no times: look at the log before comparing.".to_owned()
    };
    row("Run and comparability", &["failure", "world_size", "dtype", "warmup", "repeats"], found, action)
}

fn path(group: &Group) -> Reading {
    let mut seen: Vec<(&str, String)> = Vec::new();
    let (mut unconfirmed, mut other) = (false, false);
    for curve in &group.curves {
        let pair = (curve.algorithm_requested.as_str(), observed(&curve.algorithm_observed));
        match &curve.algorithm_observed {
            AlgorithmObserved::Observed(names) if !names.is_empty() => {
                other |= pair.0 != "Auto" && !names.iter().any(|name| name.eq_ignore_ascii_case(pair.0));
            }
            _ => unconfirmed = true,
        }
        if !seen.contains(&pair) {
            seen.push(pair);
        }
    }
    let found = seen
        .iter()
        .map(|(requested, observed)| format!("{requested} requested, {observed} observed."))
        .collect();
    let mut action = Vec::new();
    if other {
        action.push(
            "An algorithm that was requested was not observed: its times are not those of that algorithm.",
        );
    }
    if unconfirmed {
        action.push("Without evidence of a log or profiler the algorithm is unconfirmed; the request does not stand for it.");
    }
    if action.is_empty() {
        action.push("What was observed is evidence of the log or profiler.");
    }
    row("Algorithm path", &["algorithm_requested", "algorithm_observed"], found, action.join(" "))
}

fn regions(group: &Group) -> Reading {
    let labels = group.has_labels();
    let found = group
        .curves
        .iter()
        .map(|curve| format!("{}, {}: {}.", curve.collective, curve.label(labels), regions_of(curve)))
        .collect();
    let fields = [
        "collective",
        "payload_bytes_per_rank",
        "median_max_rank_ms",
        "p95_max_rank_ms",
        "effective_payload_gbps",
    ];
    let action = "Well below the knee the startup latency decides: fewer and larger calls help. Well above it the bandwidth \
                  decides: fewer bytes help.";
    row("Startup and bandwidth regions", &fields, found, action.to_owned())
}

/// Latency, knee and plateau in one line.
pub(super) fn regions_of(curve: &Curve) -> String {
    let shape = &curve.shape;
    let mut parts = Vec::new();
    if let Some(ms) = shape.startup_latency_ms {
        parts.push(format!("startup latency {}", units::ms(ms)));
    } else if let (Knee::Below(_), Some(first)) = (shape.knee, curve.points.first()) {
        parts.push(format!("startup latency not measured, below {}", units::ms(first.median_max_rank_ms)));
    }
    match shape.knee {
        Knee::At(at) => parts.push(format!("knee at {}", bytes(at))),
        Knee::Below(least) => parts.push(format!("knee below {}", bytes(least))),
        Knee::Above(most) => parts.push(format!("knee above {}", bytes(most))),
        Knee::Unknown if shape.one_line_fits == Some(false) => parts.push("one line does not fit".to_owned()),
        Knee::Unknown => parts.push("one payload, no fit".to_owned()),
    }
    if let Some(gbps) = shape.plateau_payload_gbps {
        let busbw = shape
            .plateau_busbw_gbps
            .map(|busbw| format!(" (busbw {})", units::gbs(busbw)))
            .unwrap_or_default();
        let reached = if shape.plateau_reached == Some(true) { "" } else { ", extrapolated" };
        parts.push(format!("plateau {} GB/s of payload{busbw}{reached}", units::gbs(gbps)));
    } else if let Some(best) = shape.best_busbw_gbps {
        parts.push(format!("best busbw measured {} GB/s", units::gbs(best)));
    }
    parts.join(", ")
}

fn next(group: &Group) -> Reading {
    let mut found = vec![format!("Evidence: {}.", group.setting.evidence())];
    found.push(bucket(group));
    let mut action = "Next, what of it is exposed in real scheduling: run `commtrace bench overlap` with the same payload, \
                      then trace a training run with COMMTRACE_DIR set and read its exposed time with `commtrace report`."
        .to_owned();
    if group.setting.evidence_level != EvidenceLevel::MeasuredGpu {
        action += " Before deciding about GPUs, run `commtrace bench collectives --backend nccl` on them.";
    }
    row("Next step", &["evidence_level", "decision"], found, action)
}

/// Which bucket size the first curve of all_reduce asks for, or the first of any.
fn bucket(group: &Group) -> String {
    let of_all_reduce = |curve: &&Curve| curve.collective == "all_reduce";
    let Some(curve) = group.curves.iter().find(of_all_reduce).or(group.curves.first()) else {
        return "No collective was measured.".to_owned();
    };
    let what = format!("{}, {}", curve.collective, curve.label(group.has_labels()));
    let Some(enough) = curve.shape.enough else {
        return format!(
            "Bucket size ({what}): cannot be told from these payloads, since none is known to reach 90 % of the plateau; \
             measure larger ones."
        );
    };
    let how = match enough.basis {
        Basis::Fit => "9 times the knee",
        Basis::Extrapolated => "9 times the knee, which is above the largest payload measured: measure it",
        Basis::Measured => "measured; it may be reached by smaller payloads than were measured",
    };
    format!(
        "Bucket size ({what}): at least {} per rank, from where on 90 % of the plateau is reached ({how}).",
        bytes(enough.bytes)
    )
}
