//! One report on ranks that share no folder: what each process tells of itself at the end of a run, and how
//! that adds up.
//!
//! - A [`Sampler`] keeps some of a process's rows while it runs, in bounded memory.
//! - A [`RunSummary`] holds the exact figures of the ranks of one or more processes, and their samples. It
//!   is small, has a binary form to be sent, and [merges](RunSummary::merge) in any order and grouping, so
//!   that thousands of ranks are reduced in a tree.
//! - [`RunSummary::report`] makes the report. Figures per rank are exact. What needs all ranks (waits and the
//!   like) is analyzed over the samples, in the same way as over record files, and the report says how much of the
//!   run they are.

mod encode;
mod report;
mod sampler;
mod summary;
mod thinning;

pub use encode::SummaryError;
pub use sampler::Sampler;
pub use summary::{ProcessId, ProcessSummary, RunSummary, Sample};
pub(crate) use thinning::Thinning;
