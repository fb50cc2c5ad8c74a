//! What matched which rule.

use crate::timeline::{MatchKind, RuleMatch};

/// Counts what matched which rule, in order of first match.
#[derive(Debug, Clone, Default)]
pub struct RuleTally {
    rules: Vec<RuleMatch>,
}

impl RuleTally {
    /// Adds an event of `time_ns` nanoseconds that `rule` made `kind`; `op` is given for communication.
    pub fn add(&mut self, rule: &str, kind: MatchKind, op: Option<&str>, time_ns: u64) {
        let same =
            |entry: &&mut RuleMatch| entry.rule == rule && entry.kind == kind && entry.op.as_deref() == op;
        match self.rules.iter_mut().find(same) {
            Some(entry) => {
                entry.events += 1;
                entry.time_ns = entry.time_ns.saturating_add(time_ns);
            }
            None => self.rules.push(RuleMatch {
                rule: rule.to_owned(),
                kind,
                op: op.map(str::to_owned),
                events: 1,
                time_ns,
            }),
        }
    }

    /// The rules that matched anything.
    pub fn finish(self) -> Vec<RuleMatch> {
        self.rules
    }
}
