//! The report in one line, for the end of a training run's output.

use crate::analyze::Report;
use crate::units;

/// One sentence: the hotspot, its exposed time, and what to try; without a final newline.
pub fn headline(report: &Report) -> String {
    let Some(priority) = &report.hotspots.priority else {
        return "no communication was recorded".to_owned();
    };
    format!(
        "hotspot {}: its calls add up to {} exposed of {} on the worst rank; {}: {}",
        priority.collective,
        units::ms(priority.evidence.exposed_comm_ms),
        units::ms(priority.evidence.total_comm_ms),
        report.followup.decision,
        report.mitigation.strategy,
    )
}
