//! What a record is evidence of, and what follows from it.

use crate::overlap;
use crate::plan::{Backend, Plan};
use crate::record::{Decision, EvidenceLevel, Failure, Hardware, Metrics, Verdict};

/// What the times of a candidate that did not fail are evidence of.
pub(crate) fn level(plan: &Plan, hardware: &Hardware) -> EvidenceLevel {
    // Stand-ins for GPUs, as tests have them, are work of processors.
    let mut gpus = hardware.hosts.iter().flat_map(|host| &host.gpus);
    match plan.backend {
        Backend::Nccl if !gpus.any(|gpu| gpu.name.contains("stand-in")) => EvidenceLevel::MeasuredGpu,
        _ => EvidenceLevel::MeasuredCpu,
    }
}

/// What follows from a candidate's times, or from its failure.
pub(crate) fn decide(metrics: &Metrics, failure: Option<&Failure>) -> Decision {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    if failure.is_some() {
        return Decision {
            decision: Verdict::InspectFailure,
            reason: "the candidate failed: its times, if any, are not compared".to_owned(),
            next_measurements: owned(&["failure", "log"]),
        };
    }
    if let Some(comparison) = &metrics.comparison {
        return overlap::decide(comparison);
    }
    let rows = metrics.rows.len();
    Decision {
        decision: Verdict::VerifyOverlap,
        reason: format!(
            "{rows} {} measured, all results correct. How much of it a real schedule exposes is not known from \
             this: run `commtrace bench overlap`, and trace the training.",
            if rows == 1 { "row was" } else { "rows were" }
        ),
        next_measurements: owned(&["exposed_comm_ms", "overlap_ratio"]),
    }
}
