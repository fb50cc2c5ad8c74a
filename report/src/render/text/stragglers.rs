//! Who makes the others wait.

use super::layout::{Column, Page};
use crate::analyze::Report;
use crate::units;

/// Nothing where no straggler is claimed.
pub(super) fn stragglers(page: &mut Page, report: &Report) {
    let Some(across) = report.cross_rank.as_ref().filter(|across| !across.stragglers.is_empty()) else {
        return;
    };
    page.heading("Stragglers (ranks that make others wait, clearly more than chance explains)");
    let columns = [
        Column::Figures("rank"),
        Column::Figures("arrived\nlast"),
        Column::Figures("of"),
        Column::Figures("caused\nwait"),
        Column::Figures("own\nwait"),
        Column::Figures("late by"),
        Column::Words("in span"),
        Column::Figures("longer by"),
        Column::Words("when"),
        Column::Figures("steps"),
    ];
    let rows = across
        .stragglers
        .iter()
        .map(|one| {
            let label = one.span_label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
            vec![
                one.rank.to_string(),
                one.arrived_last.to_string(),
                one.collectives.to_string(),
                units::ms(one.caused_wait_ms),
                units::ms(one.suffered_wait_ms),
                units::ms(one.late_ms),
                one.span.as_ref().map_or_else(|| "outside spans".to_owned(), |span| format!("{span}{label}")),
                one.span_excess_ms.map_or_else(String::new, units::ms),
                one.pattern.as_str().replace('_', " "),
                format!("{}/{}", one.late_steps, one.steps),
            ]
        })
        .collect();
    page.table(&columns, rows, "stragglers");
    page.note(
        "Caused wait: sum over the other ranks, that which others passed on included. Late by, longer by: per \
         step (late step, if only some are), next to the median of the other ranks.",
    );
}
