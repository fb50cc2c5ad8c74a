//! Data-parallel training of a small network, traced: run it and read where its communication time
//! was exposed.
//!
//! ```text
//! cargo run --release --example ddp_train                      # the summary at the end, on stderr
//! cargo run --release --example ddp_train -- --overlap on      # all_reduce beside backward
//! cargo run --release --example ddp_train -- --slow-rank 1:20  # one rank computes 20 ms longer
//! COMMTRACE_DIR=out cargo run --release --example ddp_train    # records and reports in out/
//! ```
//!
//! The ranks are threads of this process, or GPUs with `--features nccl` and `--backend nccl`. `train` is written against the trait `Communicator`, so that
//! the same code runs on other backends.

mod args;
mod buckets;
mod data;
mod model;
#[cfg(feature = "nccl")]
mod nccl;
mod train;

use args::{Args, Backend};
use commtrace::prelude::*;
use commtrace::{Config, Mode};
use std::error::Error;
use std::process::ExitCode;
use train::{Outcome, train};

fn main() -> ExitCode {
    let args = Args::from_command_line();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    // Without this line nothing is traced; `commtrace::init()` would leave it all to the environment.
    let _trace = Config::from_env()?.default_mode(Mode::Summary).init()?;

    let data = data::load();
    let outcomes = match args.backend {
        Backend::Local => {
            let ranks = LocalComm::run(args.ranks, |comm| train(&comm, &data, args));
            ranks.into_iter().collect::<Result<Vec<_>, _>>()?
        }
        #[cfg(feature = "nccl")]
        Backend::Nccl => nccl::run(&data, args).map_err(|error| -> Box<dyn Error> { error })?,
        #[cfg(not(feature = "nccl"))]
        Backend::Nccl => return Err("--backend nccl: build with --features nccl".into()),
    };
    outcomes.first().map_or(Ok(()), check)
}

/// Whether training did what it is for: the loss fell, and all ranks have the same weights.
fn check(outcome: &Outcome) -> Result<(), Box<dyn Error>> {
    let (before, after) = (outcome.before.loss, outcome.after.loss);
    println!(
        "loss {before:.4} -> {after:.4} and accuracy {:.3} -> {:.3} on data that was not trained on",
        outcome.before.accuracy, outcome.after.accuracy
    );
    if let Some(rank) = outcome.weights.iter().position(|hash| *hash != outcome.weights[0]) {
        return Err(format!("the weights of rank {rank} differ from those of rank 0").into());
    }
    println!("weights are bit-identical on all ranks (hash {:016x})", outcome.weights[0]);
    // Also false where the loss is NaN.
    if after < before { Ok(()) } else { Err("the loss did not fall: try a lower --learning-rate".into()) }
}
