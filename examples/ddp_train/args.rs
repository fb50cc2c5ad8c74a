//! The command line.

use crate::common::options::{Backend, Overlap, SlowRank, at_least_one, check_slow_rank, learning_rate};
use clap::{CommandFactory, Parser, error::ErrorKind};

/// Data-parallel training of a small network on the wine quality data set, traced by commtrace.
///
/// With no variable set the run ends with commtrace's summary on stderr; COMMTRACE_DIR=DIR records it
/// into DIR, COMMTRACE=off switches tracing off. The exit status is 1 if the loss did not fall or the
/// ranks' weights differ.
#[derive(Debug, Parser)]
#[command(name = "ddp_train", allow_negative_numbers = true)]
pub struct Args {
    /// Number of ranks; with `--backend mpi`, mpirun says how many there are.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub ranks: usize,

    /// Number of training steps.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one)]
    pub steps: usize,

    /// Samples per rank and step.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub batch: usize,

    /// Width of the four hidden layers.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_least_one)]
    pub hidden: usize,

    /// When gradients are averaged: beside backward (`on`), or blocking after it (`off`).
    #[arg(long, value_enum, default_value_t = Overlap::Off)]
    pub overlap: Overlap,

    /// Gradients are averaged in buckets of at least this many KiB (the last may be smaller).
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = at_least_one)]
    pub bucket_kib: usize,

    /// Rank R computes MS milliseconds longer in every step (it sleeps in a compute span, so that the
    /// other ranks keep their cores).
    #[arg(long, value_name = "R:MS")]
    pub slow_rank: Option<SlowRank>,

    /// Step size of SGD; its momentum is 0.9.
    #[arg(long, value_name = "RATE", default_value_t = 0.01, value_parser = learning_rate)]
    pub learning_rate: f32,

    /// What carries the collectives: `local` is threads of this process; `nccl` is GPUs, of this process or
    /// (with torchrun's variables) one per process; `mpi` is the processes that mpirun started (needs
    /// `--features mpi` when building).
    #[arg(long, value_enum, default_value_t = Backend::Local)]
    pub backend: Backend,
}

impl Args {
    /// The arguments; ends the process with a message and status 2 if they are wrong.
    pub fn from_command_line() -> Self {
        let args = Self::parse();
        if args.backend != Backend::Mpi {
            args.check_ranks(args.ranks);
        }
        args
    }

    /// Ends the process with a message and status 2 if an argument names a rank that `ranks` ranks do not have.
    pub fn check_ranks(&self, ranks: usize) {
        if let Err(problem) = check_slow_rank(self.slow_rank, ranks) {
            Self::command().error(ErrorKind::ValueValidation, problem).exit();
        }
    }
}
