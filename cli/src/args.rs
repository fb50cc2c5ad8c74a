//! The command line.

use crate::bench::args::BenchArgs;
use crate::bench::rank::{self, RankArgs};
use crate::convert::ConvertArgs;
use crate::doctor::DoctorArgs;
use crate::doctor::probe::{self, ProbeArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
use commtrace_report::analyze::StepRange;
use commtrace_report::classify::CommPattern;
use commtrace_report::read::ReadOptions;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Where a training run's communication time was exposed, why, and what to try next.
///
/// Results go to stdout, messages to stderr. The exit status is 0, 1 if the run failed (an input that is
/// missing or unreadable included), and 2 for bad usage.
#[derive(Debug, Parser)]
#[command(name = "commtrace", version, arg_required_else_help = true, subcommand_required = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Report(Box<ReportArgs>),
    Convert(Box<ConvertArgs>),
    Estimate(EstimateArgs),
    Bench(Box<BenchArgs>),
    Doctor(DoctorArgs),
    /// Load a library and say what it is; for `doctor`.
    #[command(name = probe::NAME, hide = true)]
    Probe(ProbeArgs),
    /// Run as ranks of an experiment; for `bench`.
    #[command(name = rank::NAME, hide = true)]
    BenchRank(Box<RankArgs>),
}

/// Analyze record folders, record files, timeline JSON files, traces of PyTorch's profiler,
/// exports of Nsight Systems (`nsys export --type sqlite`), and what NCCL's tools write: dumps of the
/// Inspector, debug logs, and tables of nccl-tests.
///
/// PATHs are read into one timeline; their format is recognised by content. Of a folder with several
/// runs the newest is read.
#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub input: InputArgs,

    /// What to print: `text` and `html` for people, `json` for programs, `chrome` for Perfetto.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Write to this file instead of stdout. An existing file is an error without --force.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace the file of --output if it exists.
    #[arg(long, requires = "output")]
    pub force: bool,

    /// Only these steps, half-open: `10..20` is steps 10 to 19; `10..` and `..20` are open.
    #[arg(long, value_name = "A..B")]
    pub steps: Option<StepRange>,

    /// Take all times as those of one clock, instead of aligning clocks that differ or of which nothing is
    /// known by the ends of collectives.
    #[arg(long)]
    pub no_align: bool,

    /// Share of a collective's time lost to the same late ranks above which ranks are to be rebalanced.
    #[arg(long, value_name = "RATIO", value_parser = ratio, default_value = "0.20", help_heading = "Advice")]
    pub imbalance_threshold: f64,

    /// Overlap ratio below which exposed communication is to be overlapped or delayed.
    #[arg(long, value_name = "RATIO", value_parser = ratio, default_value = "0.30", help_heading = "Advice")]
    pub overlap_threshold: f64,

    /// Exposed time of the worst op, in milliseconds, up to which the run is accepted.
    #[arg(long, value_name = "MS", value_parser = milliseconds, default_value = "5.0", help_heading = "Advice")]
    pub accept_ms: f64,
}

/// What to read, and how.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// Record folder (COMMTRACE_DIR), record file, timeline JSON file, trace, or folder of traces.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Only these ranks, for example `0,8`.
    #[arg(long, value_name = "LIST", value_parser = ranks)]
    pub ranks: Option<BTreeSet<u32>>,

    /// Only records of this run.
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,

    /// Rank of a trace by its path: the first group of this expression, or all of it.
    ///
    /// Stands above what the trace says of itself. Without it, names such as `rank0`, `r1t03_` and `_0.json`
    /// are understood.
    #[arg(long, value_name = "REGEX", help_heading = "Traces")]
    pub rank_regex: Option<String>,

    /// Kernels and events that are communication: what to call them, and an expression for their names.
    ///
    /// May be given several times. Comes before the built-in rules, which know NCCL, RCCL and the custom
    /// all-reduce and all-to-all kernels of common libraries.
    #[arg(long, value_name = "NAME=REGEX", help_heading = "Traces")]
    pub comm_pattern: Vec<CommPattern>,

    /// Events that are compute in a trace that does not say so: an expression for their names.
    #[arg(long, value_name = "REGEX", help_heading = "Traces")]
    pub compute_pattern: Option<String>,

    /// Count memory copies and memsets of devices as compute; otherwise they are neither.
    #[arg(long, help_heading = "Traces")]
    pub copies_as_compute: bool,

    /// NVTX ranges that are training steps: an expression for their names, whose first group is the number.
    ///
    /// Without a number in the match, steps are counted from 0. By default, names such as `step 12`,
    /// `train_step=12`, `iteration 12` and `ProfilerStep#12` are steps.
    #[arg(long, value_name = "REGEX", help_heading = "Traces")]
    pub step_pattern: Option<String>,
}

impl InputArgs {
    /// The library's options.
    pub fn read_options(&self) -> ReadOptions {
        ReadOptions {
            run: self.run.clone(),
            ranks: self.ranks.clone(),
            rank_regex: self.rank_regex.clone(),
            comm_patterns: self.comm_pattern.clone(),
            compute_pattern: self.compute_pattern.clone(),
            copies_as_compute: self.copies_as_compute,
            step_pattern: self.step_pattern.clone(),
        }
    }
}

/// Estimate what repeated collectives cost: K * (startup latency + payload / bandwidth).
#[derive(Debug, Args)]
pub struct EstimateArgs {
    /// Payload of one collective, in bytes; `1e9` is understood.
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub payload_bytes: u64,

    /// Fixed cost of starting one collective, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = number, allow_negative_numbers = true)]
    pub startup_latency: f64,

    /// Effective bandwidth, topology and contention included, in bytes per second.
    #[arg(long, value_name = "BYTES/S", value_parser = number, allow_negative_numbers = true)]
    pub bandwidth: f64,

    /// Number of collectives.
    #[arg(long, value_name = "K", value_parser = whole, default_value = "1", allow_negative_numbers = true)]
    pub sync_count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Html,
    Chrome,
}

pub fn ranks(text: &str) -> Result<BTreeSet<u32>, String> {
    text.split(',')
        .map(|part| part.trim().parse())
        .collect::<Result<_, _>>()
        .map_err(|_| "expected a comma-separated list of ranks such as 0,8".to_owned())
}

fn number(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| "expected a number such as 0.00002 or 2e-5".to_owned())
}

/// A whole number, also in the notation of floating-point numbers where that is exact.
fn whole(text: &str) -> Result<u64, String> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let text = text.trim();
    if let Ok(value) = text.parse() {
        return Ok(value);
    }
    match text.parse::<f64>() {
        Ok(value) if (0.0..=EXACT).contains(&value) && value.fract() == 0.0 => Ok(value as u64),
        _ => Err("expected a whole number of 0 or more, such as 4194304 or 1e9".to_owned()),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("expected a ratio from 0 to 1".to_owned()),
    }
}

fn milliseconds(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("expected a finite number of milliseconds, 0 or more".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use commtrace_report::advise::Thresholds;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn whole_numbers() {
        assert_eq!(whole("1e9"), Ok(1_000_000_000));
        assert_eq!(whole("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(whole("0"), Ok(0));
        for bad in ["1.5", "-1", "nan", "inf", "1e300", "", "1 MB"] {
            assert!(whole(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_defaults_of_the_advice_are_the_librarys() {
        let cli = Cli::parse_from(["commtrace", "report", "out"]);
        let Command::Report(args) = cli.command else { panic!("another command") };
        let thresholds = Thresholds::default();
        assert_eq!(args.imbalance_threshold, thresholds.imbalance);
        assert_eq!(args.overlap_threshold, thresholds.overlap);
        assert_eq!(args.accept_ms, thresholds.accept_exposed_ms);
    }
}
