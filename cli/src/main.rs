//! The `commtrace` command: reports from records and traces. Thin over the libraries.
//!
//! Results go to stdout, messages to stderr. Exit status: 0, 1 for a failed run, 2 for bad usage.

mod args;
mod bench;
mod convert;
mod doctor;
mod estimate;
mod failure;
mod output;
mod progress;
mod report;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Report(args) => report::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Estimate(args) => estimate::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::BenchRank(args) => bench::rank::run(*args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Probe(args) => doctor::probe::answer(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => error.exit(),
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::Run(error)) => {
            failure::print(error.as_ref());
            ExitCode::FAILURE
        }
    }
}
