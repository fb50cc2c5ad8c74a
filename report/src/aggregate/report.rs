//! The totals as a report.

use super::{Aggregator, RankState, steps};
use crate::analyze::{
    InputReport, RankAlignment, RankReport, Report, UntimedReport, add_throughput, assemble,
};
use crate::read::untimed::{compute_warning, peer_bytes_warning};
use indexmap::IndexMap;

impl Aggregator {
    pub(super) fn report(mut self) -> Report {
        let mut warnings = Vec::new();
        let mut ranks = Vec::new();
        for (&rank, state) in &self.ranks {
            ranks.extend(self.rank_reports(rank, state));
            if !state.others.is_empty() {
                warnings.push(format!(
                    "Rank {rank} has several devices: what the host timed before the second one appeared is \
                     counted with the first one, and stands alone from then on."
                ));
            }
            let left_out = self.tracks[state.joint].steps.left_out();
            if left_out > 0 {
                warnings.push(format!(
                    "Rank {rank} has figures of its first {} steps; {left_out} later ones are only in the \
                     totals.",
                    steps::MAX_STEPS
                ));
            }
        }
        let nested: u64 = self.tracks.iter().map(|track| track.nested).sum();
        let collectives = std::mem::take(&mut self.collectives);
        let mut cross_rank = collectives.finish(&self.names, &mut warnings);
        if let Some(across) = &mut cross_rank {
            // One process, one clock.
            across.alignment = self.ranks.keys().copied().map(RankAlignment::reference).collect();
        }
        self.warn(nested, &mut warnings);
        let anomalies = [("end_before_start", self.reversed), ("nested_comm", nested), ("late", self.late)];
        let anomalies = anomalies.into_iter().filter(|(_, count)| *count > 0);
        let input = InputReport {
            path: "this process".to_owned(),
            format: "commtrace-summary".to_owned(),
            events: self.events,
            skipped: std::mem::take(&mut self.skipped),
            anomalies: anomalies.map(|(kind, count)| (kind.to_owned(), count)).collect::<IndexMap<_, _>>(),
            ..InputReport::default()
        };
        assemble(ranks, cross_rank, vec![input], warnings, &self.options)
    }

    fn rank_reports(&self, rank: u32, state: &RankState) -> Vec<RankReport> {
        let base_ns = self.base_ns.unwrap_or(0);
        let mut reports: Vec<RankReport> = state
            .tracks()
            .map(|track| &self.tracks[track])
            .filter(|track| state.others.is_empty() || !track.is_empty())
            .map(|track| RankReport {
                rank,
                device: track.device,
                summary: track.summary.finish(),
                wall: Some(track.wall()),
                untimed: UntimedReport::from(&track.untimed),
                steps: track.steps.figures(base_ns),
                routing: track.routing.finish(&self.names).map(Box::new),
            })
            .collect();
        for report in &mut reports {
            add_throughput(report);
            if let Some(routing) = &mut report.routing {
                routing.lost_records = self.lost + self.lost_peer_bytes > 0;
            }
        }
        reports.sort_by_key(|report| report.device);
        reports
    }

    fn warn(&self, nested: u64, warnings: &mut Vec<String>) {
        if self.lost_peer_bytes > 0 {
            warnings.push(peer_bytes_warning(self.lost_peer_bytes));
        }
        if self.lost > 0 {
            warnings.push(format!(
                "{} records were lost while recording; times and counts are too small by these.",
                self.lost
            ));
        }
        for (&rank, untimed) in &self.untimed_compute {
            warnings.push(compute_warning(rank, untimed));
        }
        if self.late > 0 {
            warnings.push(format!(
                "{} intervals began longer ago than the running summary looks back: that part of them counts \
                 as not overlapped.",
                self.late
            ));
        }
        if self.reversed > 0 {
            let ends = if self.reversed == 1 { "event ends" } else { "events end" };
            warnings.push(format!("{} {ends} before the start; counted with duration 0.", self.reversed));
        }
        if nested > 0 {
            warnings.push(format!(
                "{nested} communication spans have other communication inside: sums over events count that \
                 time twice, figures under `wall` do not."
            ));
        }
    }
}
