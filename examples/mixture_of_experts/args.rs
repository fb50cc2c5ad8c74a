//! The command line.

use crate::common::options::{Backend, Overlap, at_least_one};
use clap::{CommandFactory, Parser, error::ErrorKind};

/// Mixture-of-experts inference with skewed routing, traced by commtrace.
///
/// With no variable set the run ends with commtrace's summary on stderr; COMMTRACE_DIR=DIR records it
/// into DIR, COMMTRACE=off switches tracing off. The exit status is 1 if a rank's output differs from what
/// it gets by computing all experts itself.
#[derive(Debug, Clone, Parser)]
#[command(name = "mixture_of_experts", allow_negative_numbers = true)]
pub struct Args {
    /// Number of ranks; with `--backend mpi`, mpirun says how many there are.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one)]
    pub ranks: usize,

    /// Number of steps; each has a new batch.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = at_least_one)]
    pub steps: usize,

    /// Tokens per rank and step.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_least_one)]
    pub tokens: usize,

    /// Length of a token's vector; an expert's inner layer is four times as wide.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = at_least_one)]
    pub hidden: usize,

    /// Experts on each rank.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    pub experts_per_rank: usize,

    /// The hot expert gets S times the mean load, the others share the rest evenly; 1 is balanced, and the
    /// number of all experts sends every token to the hot one.
    #[arg(long, value_name = "S", default_value_t = 4.0, value_parser = skew)]
    pub skew: f64,

    /// The rank whose first expert is the hot one.
    #[arg(long, value_name = "R", default_value_t = 0)]
    pub hot_rank: usize,

    /// Whether the batch is split in two, so that one half's tokens travel while the other's are computed.
    #[arg(long, value_enum, default_value_t = Overlap::Off)]
    pub overlap: Overlap,

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

    /// Ends the process with a message and status 2 if an argument does not fit a job of `ranks` ranks.
    pub fn check_ranks(&self, ranks: usize) {
        if let Err(text) = self.fits(ranks) {
            Self::command().error(ErrorKind::ValueValidation, text).exit();
        }
    }

    fn fits(&self, ranks: usize) -> Result<(), String> {
        let experts = ranks * self.experts_per_rank;
        if self.hot_rank >= ranks {
            Err(format!("--hot-rank {}: the ranks are 0 to {}", self.hot_rank, ranks - 1))
        } else if self.skew > experts as f64 {
            Err(format!(
                "--skew {}: with {experts} experts, one that gets all tokens has {experts} times the mean load",
                self.skew
            ))
        } else {
            Ok(())
        }
    }
}

fn skew(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(skew) if skew >= 1.0 && skew.is_finite() => Ok(skew),
        _ => Err("expected a number from 1 (balanced) to the number of experts".to_owned()),
    }
}
