//! Time by payload of one collective with one algorithm: its regions.

use super::fit::{Fit, Sample, fit};
use super::step::{self, Step};
use crate::record::{AlgorithmObserved, Row};
use serde::{Deserialize, Serialize};

/// A share of the time, or of the bandwidth, that counts as nearly all of it.
///
/// In the latency region the startup takes at least this share of the time; in the bandwidth region at least this
/// share of the plateau is reached. By the model these are payloads below 1/9 of the knee, and from 9 times it on.
pub const NEARLY: f64 = 0.9;
/// The largest relative error up to which one line is said to fit.
pub const ONE_LINE_BOUND: f64 = 0.25;

/// Where a payload lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Region {
    /// By the fit, at least 90 % of the time is startup.
    Latency,
    /// Between the two others.
    Transition,
    /// By the fit, at least 90 % of the plateau is reached.
    Bandwidth,
}

impl Region {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Transition => "transition",
            Self::Bandwidth => "bandwidth",
        }
    }
}

/// One payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Point {
    /// Bytes that each rank puts in.
    pub payload_bytes_per_rank: u64,
    /// Median over the repeats of the slowest rank's time.
    pub median_max_rank_ms: f64,
    /// 95th percentile of the same.
    pub p95_max_rank_ms: f64,
    /// Payload over median, in 10^9 bytes per second.
    pub effective_payload_gbps: f64,
    /// Bus bandwidth as nccl-tests defines it; `None` if the record has none.
    pub busbw_gbps: Option<f64>,
    /// The fit's time.
    pub fit_ms: Option<f64>,
    /// Where the payload lies by the fit; `None` where one line does not fit.
    pub region: Option<Region>,
    /// Algorithms of which there is evidence for this payload.
    pub algorithm_observed: AlgorithmObserved,
}

impl Point {
    pub(super) fn of(row: &Row) -> Self {
        Self {
            payload_bytes_per_rank: row.payload_bytes_per_rank,
            median_max_rank_ms: row.median_max_rank_ms,
            p95_max_rank_ms: row.p95_max_rank_ms,
            effective_payload_gbps: row.payload_bytes_per_rank as f64 / row.median_max_rank_ms / 1e6,
            busbw_gbps: row.busbw_gbps,
            fit_ms: None,
            region: None,
            algorithm_observed: row.algorithm_observed.clone(),
        }
    }
}

/// The knee: the payload at which half of the bandwidth is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Knee {
    /// It lies within the measured payloads, in bytes.
    At(u64),
    /// It lies below the smallest payload, of so many bytes: the startup latency was not measured.
    Below(u64),
    /// It lies above the largest payload, of so many bytes: the bandwidth was not measured.
    Above(u64),
    /// One line does not fit, or there are too few payloads.
    Unknown,
}

/// A payload from which on most of the bandwidth is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Enough {
    /// The payload in bytes per rank.
    pub bytes: u64,
    /// How it is known.
    pub basis: Basis,
}

/// How [`Enough`] is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// 9 times the knee of the fit, within the measured payloads.
    Fit,
    /// 9 times the knee of the fit, above the largest measured payload.
    Extrapolated,
    /// The smallest measured payload that reaches it, and all above do.
    Measured,
}

/// What the times of one collective with one algorithm show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shape {
    /// The latency-bandwidth model; `None` with fewer than two payloads.
    pub fit: Option<Fit>,
    /// Whether the model holds: its largest relative error is at most 25 %. `None` with two payloads or fewer.
    pub one_line_fits: Option<bool>,
    /// Where the times step, if two lines fit and one does not.
    pub step: Option<Step>,
    /// Startup latency in milliseconds; `None` if no payload is at or below the knee.
    pub startup_latency_ms: Option<f64>,
    /// The knee.
    pub knee: Knee,
    /// The fit's bandwidth plateau in 10^9 bytes of payload per second; `None` if no payload is at or above the knee.
    pub plateau_payload_gbps: Option<f64>,
    /// The same as bus bandwidth.
    pub plateau_busbw_gbps: Option<f64>,
    /// Whether a payload reaches 90 % of the plateau by the fit; `None` without a plateau.
    pub plateau_reached: Option<bool>,
    /// The best measured bus bandwidth.
    pub best_busbw_gbps: Option<f64>,
    /// Its payload in bytes per rank.
    pub best_busbw_at_bytes: Option<u64>,
    /// From which payload on 90 % of the plateau is reached; `None` if that cannot be told.
    pub enough: Option<Enough>,
    /// What has to be known to read the figures, each a whole sentence.
    pub notes: Vec<String>,
}

/// Sorts `points` by payload, fits the model, and completes them by what it says.
pub(super) fn shape(points: &mut [Point]) -> Shape {
    points.sort_by_key(|point| point.payload_bytes_per_rank);
    let samples: Vec<Sample> = points
        .iter()
        .map(|point| Sample { bytes: point.payload_bytes_per_rank as f64, ms: point.median_max_rank_ms })
        .collect();
    let best = points
        .iter()
        .filter_map(|point| Some((point.busbw_gbps?, point.payload_bytes_per_rank)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let mut shape = Shape {
        fit: fit(&samples),
        one_line_fits: None,
        step: None,
        startup_latency_ms: None,
        knee: Knee::Unknown,
        plateau_payload_gbps: None,
        plateau_busbw_gbps: None,
        plateau_reached: None,
        best_busbw_gbps: best.map(|best| best.0),
        best_busbw_at_bytes: best.map(|best| best.1),
        enough: None,
        notes: Vec::new(),
    };
    let Some(fit) = shape.fit.clone() else {
        shape.notes.push("One payload was measured: there is no fit, and no region can be told.".to_owned());
        return shape;
    };
    for point in points.iter_mut() {
        point.fit_ms = Some(fit.ms(point.payload_bytes_per_rank as f64));
    }
    shape.one_line_fits = fit.max_relative_error.map(|error| error <= ONE_LINE_BOUND);
    match fit.points {
        2 => shape.notes.push(
            "The fit goes through both payloads: nothing says how well the model holds.".to_owned(),
        ),
        3 => shape.notes.push(
            "The fit rests on three payloads, one more than it needs: read its figures with the ranges beside them."
                .to_owned(),
        ),
        _ => {}
    }
    if shape.one_line_fits == Some(false) {
        shape.step = step::find(&samples);
        shape.notes.push(does_not_fit(&fit, shape.step.as_ref()));
        shape.enough = measured(points);
        return shape;
    }
    for point in points.iter_mut() {
        point.region = Some(region(&fit, point.payload_bytes_per_rank as f64));
    }
    regions(&mut shape, &fit, points);
    shape
}

fn does_not_fit(fit: &Fit, step: Option<&Step>) -> String {
    let at = fit.max_relative_error_at_bytes.map(crate::report::bytes).unwrap_or_default();
    let error = fit.max_relative_error.map(commtrace_report::units::percent).unwrap_or_default();
    let bound = commtrace_report::units::percent(ONE_LINE_BOUND);
    let first = format!("One line does not fit: it is {error} off at {at}, over the bound of {bound}.");
    match step {
        Some(step) => format!(
            "{first} Two lines do, with a step between {} and {}: as when the library changes its protocol (NCCL: LL, \
             LL128, Simple) or algorithm by size. Latency, knee and plateau are not taken from the one line.",
            crate::report::bytes(step.below_bytes),
            crate::report::bytes(step.above_bytes)
        ),
        None => format!(
            "{first} Latency, knee and plateau are not taken from it: measure more payloads, and look at the spread \
             of the times."
        ),
    }
}

fn region(fit: &Fit, bytes: f64) -> Region {
    let startup = fit.latency_ms / fit.ms(bytes);
    if startup >= NEARLY {
        Region::Latency
    } else if 1.0 - startup >= NEARLY {
        Region::Bandwidth
    } else {
        Region::Transition
    }
}

fn regions(shape: &mut Shape, fit: &Fit, points: &[Point]) {
    let (Some(smallest), Some(largest)) = (points.first(), points.last()) else { return };
    let (smallest, largest) = (smallest.payload_bytes_per_rank, largest.payload_bytes_per_rank);
    let Some(knee) = fit.knee_bytes() else {
        shape.startup_latency_ms = Some(fit.latency_ms);
        shape.knee = Knee::Above(largest);
        shape.notes.push(
            "The times do not grow with the payload: all lie in the latency region, and no bandwidth was measured."
                .to_owned(),
        );
        return;
    };
    if knee < smallest as f64 {
        shape.knee = Knee::Below(smallest);
        shape.notes.push(format!(
            "No size in the latency region was measured: the startup latency is an extrapolation of the fit ({}), and \
             the knee lies below {}. Measure smaller payloads to know them.",
            commtrace_report::units::ms(fit.latency_ms),
            crate::report::bytes(smallest)
        ));
    } else {
        shape.startup_latency_ms = Some(fit.latency_ms);
        shape.knee =
            if knee <= largest as f64 { Knee::At(knee.round() as u64) } else { Knee::Above(largest) };
    }
    if knee > largest as f64 {
        shape.notes.push(format!(
            "No size at or above the knee was measured: the bandwidth plateau would be an extrapolation. Measure \
             payloads above {}.",
            crate::report::bytes(largest)
        ));
        return;
    }
    shape.plateau_payload_gbps = fit.bandwidth_gbps;
    shape.plateau_busbw_gbps =
        fit.bandwidth_gbps.zip(busbw_factor(points)).map(|(gbps, factor)| gbps * factor);
    let enough = knee * NEARLY / (1.0 - NEARLY);
    let reached = largest as f64 >= enough;
    shape.plateau_reached = Some(reached);
    if !reached {
        shape.notes.push(format!(
            "The largest payload, {}, reaches {} of the plateau by the fit: its height is an extrapolation.",
            crate::report::bytes(largest),
            commtrace_report::units::percent(1.0 - fit.latency_ms / fit.ms(largest as f64))
        ));
    }
    shape.enough = Some(if enough <= smallest as f64 {
        Enough { bytes: smallest, basis: Basis::Measured }
    } else {
        Enough { bytes: enough.ceil() as u64, basis: if reached { Basis::Fit } else { Basis::Extrapolated } }
    });
}

/// Bus bandwidth over payload bandwidth, which is the same for all payloads.
fn busbw_factor(points: &[Point]) -> Option<f64> {
    let point = points.iter().rev().find(|point| point.busbw_gbps.is_some())?;
    let factor = point.busbw_gbps? / point.effective_payload_gbps;
    factor.is_finite().then_some(factor)
}

/// The smallest payload from which on every one has 90 % of the best measured bandwidth. `None` if that is the
/// largest: it may still grow.
fn measured(points: &[Point]) -> Option<Enough> {
    let best = points.iter().map(|point| point.effective_payload_gbps).fold(0.0, f64::max);
    let above = points.iter().rev().take_while(|point| point.effective_payload_gbps >= NEARLY * best);
    let payloads: Vec<u64> = above.map(|point| point.payload_bytes_per_rank).collect();
    let bytes = *payloads.last()?;
    (Some(&bytes) != payloads.first()).then_some(Enough { bytes, basis: Basis::Measured })
}
