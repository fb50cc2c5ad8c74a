//! Which requested algorithm was fastest, and by how much.

use super::Curve;
use crate::quantile;
use crate::record::AlgorithmObserved;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The algorithms of one collective with one payload, measured with the same workload on the same hardware.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The collective.
    pub collective: String,
    /// Bytes that each rank puts in.
    pub payload_bytes_per_rank: u64,
    /// The algorithms, fastest first.
    pub candidates: Vec<Candidate>,
    /// The algorithm that was requested where it was fastest; `None` if that is a tie.
    pub fastest: Option<String>,
    /// Time of the second over that of the first, minus 1.
    pub faster_by_ratio: f64,
    /// The same in milliseconds.
    pub faster_by_ms: f64,
    /// The larger of both spreads, in milliseconds: a smaller difference is a tie.
    pub spread_ms: f64,
}

/// One requested algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Candidate {
    /// What was asked for.
    pub algorithm_requested: String,
    /// What ran with this payload, as far as there is evidence.
    pub algorithm_observed: AlgorithmObserved,
    /// Number of records, with different run labels.
    pub runs: u32,
    /// Median over the records of their medians.
    pub median_max_rank_ms: f64,
    /// The highest P95 of the records.
    pub p95_max_rank_ms: f64,
    /// P95 minus the least median: how far times of the same thing lie apart.
    pub spread_ms: f64,
}

/// Compares the algorithms of `curves` wherever two have the same collective and payload.
pub(super) fn compare(curves: &[Curve]) -> Vec<Comparison> {
    let mut cells: BTreeMap<(usize, u64), BTreeMap<&str, Vec<&super::Point>>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for curve in curves {
        let at = order.iter().position(|name| *name == curve.collective).unwrap_or_else(|| {
            order.push(&curve.collective);
            order.len() - 1
        });
        for point in &curve.points {
            let cell = cells.entry((at, point.payload_bytes_per_rank)).or_default();
            cell.entry(&curve.algorithm_requested).or_default().push(point);
        }
    }
    let compared = |((at, payload), by_algorithm): (&(usize, u64), &BTreeMap<&str, Vec<&super::Point>>)| {
        let mut candidates: Vec<Candidate> =
            by_algorithm.iter().filter_map(|(name, points)| candidate(name, points)).collect();
        candidates.sort_by(|a, b| a.median_max_rank_ms.total_cmp(&b.median_max_rank_ms));
        let [first, second, ..] = candidates.as_slice() else { return None };
        let faster_by_ms = second.median_max_rank_ms - first.median_max_rank_ms;
        let spread_ms = first.spread_ms.max(second.spread_ms);
        Some(Comparison {
            collective: (*order.get(*at)?).to_owned(),
            payload_bytes_per_rank: *payload,
            fastest: (faster_by_ms > spread_ms).then(|| first.algorithm_requested.clone()),
            faster_by_ratio: faster_by_ms / first.median_max_rank_ms,
            faster_by_ms,
            spread_ms,
            candidates,
        })
    };
    cells.iter().filter_map(compared).collect()
}

fn candidate(name: &str, points: &[&super::Point]) -> Option<Candidate> {
    let medians: Vec<f64> = points.iter().map(|point| point.median_max_rank_ms).collect();
    let p95 = points.iter().map(|point| point.p95_max_rank_ms).max_by(f64::total_cmp)?;
    let least = medians.iter().copied().min_by(f64::total_cmp)?;
    Some(Candidate {
        algorithm_requested: name.to_owned(),
        algorithm_observed: observed(points),
        runs: u32::try_from(points.len()).unwrap_or(u32::MAX),
        median_max_rank_ms: quantile(&medians, 0.5)?,
        p95_max_rank_ms: p95,
        spread_ms: p95 - least,
    })
}

/// What was observed in all of `points`; `unconfirmed` if nothing was in one of them.
fn observed(points: &[&super::Point]) -> AlgorithmObserved {
    let mut all = BTreeSet::new();
    for point in points {
        match &point.algorithm_observed {
            AlgorithmObserved::Observed(names) if !names.is_empty() => all.extend(names.iter().cloned()),
            _ => return AlgorithmObserved::default(),
        }
    }
    AlgorithmObserved::Observed(all.into_iter().collect())
}

/// The explicit all_reduce in two steps beside the library's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TwoSteps {
    /// The algorithm that was asked for.
    pub algorithm_requested: String,
    /// The run label.
    pub run_label: String,
    /// Bytes that each rank puts in.
    pub payload_bytes_per_rank: u64,
    /// Median of all_reduce in milliseconds.
    pub all_reduce_ms: f64,
    /// Median of reduce_scatter and all_gather, one after the other, in milliseconds.
    pub reduce_scatter_all_gather_ms: f64,
    /// The second over the first.
    pub ratio: f64,
}

/// Both of them, from each record that has both.
pub(super) fn two_steps(curves: &[Curve]) -> Vec<TwoSteps> {
    let mut found = Vec::new();
    for whole in curves.iter().filter(|curve| curve.collective == "all_reduce") {
        let parts = curves
            .iter()
            .filter(|curve| curve.collective == "reduce_scatter_all_gather" && curve.file == whole.file);
        for point in parts.flat_map(|curve| &curve.points) {
            let same = |other: &&super::Point| other.payload_bytes_per_rank == point.payload_bytes_per_rank;
            let Some(all_reduce) = whole.points.iter().find(same) else { continue };
            found.push(TwoSteps {
                algorithm_requested: whole.algorithm_requested.clone(),
                run_label: whole.run_label.clone(),
                payload_bytes_per_rank: point.payload_bytes_per_rank,
                all_reduce_ms: all_reduce.median_max_rank_ms,
                reduce_scatter_all_gather_ms: point.median_max_rank_ms,
                ratio: point.median_max_rank_ms / all_reduce.median_max_rank_ms,
            });
        }
    }
    found
}
