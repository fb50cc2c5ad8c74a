//! `--backend nccl`: ranks on GPUs, with the model's compute on a stream as well.
//!
//! With the variables that torchrun sets (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, `MASTER_PORT`) this process
//! is one rank; without them it has all of them, one thread each.

mod memory;
mod model;
mod products;
mod rendezvous;
mod train;

use crate::args::{Args, Overlap};
use crate::data::Data;
use crate::train::Outcome;
use commtrace::Guard;
use commtrace::collectives::nccl;
use commtrace::prelude::*;
use cudarc::driver::{CudaContext, CudaStream};
use rendezvous::Launch;
use std::sync::Arc;
use std::thread;

/// An error that a rank's thread can hand over.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The streams of a rank.
struct Streams {
    compute: Arc<CudaStream>,
    /// That of the collectives: the same if nothing is to overlap.
    collectives: Arc<CudaStream>,
}

/// Trains on this process's ranks, and ends recording; one outcome each.
pub fn run(trace: Guard, data: &Data, args: &Args) -> Result<Vec<Outcome>, Error> {
    // SAFETY: it loads and unloads the driver's library.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err("--backend nccl needs a GPU: libcuda.so was not found".into());
    }
    let devices = usize::try_from(CudaContext::device_count()?)?;
    if devices == 0 {
        return Err("--backend nccl needs a GPU: the driver has no device".into());
    }
    if let Some(launch) = Launch::from_env()? {
        let streams = Streams::new(launch.local_rank % devices, args)?;
        let id = launch.share(|| Ok(nccl::unique_id()?))?;
        let comm = NcclComm::from_rank(Arc::clone(&streams.collectives), launch.rank, launch.size, id)?;
        let outcome = train::train(&comm, &streams, data, args)?;
        // Gathers what the ranks recorded, so that rank 0 reports on all.
        trace.finish(&comm);
        return Ok(vec![outcome]);
    }
    let streams: Vec<Streams> =
        (0..args.ranks).map(|rank| Streams::new(rank % devices, args)).collect::<Result<_, _>>()?;
    let comms =
        NcclComm::from_devices(streams.iter().map(|streams| Arc::clone(&streams.collectives)).collect())?;
    let outcomes = thread::scope(|scope| {
        let ranks: Vec<_> = comms
            .into_iter()
            .zip(&streams)
            .map(|(comm, streams)| {
                scope.spawn(move || {
                    let _rank = rank_scope(comm.global_rank());
                    train::train(&comm, streams, data, args)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|_| Err("a rank panicked".into()))).collect()
    });
    drop(trace);
    outcomes
}

impl Streams {
    fn new(device: usize, args: &Args) -> Result<Self, Error> {
        let context = CudaContext::new(device)?;
        let compute = context.new_stream()?;
        let collectives = match args.overlap {
            Overlap::On => context.new_stream()?,
            Overlap::Off => Arc::clone(&compute),
        };
        Ok(Self { compute, collectives })
    }
}
