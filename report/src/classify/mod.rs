//! Names that other tools give to kernels and calls, in the one vocabulary of this crate.
//!
//! | part | what it tells |
//! | --- | --- |
//! | [`Op`] | which operation a collective's name means |
//! | [`Dtype`] | which element type a name means, and its size |
//! | [`NcclKernel`] | operation, algorithm and protocol from the name of an NCCL or RCCL kernel |
//! | [`Classifier`] | whether a kernel is compute or communication, by a table that a user can extend |
//! | [`HostCall`] | collectives among the calls of the host: `gloo:all_reduce`, `c10d::allreduce_` |
//! | [`payload_bytes`] | bytes as nccl-tests counts them |
//!
//! A pattern over names misclassifies kernels, so [`RuleTally`] keeps what matched which rule.

mod bytes;
mod dtype;
mod host;
mod nccl;
mod op;
mod pattern;
mod table;
mod tally;

pub use bytes::payload_bytes;
pub use dtype::Dtype;
pub use host::{HostCall, HostLayer};
pub use nccl::NcclKernel;
pub use op::Op;
pub(crate) use pattern::compile;
pub use pattern::{CommPattern, NamePattern, PatternError};
pub use tally::RuleTally;

use crate::read::ReadOptions;
use table::builtin;

/// What a kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Communication.
    Comm(CommKernel),
    /// Everything else.
    Compute {
        /// The name has a word of communication in it and no rule knows it.
        hint: bool,
    },
}

/// A communication kernel by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommKernel {
    /// What it does.
    pub op: OpName,
    /// Algorithm and protocol, for kernels of NCCL.
    pub nccl: Option<NcclKernel>,
    rule: Rule,
}

/// An operation by the vocabulary, or by the name that a user gave to a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpName {
    /// One of the vocabulary.
    Known(Op),
    /// The name of the pattern with this number.
    Pattern(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Builtin(&'static str),
    Pattern(usize),
}

/// Tells communication kernels from compute kernels.
#[derive(Debug, Clone, Default)]
pub struct Classifier {
    patterns: Vec<NamePattern>,
}

impl Classifier {
    /// With the patterns of `options` before the built-in table.
    ///
    /// # Errors
    ///
    /// A pattern that is not a regular expression.
    pub fn new(options: &ReadOptions) -> Result<Self, PatternError> {
        let patterns = options.comm_patterns.iter().map(NamePattern::comm).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// What the kernel called `name` is. Patterns of the user come first, then the names of NCCL and
    /// RCCL, then the table of other communication kernels, then every other name that contains `nccl`
    /// or `rccl`.
    pub fn kernel(&self, name: &str) -> Class {
        if let Some(found) = self.pattern(name) {
            return Class::Comm(found);
        }
        if let Some(nccl) = NcclKernel::parse(name) {
            let rule = Rule::Builtin("NCCL kernel");
            return Class::Comm(CommKernel { op: OpName::Known(nccl.op), nccl: Some(nccl), rule });
        }
        let function = table::function(name);
        if let Some((rule, op)) = builtin(&function) {
            return Class::Comm(CommKernel { op: OpName::Known(op), nccl: None, rule: Rule::Builtin(rule) });
        }
        let lower = name.to_ascii_lowercase();
        if lower.contains("nccl") || lower.contains("rccl") {
            let rule = Rule::Builtin("name contains nccl or rccl");
            let op = Op::in_name(&function).unwrap_or(Op::Unknown);
            return Class::Comm(CommKernel { op: OpName::Known(op), nccl: None, rule });
        }
        Class::Compute { hint: table::hints_at_communication(&function) }
    }

    /// The first of the user's patterns that matches `name`.
    pub fn pattern(&self, name: &str) -> Option<CommKernel> {
        let index = self.patterns.iter().position(|pattern| pattern.matches(name))?;
        let op = self.patterns.get(index)?.op.map_or(OpName::Pattern(index), OpName::Known);
        Some(CommKernel { op, nccl: None, rule: Rule::Pattern(index) })
    }

    /// The name of an operation in reports.
    pub fn op_name(&self, op: OpName) -> &str {
        match op {
            OpName::Known(op) => op.as_str(),
            OpName::Pattern(index) => self.patterns.get(index).map_or("unknown", |pattern| &pattern.name),
        }
    }

    /// The rule that made `kernel` communication, in words.
    pub fn rule(&self, kernel: CommKernel) -> &str {
        match kernel.rule {
            Rule::Builtin(rule) => rule,
            Rule::Pattern(index) => self.patterns.get(index).map_or("", |pattern| &pattern.rule),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(classifier: &Classifier, name: &str) -> String {
        match classifier.kernel(name) {
            Class::Comm(kernel) => {
                format!("{} by {}", classifier.op_name(kernel.op), classifier.rule(kernel))
            }
            Class::Compute { hint: true } => "compute?".to_owned(),
            Class::Compute { hint: false } => "compute".to_owned(),
        }
    }

    #[test]
    fn a_user_s_pattern_comes_first() -> Result<(), PatternError> {
        let options = ReadOptions {
            comm_patterns: vec!["AllReduce=^fused_ar_".parse()?, "halo=exchange_\\w+".parse()?],
            ..ReadOptions::default()
        };
        let classifier = Classifier::new(&options)?;
        assert_eq!(
            classified(&classifier, "fused_ar_rmsnorm"),
            "all_reduce by --comm-pattern AllReduce=^fused_ar_"
        );
        assert_eq!(
            classified(&classifier, "void exchange_left<int>(int*)"),
            "halo by --comm-pattern halo=exchange_\\w+"
        );
        assert_eq!(classified(&classifier, "ncclDevKernel_Broadcast_RING_LL(x)"), "broadcast by NCCL kernel");
        assert_eq!(classified(&classifier, "not_fused_ar_rmsnorm"), "compute");
        Ok(())
    }

    #[test]
    fn names_that_merely_contain_nccl() {
        let classifier = Classifier::default();
        assert_eq!(
            classified(&classifier, "void my::all_gather_copy<4>(ncclComm*, int)"),
            "all_gather by name contains nccl or rccl"
        );
        assert_eq!(classified(&classifier, "triton_rccl_wait_0d1d"), "unknown by name contains nccl or rccl");
    }

    #[test]
    fn unknown_kernels_that_look_like_communication_are_compute_with_a_hint() {
        let classifier = Classifier::default();
        assert_eq!(classified(&classifier, "void acme::allGatherSlices<float>(float*)"), "compute?");
        assert_eq!(classified(&classifier, "ampere_sgemm_128x64_tn"), "compute");
        assert_eq!(
            classified(&classifier, "void at::native::norm<cub::WarpAllReduce<float>>(float*)"),
            "compute"
        );
    }
}
