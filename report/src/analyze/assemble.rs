//! From figures per rank to a report.

use super::desync::{self, DesyncOptions};
use super::filter::select;
use super::hotspot::hotspot_event;
use super::matching::Matching;
use super::rank::rank_report;
use super::report::REPORT_SCHEMA_VERSION;
use super::routing::{expert_routing, mark_losses};
use super::side_by_side::side_by_side;
use super::stragglers::stragglers;
use super::waits::cross_rank;
use super::{
    AnalyzeOptions, Cover, CrossRank, InputReport, OpSummary, RankReport, Report, Straggler, totals,
};
use crate::advise::{
    Followup, HotspotEvent, Strategy, Thresholds, choose_comm_mitigation_with, experts_are_even,
    explain_expert_load, is_all_to_all, recommend_comm_followup_with, summarize_comm_hotspots,
};
use crate::parallel::in_parallel;
use crate::timeline::{Sym, Timeline};
use indexmap::IndexMap;
use std::collections::HashMap;

/// Stragglers that the reason names.
const NAMED: usize = 2;

/// The kind under which inputs count events that end before they start.
const END_BEFORE_START: &str = "end_before_start";

/// Analyzes a timeline: figures per rank and device, waits across ranks, hotspots and advice.
///
/// ```
/// use commtrace_report::analyze::{AnalyzeOptions, analyze};
/// use commtrace_report::timeline::{Comm, Compute, Timeline, Track};
///
/// let mut timeline = Timeline::default();
/// let forward = timeline.names.intern("forward");
/// let all_reduce = timeline.names.intern("all_reduce");
/// let mut track = Track::new(0, None);
/// track.compute.push(Compute { name: forward, start_ns: 0, end_ns: 2_000_000, step: None });
/// track.comm.push(Comm::new(all_reduce, 1_000_000, 2_500_000));
/// timeline.tracks.push(track);
///
/// let report = analyze(&timeline, &AnalyzeOptions::default());
/// assert_eq!(report.ranks[0].summary.exposed_comm_time, Some(0.5));
/// ```
pub fn analyze(timeline: &Timeline, options: &AnalyzeOptions) -> Report {
    let selected = select(timeline, options);
    let bases = bases_ns(timeline);
    let of_track = in_parallel(&selected, |one| {
        let cover = Cover::new(one.track.compute.starts_ns(), one.track.compute.ends_ns());
        let base_ns = bases.get(&one.track.clock).copied().unwrap_or(0);
        let report = rank_report(one, &cover, base_ns, &timeline.names);
        (cover, report)
    });
    let (covers, mut ranks): (Vec<Cover>, Vec<RankReport>) = of_track.into_iter().unzip();
    let mut warnings = timeline.warnings.clone();
    let mut matching = Matching::new(timeline, &selected);
    if options.align {
        matching.align(&mut warnings);
    }
    let desync_options = DesyncOptions { ranks: options.ranks.clone(), ..DesyncOptions::default() };
    // The stragglers take about as long as all else.
    let (found, (mut cross_rank, out_of_step)) = side_by_side(
        || stragglers(&matching, &covers),
        || {
            let across = cross_rank(&matching, &covers, &mut warnings);
            (across, desync::find(timeline, &matching, &desync_options))
        },
    );
    // Without waits there is nobody to blame for them.
    if let Some(across) = cross_rank.as_mut().filter(|across| !across.ops.is_empty()) {
        (across.stragglers, across.by_rank) = found;
    }
    if !out_of_step.is_empty() {
        // Also where no collective could be matched: that is what a hang in the first one looks like.
        cross_rank.get_or_insert_default().desync = out_of_step;
    }
    totals::apply(&mut ranks, timeline, options, &mut warnings);
    mark_losses(&mut ranks, timeline);
    let inputs = inputs(timeline, &mut warnings);
    assemble(ranks, cross_rank, inputs, warnings, options)
}

/// A report from figures that were aggregated elsewhere: adds hotspots and advice.
///
/// `ranks` should be in ascending order of rank and device. [`AnalyzeOptions::thresholds`] decides the
/// advice; the filters are not applied.
pub fn assemble(
    ranks: Vec<RankReport>,
    mut cross_rank: Option<CrossRank>,
    inputs: Vec<InputReport>,
    warnings: Vec<String>,
    options: &AnalyzeOptions,
) -> Report {
    if let Some(routing) = expert_routing(&ranks) {
        cross_rank.get_or_insert_default().routing = Some(Box::new(routing));
    }
    let thresholds = &options.thresholds;
    let hotspot_events = hotspot_events(&ranks, cross_rank.as_ref(), thresholds);
    let hotspots = summarize_comm_hotspots(&hotspot_events);
    let mitigation = choose_comm_mitigation_with(&hotspots, thresholds);
    let mut followup = recommend_comm_followup_with(&hotspots, &mitigation, thresholds);
    if let Some(across) = &cross_rank {
        name_stragglers(&mut followup, &across.stragglers);
        if let Some(load) = across.routing.as_deref().and_then(explain_expert_load)
            && mitigation.strategy == Strategy::RebalanceRanksOrExperts
        {
            followup.reason.push(' ');
            followup.reason.push_str(&load);
        }
    }
    Report {
        schema_version: REPORT_SCHEMA_VERSION,
        inputs,
        ranks,
        hotspot_events,
        hotspots,
        mitigation,
        followup,
        cross_rank,
        warnings,
    }
}

/// Says in the reason who is late, and with what. The decision stays that of the thresholds.
fn name_stragglers(followup: &mut Followup, stragglers: &[Straggler]) {
    for straggler in stragglers.iter().take(NAMED) {
        followup.reason.push(' ');
        followup.reason.push_str(&straggler.in_words());
    }
    let more = stragglers.len().saturating_sub(NAMED);
    if more > 0 {
        followup.reason.push_str(&format!(" {more} more ranks are late, too."));
    }
}

/// One event per op, with the figures of the rank that has the largest exposed time for it: ranks run
/// side by side and must not be added up.
fn hotspot_events(
    ranks: &[RankReport],
    cross_rank: Option<&CrossRank>,
    thresholds: &Thresholds,
) -> Vec<HotspotEvent> {
    let mut worst: IndexMap<&str, (&OpSummary, u32)> = IndexMap::new();
    for rank in ranks {
        for (op, figures) in &rank.summary.by_op {
            let best = worst.entry(op).or_insert((figures, rank.rank));
            // An unknown exposed time is less than any; of two, the longer time counts.
            let longer =
                figures.exposed_time.is_none() && best.0.exposed_time.is_none() && figures.time > best.0.time;
            if longer || figures.exposed_time > best.0.exposed_time {
                *best = (figures, rank.rank);
            }
        }
    }
    let across = |op: &str| cross_rank?.ops.iter().find(|across| across.collective == op);
    // Waits of token exchanges whose experts are evenly loaded, and which no rank clearly causes: there is
    // nothing to rebalance, however unevenly the machine served the ranks.
    let nobody_is_to_blame = cross_rank.is_some_and(|across| {
        across.stragglers.is_empty() && across.routing.as_deref().and_then(experts_are_even) == Some(true)
    });
    worst
        .into_iter()
        .map(|(op, (figures, rank))| {
            let mut event = hotspot_event(op, figures);
            event.rank = Some(rank);
            if let Some(across) = across(op) {
                event.rank_imbalance_ratio = Some(across.rank_imbalance_ratio);
                event.rank_imbalance_observed = true;
                if across.bootstrap_steps >= thresholds.min_steps_for_bound {
                    event.rank_imbalance_lower = across.rank_imbalance_lower;
                }
                if is_all_to_all(op) && nobody_is_to_blame {
                    event.rank_imbalance_lower = Some(0.0);
                }
            }
            event
        })
        .collect()
}

/// The earliest start per clock; times of different clocks have no common origin.
fn bases_ns(timeline: &Timeline) -> HashMap<Option<Sym>, i64> {
    let mut bases = HashMap::new();
    for track in &timeline.tracks {
        let compute = track.compute.starts_ns().iter().zip(track.compute.ends_ns());
        let comm = track.comm.starts_ns().iter().zip(track.comm.ends_ns());
        let steps = track.steps.iter().map(|step| (&step.start_ns, &step.end_ns));
        // What ends before it starts has a wrong time, which must not become everyone's origin.
        let sound = compute.chain(comm).chain(steps).filter(|(start, end)| start <= end);
        if let Some(&first) = sound.map(|(start, _)| start).min() {
            bases.entry(track.clock).and_modify(|base: &mut i64| *base = first.min(*base)).or_insert(first);
        }
    }
    bases
}

/// The inputs, with events that end before they start counted even if the reader did not.
fn inputs(timeline: &Timeline, warnings: &mut Vec<String>) -> Vec<InputReport> {
    let mut inputs: Vec<InputReport> = timeline.inputs.iter().map(InputReport::from).collect();
    let counted: u64 = inputs.iter().filter_map(|input| input.anomalies.get(END_BEFORE_START)).sum();
    let reversed = |starts: &[i64], ends: &[i64]| starts.iter().zip(ends).filter(|(s, e)| e < s).count();
    let found: usize = timeline
        .tracks
        .iter()
        .map(|track| {
            reversed(track.compute.starts_ns(), track.compute.ends_ns())
                + reversed(track.comm.starts_ns(), track.comm.ends_ns())
        })
        .sum();
    let found = found as u64;
    if found > counted
        && let [input] = inputs.as_mut_slice()
    {
        input.anomalies.insert(END_BEFORE_START.to_string(), found);
    }
    if found > 0 {
        warnings.push(format!(
            "{found} {} before the start; counted with duration 0.",
            if found == 1 { "event ends" } else { "events end" }
        ));
    }
    inputs
}
