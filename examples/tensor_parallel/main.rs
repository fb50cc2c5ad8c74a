//! Tensor-parallel training of a small network, traced: two all_reduces a layer and step on the critical path.
//!
//! ```text
//! cargo run --release --example tensor_parallel                      # the summary at the end, on stderr
//! cargo run --release --example tensor_parallel -- --overlap on      # one of the two beside compute
//! cargo run --release --example tensor_parallel -- --slow-rank 1:20  # one rank computes 20 ms longer
//! cargo run --release --example tensor_parallel -- --ranks 4 --data-parallel 2
//! ```
//!
//! The ranks are threads of this process, GPUs with `--features nccl` and `--backend nccl`, or processes that MPI
//! connects:
//!
//! ```text
//! cargo build --release --features mpi --example tensor_parallel
//! mpirun -n 4 target/release/examples/tensor_parallel --backend mpi
//! ```
//!
//! `docs/tensor-parallel.md` says how to read the report.

mod args;
mod check;
#[path = "../common/mod.rs"]
mod common;
mod device;
mod gelu;
#[cfg(feature = "nccl")]
mod gpu;
mod groups;
mod host;
mod linear;
mod model;
mod parameters;
mod train;

use args::Args;
use check::check;
use common::data::{self, Data};
use common::options::Backend;
use commtrace::collectives;
use commtrace::prelude::*;
use commtrace::{Config, Guard, Mode};
use device::Result;
use groups::Groups;
use host::Host;
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

fn run(args: &Args) -> Result<()> {
    // Without this line nothing is traced; `commtrace::init()` would leave it all to the environment.
    let trace = Config::from_env()?.default_mode(Mode::Summary).init()?;
    let data = data::load();
    // Recording ends with the training; what `check` trains again is not in the report.
    let outcomes = match args.backend {
        Backend::Local => {
            let outcomes =
                LocalComm::run(args.ranks, |world| on_the_host(&world, LocalComm::split, &data, args));
            drop(trace);
            outcomes.into_iter().collect::<Result<Vec<_>>>()?
        }
        Backend::Nccl => on_gpus(trace, &data, args)?,
        Backend::Mpi => under_mpi(trace, &data, args)?,
    };
    outcomes.iter().try_for_each(|outcome| check(outcome, &data, args))
}

fn on_the_host<C: Communicator>(
    world: &C,
    split: impl Fn(&C, u32, u32) -> collectives::Result<C>,
    data: &Data,
    args: &Args,
) -> Result<Outcome> {
    let groups = Groups::new(world, args.tensor_parallel(world.size())?, split)?;
    train(&Host::new(), &groups, data, args, true)
}

/// One rank per process.
#[cfg(feature = "mpi")]
fn under_mpi(trace: Guard, data: &Data, args: &Args) -> Result<Vec<Outcome>> {
    // When a rank dies, mpirun ends the others with SIGTERM.
    commtrace::finish_on_sigterm()?;
    let world = MpiComm::world()?;
    args.check_ranks(world.size());
    let outcome = on_the_host(&world, MpiComm::split, data, args)?;
    // Gathers what the ranks recorded, so that rank 0 reports on all.
    trace.finish(&world);
    Ok(vec![outcome])
}

#[cfg(not(feature = "mpi"))]
fn under_mpi(_: Guard, _: &Data, _: &Args) -> Result<Vec<Outcome>> {
    Err("this program was built without MPI: build it with `cargo build --features mpi --example tensor_parallel`, \
         which needs an MPI library (libopenmpi-dev) and libclang"
        .into())
}

#[cfg(feature = "nccl")]
fn on_gpus(trace: Guard, data: &Data, args: &Args) -> Result<Vec<Outcome>> {
    common::gpu::run(trace, args.ranks, args.overlap, |world, streams| {
        let groups = Groups::new(world, args.tensor_parallel(world.world_size())?, NcclComm::split)?;
        train(&gpu::Gpu::new(streams)?, &groups, data, args, true)
    })
}

#[cfg(not(feature = "nccl"))]
fn on_gpus(_: Guard, _: &Data, _: &Args) -> Result<Vec<Outcome>> {
    Err("--backend nccl: build with --features nccl".into())
}
