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
//! The ranks are threads of this process, GPUs with `--features nccl` and `--backend nccl`, or processes that MPI
//! connects:
//!
//! ```text
//! cargo build --release --features mpi --example ddp_train
//! mpirun -n 4 target/release/examples/ddp_train --backend mpi --slow-rank 2:30
//! ```
//!
//! `train` is written against the trait `Communicator`, so that the same code runs on every backend.

mod args;
mod buckets;
#[path = "../common/mod.rs"]
mod common;
mod model;
#[cfg(feature = "nccl")]
mod nccl;
mod train;

use args::Args;
use common::data::{self, Data};
use common::options::Backend;
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
    let trace = Config::from_env()?.default_mode(Mode::Summary).init()?;

    let data = data::load();
    match args.backend {
        Backend::Local => {
            let outcomes = LocalComm::run(args.ranks, |comm| train(&comm, &data, args));
            let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
            drop(trace);
            outcomes.first().map_or(Ok(()), |outcome| check(outcome, true))
        }
        #[cfg(feature = "nccl")]
        Backend::Nccl => {
            let rank = |comm: &_, streams: &_| nccl::train(comm, streams, &data, args);
            let outcomes = common::gpu::run(trace, args.ranks, args.overlap, rank)
                .map_err(|error| -> Box<dyn Error> { error })?;
            outcomes.first().map_or(Ok(()), |outcome| check(outcome, true))
        }
        #[cfg(not(feature = "nccl"))]
        Backend::Nccl => Err("--backend nccl: build with --features nccl".into()),
        Backend::Mpi => train_under_mpi(trace, &data, args),
    }
}

/// One rank per process.
#[cfg(feature = "mpi")]
fn train_under_mpi(trace: commtrace::Guard, data: &Data, args: &Args) -> Result<(), Box<dyn Error>> {
    // When a rank dies, mpirun ends the others with SIGTERM.
    commtrace::finish_on_sigterm()?;
    let comm = MpiComm::world()?;
    args.check_ranks(comm.size());
    let outcome = train(&comm, data, args)?;
    // Gathers what the ranks recorded, so that rank 0 reports on all.
    trace.finish(&comm);
    check(&outcome, comm.rank() == 0)
}

#[cfg(not(feature = "mpi"))]
fn train_under_mpi(_: commtrace::Guard, _: &Data, _: &Args) -> Result<(), Box<dyn Error>> {
    Err("this program was built without MPI: build it with `cargo build --features mpi --example ddp_train`, \
         which needs an MPI library (libopenmpi-dev) and libclang"
        .into())
}

/// Whether training did what it is for: the loss fell, and all ranks have the same weights.
/// One rank says so.
fn check(outcome: &Outcome, speaks: bool) -> Result<(), Box<dyn Error>> {
    let (before, after) = (outcome.before.loss, outcome.after.loss);
    if speaks {
        println!(
            "loss {before:.4} -> {after:.4} and accuracy {:.3} -> {:.3} on data that was not trained on",
            outcome.before.accuracy, outcome.after.accuracy
        );
    }
    if let Some(rank) = outcome.weights.iter().position(|hash| *hash != outcome.weights[0]) {
        return Err(format!("the weights of rank {rank} differ from those of rank 0").into());
    }
    if speaks {
        println!("weights are bit-identical on all ranks (hash {:016x})", outcome.weights[0]);
    }
    // Also false where the loss is NaN.
    if after < before { Ok(()) } else { Err("the loss did not fall: try a lower --learning-rate".into()) }
}
