//! The report for people: what matters first, tables after it.

mod across;
mod clocks;
mod desync;
mod layout;
mod nccl;
mod overview;
mod ranks;
mod routing;
mod sources;
mod steps;
mod stragglers;

use crate::analyze::Report;
use crate::analyze::desync::Diagnosis;
use layout::Page;

pub use layout::{Column, Page as TextPage, counted};

/// How the text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Columns of a line; at least 60. Default 100.
    pub width: u16,
    /// Rows of a table that has one per rank, step or input; what is left out is said. Default 16.
    pub max_rows: usize,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { width: 100, max_rows: 16 }
    }
}

/// What NCCL's own tools tell beside intervals, as in [`text`]; `None` if no input is of such a tool.
#[cfg(feature = "html")]
pub(super) fn nccl_facts(report: &Report) -> Option<String> {
    if !nccl::has_facts(report) {
        return None;
    }
    let mut page = Page::new(&TextOptions { max_rows: 256, ..TextOptions::default() });
    if report.ranks.is_empty() {
        nccl::headline(&mut page, report);
    }
    nccl::facts(&mut page, report);
    Some(page.finish())
}

/// What is out of step in one sentence, as in [`text`].
#[cfg(feature = "html")]
pub(super) use desync::sentence as desync_sentence;

/// The state of a run as text: who is stuck, in what, since when, who is missing, and what to do next.
pub fn diagnosis(diagnosis: &Diagnosis, options: &TextOptions) -> String {
    let mut page = Page::new(options);
    desync::diagnosis(&mut page, diagnosis);
    page.finish()
}

/// The report as text.
pub fn text(report: &Report, options: &TextOptions) -> String {
    let mut page = Page::new(options);
    overview::headline(&mut page, report);
    desync::section(&mut page, report);
    overview::what_to_try(&mut page, report);
    overview::operations(&mut page, report);
    ranks::ranks(&mut page, report);
    stragglers::stragglers(&mut page, report);
    across::across(&mut page, report);
    routing::routing(&mut page, report);
    clocks::clocks(&mut page, report);
    steps::steps(&mut page, report);
    nccl::facts(&mut page, report);
    sources::untimed(&mut page, report);
    sources::inputs(&mut page, report);
    sources::rules(&mut page, report);
    sources::warnings(&mut page, report);
    page.finish()
}
