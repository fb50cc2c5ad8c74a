//! `commtrace report`: from inputs to a rendered report.

use crate::args::{Format, ReportArgs};
use crate::failure::{Failure, message};
use crate::output;
use crate::progress::read;
use clap::error::ErrorKind;
use commtrace_report::advise::Thresholds;
use commtrace_report::analyze::{AnalyzeOptions, Report, StepRange, analyze};
use commtrace_report::render;
use commtrace_report::timeline::Timeline;
use std::collections::BTreeSet;

/// `--steps` leaves nothing of the inputs.
#[derive(Debug, thiserror::Error)]
#[error("no interval belongs to the steps of --steps {wanted}; {found}")]
struct NoSuchStep {
    wanted: String,
    found: String,
}

pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    if args.format == Format::Chrome && args.steps.is_some() {
        let text = "--steps cannot be used with --format chrome, which writes the whole timeline";
        return Err(Failure::usage("report", ErrorKind::ArgumentConflict, text));
    }
    let timeline = read(&args.input.paths, &args.input.read_options())?;
    let output = args.output.as_deref();
    if args.format == Format::Chrome {
        warn(&timeline.warnings);
        let chrome = render::ChromeOptions { align: !args.no_align };
        output::write(output, args.force, |mut out| render::write_chrome_with(&timeline, chrome, &mut out))?;
        return Ok(());
    }
    let report = analyze(&timeline, &options(args));
    if let Some(steps) = args.steps
        && is_empty(&report)
    {
        return Err(NoSuchStep { wanted: written(steps), found: found(&timeline) }.into());
    }
    let text = match args.format {
        Format::Json => {
            // The text report ends with its warnings; the JSON has no place for them.
            warn(&report.warnings);
            render::json(&report)
        }
        Format::Html => render::html(&report),
        Format::Text | Format::Chrome => render::text(&report, &render::TextOptions::default()),
    };
    output::write(output, args.force, |out| out.write_all(text.as_bytes()))?;
    Ok(())
}

fn options(args: &ReportArgs) -> AnalyzeOptions {
    AnalyzeOptions {
        steps: args.steps,
        ranks: args.input.ranks.clone(),
        align: !args.no_align,
        thresholds: Thresholds {
            imbalance: args.imbalance_threshold,
            overlap: args.overlap_threshold,
            accept_exposed_ms: args.accept_ms,
            ..Thresholds::default()
        },
    }
}

pub fn warn(warnings: &[String]) {
    for warning in warnings {
        message(&format!("warning: {warning}"));
    }
}

/// Whether no interval passed the filter.
fn is_empty(report: &Report) -> bool {
    report.ranks.iter().all(|rank| {
        let span_ms = rank.wall.map_or(0.0, |wall| wall.span_ms);
        rank.summary.num_comm_events == 0 && span_ms == 0.0 && rank.steps.is_empty()
    })
}

fn written(steps: StepRange) -> String {
    let side = |side: Option<i64>| side.map_or_else(String::new, |step| step.to_string());
    format!("{}..{}", side(steps.start), side(steps.end))
}

/// Which steps there are.
fn found(timeline: &Timeline) -> String {
    let steps: BTreeSet<i64> = timeline
        .tracks
        .iter()
        .flat_map(|track| {
            let named = track.compute.iter().filter_map(|interval| interval.step);
            named
                .chain(track.comm.iter().filter_map(|interval| interval.step))
                .chain(track.steps.iter().map(|step| step.step))
        })
        .collect();
    match (steps.first(), steps.last()) {
        (Some(first), Some(last)) => {
            format!("the inputs have {} of them, from {first} to {last}", steps.len())
        }
        _ => "the inputs name no steps".to_owned(),
    }
}
