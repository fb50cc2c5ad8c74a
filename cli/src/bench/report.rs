//! `commtrace bench report`: what records show.

use crate::failure::Failure;
use crate::output;
use clap::{Args, ValueEnum};
use commtrace_bench::report::{Sources, render, report};
use std::path::PathBuf;

/// Read records of `commtrace bench`: startup latency, knee and bandwidth plateau per collective and algorithm, which
/// algorithm was fastest, what overlapping gained, and what to do next.
///
/// Records are compared only with those of the same backend, world size, element type, protocol and hardware. Files that
/// cannot be used are named with the reason. Failed candidates are listed; the exit status is 0 all the same.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folder of records (`-o` of `commtrace bench collectives` and `overlap`), or a record. Outputs of nccl-tests in the
    /// folder are put beside them.
    #[arg(required = true, value_name = "DIR")]
    paths: Vec<PathBuf>,

    /// Outputs of nccl-tests, text or JSON, to put beside the records.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    nccl_tests: Vec<PathBuf>,

    /// What to print: `text` and `html` for people, `json` for programs.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Write to this file instead of stdout. An existing file is an error without --force.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file of --output if it exists.
    #[arg(long, requires = "output")]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Html,
}

pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let report = report(Sources::read(&args.paths, &args.nccl_tests)?);
    let text = match args.format {
        Format::Text => render::text(&report),
        Format::Json => render::json(&report),
        Format::Html => render::html(&report),
    };
    output::write(args.output.as_deref(), args.force, |out| out.write_all(text.as_bytes()))?;
    Ok(())
}
