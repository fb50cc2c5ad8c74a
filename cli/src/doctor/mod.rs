//! `commtrace doctor`: the state of a run, or what this machine offers to one.

mod check;
mod environment;
mod folder;
mod gpu;
pub mod probe;
mod process;
mod run;

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Say what a run hangs in, or without PATH what this machine offers to one.
///
/// With the record folder of a run that is live, hung, killed or finished: who is stuck, in what, since when,
/// who is missing; then who disagrees, who stopped, and what to do next. Without: driver, devices, NCCL,
/// MPI, the launcher's variables and those of commtrace, the clock, and whether the folder can be written
/// to, each problem with its remedy.
///
/// The exit status is 0 if nothing is wrong (a run that ended regularly, or goes on), and 1 if the run is
/// stuck, its ranks disagree or stopped, the environment has a problem, or PATH cannot be read.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Record folder (COMMTRACE_DIR) or record files.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// What to print: `text` for people, `json` for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,

    /// Only these ranks, for example `0,8`.
    #[arg(long, value_name = "LIST", value_parser = crate::args::ranks, requires = "paths")]
    pub ranks: Option<BTreeSet<u32>>,

    /// The run of this id; without it, a folder's newest.
    #[arg(long, value_name = "ID", requires = "paths")]
    pub run: Option<String>,

    /// A call is stuck if it is open for this long, and three times as long as the longest before it.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5", requires = "paths")]
    pub stuck_after: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Seconds as milliseconds.
fn seconds(text: &str) -> Result<u64, String> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok((seconds * 1e3).round() as u64),
        _ => Err("expected a number of seconds, 0 or more, such as 5 or 0.5".to_owned()),
    }
}

pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    if args.paths.is_empty() { environment::report(args.format) } else { run::report(args) }
}
