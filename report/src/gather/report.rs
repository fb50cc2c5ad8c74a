//! From the summaries of all processes to one report.

use super::{ProcessSummary, RunSummary, Sample, Thinning};
use crate::analyze::{AnalyzeOptions, CrossRank, InputReport, RankReport, Report, analyze, assemble};
use crate::read::{name_ranks, read_in_memory};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Warnings that processes may add, at most.
const WARNINGS: usize = 32;

impl RunSummary {
    /// The report on all ranks. Of `options`, thresholds apply; there is nothing to filter any more.
    pub fn report(&self, options: &AnalyzeOptions) -> Report {
        let mut warnings = self.warnings();
        let cross_rank = self.cross_rank(options, &mut warnings);
        assemble(self.rank_reports(), cross_rank, vec![self.input()], warnings, options)
    }

    /// Figures of all ranks, with the starts of steps counted from the earliest start on their clock.
    fn rank_reports(&self) -> Vec<RankReport> {
        let mut bases: BTreeMap<&str, i64> = BTreeMap::new();
        for (id, process) in &self.processes {
            if let Some(base) = process.base_ns {
                bases.entry(&id.boot_id).and_modify(|first| *first = base.min(*first)).or_insert(base);
            }
        }
        let mut ranks: Vec<RankReport> = Vec::new();
        for (id, process) in &self.processes {
            let first = bases.get(id.boot_id.as_str()).copied();
            let shift_ms = match (process.base_ns, first) {
                (Some(base), Some(first)) => base.abs_diff(first) as f64 / 1e6,
                _ => 0.0,
            };
            for rank in &process.ranks {
                let mut rank = rank.clone();
                rank.steps.iter_mut().for_each(|step| step.start_ms += shift_ms);
                ranks.push(rank);
            }
        }
        ranks.sort_by_key(|rank| (rank.rank, rank.device));
        ranks
    }

    fn input(&self) -> InputReport {
        let mut input = InputReport {
            path: match self.processes.len() {
                1 => "1 process".to_owned(),
                count => format!("{count} processes"),
            },
            format: "commtrace-summary".to_owned(),
            ..InputReport::default()
        };
        for process in self.processes.values() {
            input.events += process.events;
            for (reason, count) in &process.skipped {
                *input.skipped.entry(reason.clone()).or_default() += count;
            }
            for (kind, count) in &process.anomalies {
                *input.anomalies.entry(kind.clone()).or_default() += count;
            }
        }
        input
    }

    fn warnings(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.processes.values().flat_map(|process| &process.warnings).collect();
        let mut warnings: Vec<String> = all.iter().take(WARNINGS).map(|&text| text.clone()).collect();
        if all.len() > WARNINGS {
            warnings.push(format!("Processes have {} more such messages.", all.len() - WARNINGS));
        }
        if !self.missing.is_empty() {
            let missing = name_ranks(self.missing.iter().copied());
            warnings.push(format!(
                "Nothing came from {} of the communicator's ranks in time, which are not in this report: {missing}.",
                self.missing.len()
            ));
        }
        warnings
    }

    /// What the samples tell together.
    fn cross_rank(&self, options: &AnalyzeOptions, warnings: &mut Vec<String>) -> Option<CrossRank> {
        if self.ranks().len() < 2 {
            return None;
        }
        let samples: Vec<&Sample> = self.processes.values().flat_map(|process| &process.samples).collect();
        let stride = samples.iter().map(|sample| sample.stride).max().unwrap_or(1);
        let records = samples
            .iter()
            .map(|sample| (PathBuf::from(format!("rank {}", sample.rank)), sample.record.as_slice()));
        let timeline = match read_in_memory(records, Thinning::new(stride)) {
            Ok(timeline) => timeline,
            Err(error) => {
                warnings.push(format!("Waits across ranks are not given: {error}"));
                return None;
            }
        };
        let thresholds = AnalyzeOptions { thresholds: options.thresholds, ..AnalyzeOptions::default() };
        let sampled = analyze(&timeline, &thresholds);
        let known: BTreeSet<String> = warnings.iter().cloned().collect();
        warnings.extend(sampled.warnings.into_iter().filter(|warning| !known.contains(warning)));
        if sampled.cross_rank.is_some() && stride > 1 {
            warnings.push(format!(
                "Figures across ranks are of one step in {stride}, the same on all ranks, since no record files were \
                 merged; sums over the run are about {stride} times as large."
            ));
        }
        let left_out: u64 = self.processes.values().map(|process: &ProcessSummary| process.left_out).sum();
        if sampled.cross_rank.is_some() && left_out > 0 {
            warnings.push(format!(
                "Of intervals outside of any step, figures across ranks have the first of each rank and not {left_out} \
                 later ones; mark steps with `step_span!`, or record into a folder that all ranks share."
            ));
        }
        sampled.cross_rank
    }
}
