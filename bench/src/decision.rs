//! What a record is evidence of, and what follows from it.

use crate::plan::{Backend, Plan};
use crate::record::{Decision, EvidenceLevel, Failure, Metrics, Verdict};

/// What the times of a candidate that did not fail are evidence of.
pub(crate) fn evidence(plan: &Plan) -> EvidenceLevel {
    match plan.backend {
        Backend::Local | Backend::Mpi => EvidenceLevel::MeasuredCpu,
        Backend::Nccl => EvidenceLevel::MeasuredGpu,
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
