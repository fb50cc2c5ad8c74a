//! The command line.

use crate::common::options::{Backend, Overlap, SlowRank, at_least_one, check_slow_rank, learning_rate};
use clap::{CommandFactory, Parser, error::ErrorKind};

/// How many times as wide as the model the inside of a layer is.
pub const EXPANSION: usize = 4;

/// Tensor-parallel training of a residual MLP on the wine quality data set, traced by commtrace.
///
/// With no variable set the run ends with commtrace's summary on stderr; COMMTRACE_DIR=DIR records it
/// into DIR, COMMTRACE=off switches tracing off. At the end the result is compared with that of the same
/// model on one rank. The exit status is 1 if they differ, if the loss did not fall, or if ranks differ where
/// they must be equal.
#[derive(Debug, Clone, Parser)]
#[command(name = "tensor_parallel", allow_negative_numbers = true)]
pub struct Args {
    /// Number of ranks; with `--backend mpi`, mpirun says how many there are.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub ranks: usize,

    /// Number of replicas of the model, over which batches are divided; the ranks of a replica divide its layers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub data_parallel: usize,

    /// Number of training steps.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = at_least_one)]
    pub steps: usize,

    /// Samples per replica and step.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one)]
    pub batch: usize,

    /// Width of the model; within a layer it is four times as wide.
    #[arg(long, value_name = "N", default_value_t = 192, value_parser = at_least_one)]
    pub hidden: usize,

    /// Number of layers, each a column-parallel and a row-parallel product.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one)]
    pub layers: usize,

    /// When gradients of activations are summed: beside the product that makes the gradients of the weights
    /// (`on`), or blocking before it (`off`).
    #[arg(long, value_enum, default_value_t = Overlap::Off)]
    pub overlap: Overlap,

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
        // Elsewhere a launcher may say how many ranks there are.
        if args.backend == Backend::Local {
            args.check_ranks(args.ranks);
        }
        args
    }

    /// Ends the process with a message and status 2 if the arguments do not fit `ranks` ranks.
    pub fn check_ranks(&self, ranks: usize) {
        if let Err(problem) = self.tensor_parallel(ranks) {
            Self::command().error(ErrorKind::ValueValidation, problem).exit();
        }
    }

    /// How many of `ranks` ranks divide a replica's layers, or what does not fit that many.
    pub fn tensor_parallel(&self, ranks: usize) -> Result<usize, String> {
        check_slow_rank(self.slow_rank, ranks)?;
        let (replicas, inner) = (self.data_parallel, EXPANSION * self.hidden);
        if !ranks.is_multiple_of(replicas) {
            return Err(format!("--data-parallel {replicas}: {ranks} ranks cannot be divided by it"));
        }
        let size = ranks / replicas;
        if !inner.is_multiple_of(size) {
            return Err(format!(
                "--hidden {}: {size} ranks cannot divide the {inner} columns of a layer",
                self.hidden
            ));
        }
        Ok(size)
    }

    /// The same training on one rank: the samples of all replicas are one batch.
    pub fn unsplit(&self) -> Self {
        Self { data_parallel: 1, batch: self.batch * self.data_parallel, slow_rank: None, ..self.clone() }
    }
}
