//! How the ranks' clocks relate.

use super::layout::{Column, Page};
use crate::analyze::Report;
use crate::render::clocks;

pub(super) fn clocks(page: &mut Page, report: &Report) {
    let Some(across) = &report.cross_rank else { return };
    if across.alignment.len() < 2 {
        return;
    }
    page.heading("Clocks");
    page.note(&clocks::sentence(across));
    if clocks::differ(across) {
        let columns = clocks::COLUMNS.map(Column::Figures);
        page.table(&columns, clocks::rows(across), "clocks");
        page.note(
            "Offset and drift: of the ranks' clock against that of the lowest aligned rank, at the start of \
             the run.",
        );
    }
}
