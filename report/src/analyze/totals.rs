//! Running totals in place of figures that a record no longer has.

use super::{AnalyzeOptions, RankReport};
use crate::timeline::Timeline;

/// Replaces the figures of ranks whose record stops before the run does (its size limit was reached)
/// by the totals that the recorder kept running and wrote at the end.
///
/// Totals cover the whole run, so they cannot answer for a range of steps: with such a filter the
/// record's own figures stay. Each replacement, and each that was not possible, is a warning.
pub(super) fn apply(
    ranks: &mut Vec<RankReport>,
    timeline: &Timeline,
    options: &AnalyzeOptions,
    warnings: &mut Vec<String>,
) {
    for input in &timeline.inputs {
        let (Some(rank), Some(capped)) = (input.rank, &input.capped) else { continue };
        if options.ranks.as_ref().is_some_and(|wanted| !wanted.contains(&rank)) {
            continue;
        }
        let totals = capped.summary_json.as_deref().map(serde_json::from_str::<Vec<RankReport>>);
        match totals {
            Some(Ok(totals)) if options.steps.is_none() => {
                ranks.retain(|figures| figures.rank != rank);
                ranks.extend(totals.into_iter().filter(|figures| figures.rank == rank));
                warnings.push(format!(
                    "The record of rank {rank} ({}) stops before the run does; the rank's figures are \
                     the totals that were kept while it ran, waits across ranks are of the recorded part.",
                    input.path
                ));
            }
            Some(Ok(_)) => warnings.push(format!(
                "The record of rank {rank} ({}) stops before the run does; steps after that are missing.",
                input.path
            )),
            Some(Err(_)) | None => warnings.push(format!(
                "The record of rank {rank} ({}) stops before the run does and has no totals of the rest: \
                 the rank's figures are of the recorded part.",
                input.path
            )),
        }
    }
    ranks.sort_by_key(|figures| (figures.rank, figures.device));
}

#[cfg(test)]
mod tests {
    use super::super::{StepRange, analyze};
    use super::*;
    use crate::timeline::{Capped, Comm, Input, Track};

    fn capped_timeline(summary_json: Option<String>) -> Timeline {
        let mut timeline = Timeline::default();
        let op = timeline.names.intern("all_reduce");
        for rank in 0..2 {
            let mut track = Track::new(rank, None);
            track.comm.push(Comm { step: Some(0), ..Comm::new(op, 0, 1_000_000) });
            timeline.tracks.push(track);
        }
        let capped = Some(Capped { limit_mib: Some(1), summary_json });
        timeline.inputs.push(Input { path: "rank-00001".into(), rank: Some(1), capped, ..Input::default() });
        timeline
    }

    /// Totals of rank 1 with seven events, as JSON.
    fn seven_events() -> String {
        let mut timeline = Timeline::default();
        let op = timeline.names.intern("all_reduce");
        let mut track = Track::new(1, None);
        for start in 0..7 {
            track.comm.push(Comm::new(op, start * 1_000_000, (start + 1) * 1_000_000));
        }
        timeline.tracks.push(track);
        serde_json::to_string(&analyze(&timeline, &AnalyzeOptions::default()).ranks).unwrap()
    }

    #[test]
    fn totals_replace_the_figures_of_their_rank_only() {
        let report = analyze(&capped_timeline(Some(seven_events())), &AnalyzeOptions::default());
        let events: Vec<_> = report.ranks.iter().map(|rank| rank.summary.num_comm_events).collect();
        assert_eq!(events, [1, 7]);
        assert_eq!(report.hotspot_events[0].sync_count, 7);
        assert!(report.warnings.iter().any(|warning| warning.contains("rank 1")), "{:?}", report.warnings);
    }

    #[test]
    fn without_usable_totals_the_recorded_part_stays_and_is_said() {
        for totals in [None, Some("not json".to_owned())] {
            let report = analyze(&capped_timeline(totals), &AnalyzeOptions::default());
            assert_eq!(report.ranks[1].summary.num_comm_events, 1);
            assert!(report.warnings.iter().any(|warning| warning.contains("recorded part")));
        }
    }

    #[test]
    fn totals_do_not_answer_for_some_steps() {
        let steps = Some(StepRange { start: Some(0), end: Some(1) });
        let options = AnalyzeOptions { steps, ..AnalyzeOptions::default() };
        let report = analyze(&capped_timeline(Some(seven_events())), &options);
        assert_eq!(report.ranks[1].summary.num_comm_events, 1);
    }
}
