//! A mixture-of-experts layer over several ranks, traced: tokens are routed to experts on other ranks and
//! back, and one expert may get many times the load of the others.
//!
//! ```text
//! cargo run --release --example mixture_of_experts                   # the summary at the end, on stderr
//! cargo run --release --example mixture_of_experts -- --skew 1       # all experts get as many tokens
//! cargo run --release --example mixture_of_experts -- --hot-rank 2   # the hot expert is on rank 2
//! cargo run --release --example mixture_of_experts -- --skew 1 --overlap on
//! ```
//!
//! It is inference over batches; nothing is trained. The ranks are threads of this process, GPUs with
//! `--features nccl` and `--backend nccl`, or processes that MPI connects:
//!
//! ```text
//! cargo build --release --features mpi --example mixture_of_experts
//! mpirun -n 4 target/release/examples/mixture_of_experts --backend mpi --hot-rank 2
//! ```
//!
//! `layer` is written against the trait `Communicator`, so that the same code runs on every backend; `Compute`
//! is what differs between processors and GPUs.

mod args;
#[path = "../common/mod.rs"]
mod common;
mod compute;
mod figures;
mod layer;
mod model;
#[cfg(feature = "nccl")]
mod nccl;
mod routing;
mod run;

use args::Args;
use common::options::Backend;
use commtrace::prelude::*;
use commtrace::{Config, Mode};
use compute::HostCompute;
use model::Model;
use run::{Outcome, run};
use std::error::Error;
use std::process::ExitCode;

/// The largest difference that may come from adding in another order.
const TOLERANCE: f32 = 1e-3;

fn main() -> ExitCode {
    let args = Args::from_command_line();
    match start(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> Result<(), Box<dyn Error>> {
    // Without this line nothing is traced; `commtrace::init()` would leave it all to the environment.
    let trace = Config::from_env()?.default_mode(Mode::Summary).init()?;
    match args.backend {
        Backend::Local => {
            let outcomes = LocalComm::run(args.ranks, |comm| on_host(&comm, args));
            let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
            drop(trace);
            check(&outcomes)
        }
        #[cfg(feature = "nccl")]
        Backend::Nccl => {
            let rank = |comm: &NcclComm, streams: &_| nccl::run(comm, streams, args);
            let outcomes = common::gpu::run(trace, args.ranks, args.overlap, rank)
                .map_err(|error| -> Box<dyn Error> { error })?;
            check(&outcomes)
        }
        #[cfg(not(feature = "nccl"))]
        Backend::Nccl => Err("--backend nccl: build with --features nccl".into()),
        Backend::Mpi => under_mpi(trace, args),
    }
}

/// A rank whose compute is this process's.
fn on_host<C>(comm: &C, args: &Args) -> commtrace::collectives::Result<Outcome>
where
    C: Communicator<Buffer<f32> = [f32], Owned<f32> = Vec<f32>>,
{
    let model = Model::new(comm.size(), args);
    run(comm, HostCompute::new(&model, comm.rank()), &model, args)
}

/// One rank per process.
#[cfg(feature = "mpi")]
fn under_mpi(trace: commtrace::Guard, args: &Args) -> Result<(), Box<dyn Error>> {
    // When a rank dies, mpirun ends the others with SIGTERM.
    commtrace::finish_on_sigterm()?;
    let comm = MpiComm::world()?;
    args.check_ranks(comm.size());
    let outcome = on_host(&comm, args)?;
    // Gathers what the ranks recorded, so that rank 0 reports on all.
    trace.finish(&comm);
    check(&[outcome])
}

#[cfg(not(feature = "mpi"))]
fn under_mpi(_: commtrace::Guard, _: &Args) -> Result<(), Box<dyn Error>> {
    Err("this program was built without MPI: build it with \
         `cargo build --features mpi --example mixture_of_experts`, which needs an MPI library (libopenmpi-dev) and \
         libclang"
        .into())
}

/// Whether this process's ranks computed what they should have. Rank 0 says the figures of all.
fn check(outcomes: &[Outcome]) -> Result<(), Box<dyn Error>> {
    for Outcome { rank, difference, checked_steps, figures } in outcomes {
        if *rank == 0 {
            println!("tokens per expert: {:?}", figures.per_expert);
            println!("dispatch_payload_bytes {}", figures.dispatch_payload_bytes);
            println!("cross_rank_token_ratio {:.6}", figures.cross_rank_token_ratio);
            println!("expert_load_skew {:.6}", figures.expert_load_skew);
            println!("throughput_tokens_per_s {:.1}", figures.throughput_tokens_per_s);
        }
        if difference.is_nan() || *difference > TOLERANCE {
            return Err(format!(
                "rank {rank}: the output differs by {difference:e} from that of all experts computed there"
            )
            .into());
        }
        println!(
            "rank {rank}: the output equals that of all experts computed there in {checked_steps} of {checked_steps} \
             steps (largest difference {difference:.1e})"
        );
    }
    Ok(())
}
