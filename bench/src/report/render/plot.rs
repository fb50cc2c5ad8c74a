//! Log-log plots of time and bus bandwidth by payload, as inline SVG.

use super::scale::Log;
use crate::report::bytes;
use crate::report::curve::{Knee, Shape};
use crate::report::fit::Fit;
use commtrace_report::render::escape;
use commtrace_report::units;
use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
/// How many series have a colour and a mark of their own; more repeat them.
const LOOKS: usize = 6;

/// Rules for the plots' classes, in light and dark.
pub(super) const STYLE: &str = "\
:root{--s0:#1f6fc4;--s1:#c2410c;--s2:#15803d;--s3:#7e22ce;--s4:#a16207;--s5:#0e7490}\
@media(prefers-color-scheme:dark){:root{--s0:#7ab8ff;--s1:#ff9d66;--s2:#6fd893;--s3:#c9a0ff;--s4:#e6c34d;--s5:#67d3e6}}\
.s0{--s:var(--s0)}.s1{--s:var(--s1)}.s2{--s:var(--s2)}.s3{--s:var(--s3)}.s4{--s:var(--s4)}.s5{--s:var(--s5)}\
.mark{fill:var(--s);stroke:var(--s)}.hollow{fill:var(--back)}.line{fill:none;stroke:var(--s);stroke-width:1.5}\
.knee{stroke:var(--s);stroke-dasharray:4 3}.grid{stroke:var(--line)}.legend svg{vertical-align:middle}\
.legend span{margin-right:1.2em;white-space:nowrap}td{vertical-align:top}\
.reading th,.reading td{text-align:left}figure{margin:0 0 1rem}";

/// One curve.
pub(super) struct Series<'a> {
    pub name: String,
    pub shape: Option<&'a Shape>,
    pub points: Vec<Measured>,
    /// Not of the records: drawn hollow.
    pub hollow: bool,
}

/// One measured payload.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    pub bytes: f64,
    pub ms: f64,
    pub p95_ms: Option<f64>,
    pub busbw_gbps: Option<f64>,
}

/// What stands on the vertical axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    Time,
    Busbw,
}

impl Axis {
    fn title(self) -> &'static str {
        match self {
            Self::Time => "time by payload",
            Self::Busbw => "bus bandwidth by payload",
        }
    }

    fn unit(self, value: f64) -> String {
        match self {
            Self::Time => units::ms(value),
            Self::Busbw => units::gbs(value),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Time => "median, P95",
            Self::Busbw => "busbw GB/s",
        }
    }

    fn value(self, point: &Measured) -> Option<f64> {
        match self {
            Self::Time => Some(point.ms),
            Self::Busbw => point.busbw_gbps.filter(|gbps| *gbps > 0.0),
        }
    }

    /// The value at P95; the bandwidth is lower then.
    fn at_p95(self, point: &Measured) -> Option<f64> {
        let p95 = point.p95_ms?;
        match self {
            Self::Time => Some(p95),
            Self::Busbw => Some(self.value(point)? * point.ms / p95),
        }
    }
}

/// The plot of `series`; `None` if there is nothing to draw. `id` is the page's own for it.
pub(super) fn plot(id: &str, collective: &str, axis: Axis, series: &[Series<'_>]) -> Option<String> {
    let all = || series.iter().flat_map(|series| &series.points);
    let drawn = || all().filter(move |point| axis.value(point).is_some());
    let x = Log::around(drawn().map(|point| point.bytes), LEFT, WIDTH - RIGHT)?;
    let values = drawn().flat_map(|point| [axis.value(point), axis.at_p95(point)]).flatten();
    let y = Log::around(values, HEIGHT - BOTTOM, TOP)?;
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">{}: {}</title>\
         <desc id=\"{id}-d\">{} Both axes are logarithmic. The table below has the same figures.</desc>",
        escape(collective),
        axis.title(),
        escape(&format!(
            "Measured points with P95, the fit as a line and the knee as a dashed line, of {}.",
            names.join(", ")
        ))
    );
    grid(&mut svg, axis, x, y);
    for (index, series) in series.iter().enumerate() {
        let _ = write!(svg, "<g class=\"s{}\">", index % LOOKS);
        if let Some(shape) = series.shape {
            lines(&mut svg, axis, series, shape, x, y);
        }
        for point in &series.points {
            mark(&mut svg, axis, index, series, point, x, y);
        }
        svg.push_str("</g>");
    }
    svg.push_str("</svg>");
    Some(svg)
}

fn grid(svg: &mut String, axis: Axis, x: Log, y: Log) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for value in x.ticks(2.0, 8) {
        let Some(at) = x.at(value) else { continue };
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 15.0,
            bytes(value.round() as u64)
        );
    }
    for value in y.ticks(10.0, 8) {
        let Some(at) = y.at(value) else { continue };
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            axis.unit(value)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">payload per rank</text>\
         <text x=\"12\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 12 {2:.1})\">{}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 6.0,
        (TOP + bottom) / 2.0,
        axis.name()
    );
}

fn lines(svg: &mut String, axis: Axis, series: &Series<'_>, shape: &Shape, x: Log, y: Log) {
    // Bus bandwidth is the same multiple of bytes over time everywhere.
    let factor = series.points.iter().find_map(|point| Some(point.busbw_gbps? * point.ms / point.bytes));
    let value = |fit: &Fit, at: f64| match axis {
        Axis::Time => Some(fit.ms(at)),
        Axis::Busbw => Some(factor? * at / fit.ms(at)),
    };
    let parts: Vec<(&Fit, f64, f64)> = match (&shape.step, &shape.fit) {
        (Some(step), _) => vec![
            (&step.below, 0.0, step.below_bytes as f64),
            (&step.above, step.above_bytes as f64, f64::INFINITY),
        ],
        (None, Some(fit)) => vec![(fit, 0.0, f64::INFINITY)],
        (None, None) => Vec::new(),
    };
    for (fit, from, to) in parts {
        let path: Vec<String> = x
            .along(64)
            .filter(|bytes| (from..=to).contains(bytes))
            .filter_map(|bytes| Some((x.at(bytes)?, y.at(value(fit, bytes)?)?)))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        if path.len() > 1 {
            let _ = write!(svg, "<polyline class=\"line\" points=\"{}\"/>", path.join(" "));
        }
    }
    if let Knee::At(knee) = shape.knee
        && let Some(at) = x.at(knee as f64)
    {
        let _ = write!(
            svg,
            "<line class=\"knee\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{}\"><title>{}</title></line>",
            HEIGHT - BOTTOM,
            escape(&format!("{}: knee at {}", series.name, bytes(knee)))
        );
    }
}

fn mark(svg: &mut String, axis: Axis, index: usize, series: &Series<'_>, point: &Measured, x: Log, y: Log) {
    let Some(value) = axis.value(point) else { return };
    let (Some(left), Some(top)) = (x.at(point.bytes), y.at(value)) else { return };
    let p95 = axis.at_p95(point);
    if let Some(end) = p95.and_then(|p95| y.at(p95)) {
        let _ = write!(
            svg,
            "<path class=\"line\" d=\"M{left:.1} {top:.1}V{end:.1}M{:.1} {end:.1}h8\"/>",
            left - 4.0
        );
    }
    let said = p95.map(|p95| format!(", {} at P95", axis.unit(p95))).unwrap_or_default();
    let title = format!("{}, {}: {}{said}", series.name, bytes(point.bytes as u64), axis.unit(value));
    svg.push_str(&symbol(index, left, top, series.hollow, &title));
}

/// A mark that differs in form too, not in colour alone.
fn symbol(index: usize, x: f64, y: f64, hollow: bool, title: &str) -> String {
    let path = match index % LOOKS {
        0 => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
        1 => "m-4-4h8v8h-8z",
        2 => "m0-5l5 9h-10z",
        3 => "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
        4 => "m0 5l5-9h-10z",
        _ => "m-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    };
    let class = if hollow { "mark hollow" } else { "mark" };
    let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) };
    format!("<path class=\"{class}\" d=\"M{x:.1} {y:.1}{path}\">{title}</path>")
}

/// Names of the series beside their marks.
pub(super) fn legend(series: &[Series<'_>]) -> String {
    let mut html = "<p class=\"legend\">".to_owned();
    for (index, series) in series.iter().enumerate() {
        let _ = write!(
            html,
            "<span><svg class=\"s{}\" viewBox=\"-7 -7 14 14\" width=\"14\" height=\"14\" aria-hidden=\"true\">{}</svg> \
             {}</span>",
            index % LOOKS,
            symbol(index, 0.0, 0.0, series.hollow, ""),
            escape(&series.name)
        );
    }
    html + "</p>"
}
