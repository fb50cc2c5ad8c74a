//! The command line of `commtrace bench`.

use super::report::ReportArgs;
use clap::{Args, Subcommand, ValueEnum};
use commtrace_bench::{Collective, Fault, file_name_part, parse_dtype};
use commtrace_collectives::DType;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

/// Measure how fast collectives are.
///
/// Ranks are started on this machine; under mpirun, srun or torchrun, the processes that they have started are the
/// ranks. Each candidate leaves a record, which says why if it failed; the exit status is 1 then.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub experiment: ExperimentArgs,
}

#[derive(Debug, Subcommand)]
pub enum ExperimentArgs {
    Collectives(CollectivesArgs),
    Report(ReportArgs),
    Overlap(OverlapArgs),
}

/// Time collectives: collective by payload by algorithm.
///
/// Prints a table with the columns of nccl-tests per algorithm, and leaves a record, `collectives_BACKEND_ALGORITHM_LABEL.json`,
/// and what the ranks printed. All results are checked for correctness.
#[derive(Debug, Args)]
pub struct CollectivesArgs {
    #[command(flatten)]
    pub workload: WorkloadArgs,

    /// Elements that each rank puts in, one or more.
    ///
    /// Where the collectives divide them among the ranks, they are rounded down to multiples of the number of ranks.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "262144,1048576,4194304")]
    pub payload_elements: Vec<NonZeroU64>,

    /// Element type: float32, float64, float16, bfloat16, int32, int64 or uint8.
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype, default_value = "float32")]
    pub dtype: DType,

    /// Only these collectives: all_reduce, reduce_scatter_all_gather (an all_reduce in two parts), all_gather, reduce_scatter,
    /// broadcast, all_to_all.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub collectives: Option<Vec<Collective>>,
}

/// Compare an all_reduce and a matrix product, one after the other, with both at the same time.
///
/// Leaves a record as `collectives` does, with a row per schedule. Overlapping is adopted only if median and P95 improve and
/// no rank has a new tail. What it gains is the scheduling of synthetic work, and not a real model's.
#[derive(Debug, Args)]
pub struct OverlapArgs {
    #[command(flatten)]
    pub workload: WorkloadArgs,

    /// Elements that each rank puts into the all_reduce.
    #[arg(long, value_name = "N", default_value = "4194304")]
    pub payload_elements: NonZeroU64,

    /// Element type of payload and matrices: float32, float64, float16 or bfloat16.
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype, default_value = "bfloat16")]
    pub dtype: DType,

    /// Rows and columns of the matrices.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384), default_value = "2048")]
    pub compute_dim: u32,
}

/// What the experiments have in common.
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// What carries the collectives: threads of one process, processes that MPI connects, or GPUs by NCCL.
    #[arg(long, value_enum, default_value_t = BackendName::Local)]
    pub backend: BackendName,

    /// Number of ranks; 2 unless a launcher has decided.
    #[arg(long, value_name = "N")]
    pub ranks: Option<NonZeroU32>,

    /// Algorithms, each of which runs in processes of its own; all that the backend has unless given. `Auto` leaves the
    /// choice to the library.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = file_name_part)]
    pub algorithms: Option<Vec<String>>,

    /// Untimed repeats before the timed ones; 5 of collectives and 3 of overlap unless given.
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,

    /// Timed repeats; 20 of collectives and 10 of overlap unless given.
    #[arg(long, value_name = "N")]
    pub repeats: Option<NonZeroU32>,

    /// Tells runs of the same workload apart. An existing record is never overwritten.
    #[arg(long, value_name = "NAME", value_parser = file_name_part, default_value = "default")]
    pub run_label: String,

    /// Folder for the records.
    #[arg(short, long, value_name = "DIR", default_value = "commtrace-bench")]
    pub output: PathBuf,

    /// Seconds after which a candidate is ended.
    #[arg(long, value_name = "SECONDS", default_value = "600")]
    pub timeout: NonZeroU32,

    /// Check the arguments and say what would run. The default with `--backend nccl` where there is no GPU: `--dry-run=false`
    /// leaves records of the failure then.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub dry_run: Option<bool>,

    /// Let something go wrong, for tests: wrong-result, exit, panic or hang, a colon and a rank.
    #[arg(long, hide = true)]
    pub fault: Option<Fault>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    Local,
    Mpi,
    Nccl,
}
