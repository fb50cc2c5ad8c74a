//! Desynchronization: collectives that some ranks entered and others did not, ranks that make different
//! calls under one number, ranks that stopped or have no record.
//!
//! A hang is found at the end of a record, also of a run that was killed or still runs:
//!
//! | module | |
//! | --- | --- |
//! | `gather` | reads a timeline: per communicator how far each rank came, per rank how its record ends |
//! | `evidence` | what was gathered; everything after it is a function of this alone |
//! | `missing` | per communicator, the first number that a rank did not reach, and calls that do not end |
//! | `disagree` | ranks that call something else under one number |
//! | `p2p` | sends and receives without a counterpart |
//! | `ranks` | ranks that stopped, ranks without a record |
//! | `order` | causes before consequences, by who waits for whom |
//! | `say` | what all findings have in common, in words |
//! | `diagnosis`, `advice` | the run as an on-call engineer asks for it, and what to do next |
//!
//! That something is not in a record proves nothing by itself. A rank did not enter a call if it ended
//! regularly without it, or if its record is known to be complete up to an instant after the others
//! entered. Anything else, and any loss that a record reports, is said in [`Desync::weakened`]. A call has to be
//! open for [`DEFAULT_PATIENCE_MS`] and three times as long as the longest finished one of its communicator
//! before it counts as one that hangs, since every call is open for a while.

mod advice;
mod diagnosis;
mod disagree;
mod evidence;
mod finding;
mod gather;
mod missing;
mod order;
mod p2p;
mod ranks;
mod say;
#[cfg(test)]
mod tests;

pub use diagnosis::{
    CallDiagnosis, DIAGNOSIS_SCHEMA_VERSION, Diagnosis, RankDiagnosis, RankRuns, RunVerdict, Runs,
    Surroundings, diagnose,
};
pub use finding::{BlockedBy, Desync, DesyncKind, DesyncSide};

use super::AnalyzeOptions;
use super::filter::select;
use super::matching::Matching;
use crate::timeline::Timeline;
use evidence::{Entry, Evidence, Known};
use std::collections::BTreeSet;

/// For how long a call has to be open to count as one that hangs, in milliseconds.
pub const DEFAULT_PATIENCE_MS: u64 = 5_000;

/// What counts as out of step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesyncOptions {
    /// Only these ranks were asked for: others are not missing.
    pub ranks: Option<BTreeSet<u32>>,
    /// For how long a call has to be open to count as one that hangs, in milliseconds. Three times the
    /// longest finished call of the communicator, if that is more.
    pub patience_ms: u64,
}

impl Default for DesyncOptions {
    fn default() -> Self {
        Self { ranks: None, patience_ms: DEFAULT_PATIENCE_MS }
    }
}

/// Finds where ranks are out of step at the end of `timeline`, and the first call of each communicator on
/// which they disagree. Causes come before what they hold up.
pub fn desynchronizations(timeline: &Timeline, options: &DesyncOptions) -> Vec<Desync> {
    find_knowing(timeline, options, &Known::default())
}

/// As [`desynchronizations`], where it is known of some ranks whether their process runs.
fn find_knowing(timeline: &Timeline, options: &DesyncOptions, known: &Known) -> Vec<Desync> {
    let filter = AnalyzeOptions { ranks: options.ranks.clone(), ..AnalyzeOptions::default() };
    let selected = select(timeline, &filter);
    judge(&gather::evidence(timeline, &Matching::new(timeline, &selected), options, known))
}

/// As [`desynchronizations`], of a timeline that was matched before.
pub(super) fn find(timeline: &Timeline, matching: &Matching<'_>, options: &DesyncOptions) -> Vec<Desync> {
    judge(&gather::evidence(timeline, matching, options, &Known::default()))
}

fn judge(evidence: &Evidence<'_>) -> Vec<Desync> {
    let mut found = Vec::new();
    for (&name, comm) in &evidence.comms {
        let disagreement = disagree::first(evidence, name, comm);
        let at_end = missing::judge(evidence, name, comm);
        let explained = |one: &Desync| {
            one.kind == DesyncKind::Stalled
                && disagreement.as_ref().is_some_and(|disagreement| disagreement.seq == one.seq)
        };
        found.extend(at_end.into_iter().filter(|one| !explained(one)));
        found.extend(disagreement);
    }
    for (&channel, calls) in &evidence.channels {
        found.extend(p2p::judge(evidence, channel, calls));
    }
    found.extend(unnumbered(evidence));
    found.extend(ranks::judge(evidence));
    order::sort(&mut found);
    found
}

/// Calls that hang and of which it is not known who takes part, per op.
fn unnumbered(evidence: &Evidence<'_>) -> Vec<Desync> {
    let mut left: Vec<Entry> =
        evidence.unnumbered.iter().filter(|call| evidence.hangs(call, 0)).copied().collect();
    let mut found = Vec::new();
    while let Some(first) = left.first().copied() {
        let (same, others): (Vec<Entry>, Vec<Entry>) = left.into_iter().partition(|call| call.op == first.op);
        left = others;
        let subject = say::Subject { name: None, comm: None, seq: None, calls: &same };
        let ranks: Vec<u32> =
            same.iter().map(|call| call.rank).collect::<BTreeSet<u32>>().into_iter().collect();
        found.push(Desync {
            weakened: vec![
                "The call carries no communicator and number, so it is not known who takes part.".to_owned(),
            ],
            ..say::about(evidence, &subject, DesyncKind::Stalled, &ranks)
        });
    }
    found
}
