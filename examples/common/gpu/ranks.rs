//! Starting a job's ranks.
//!
//! With the variables that torchrun sets (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, `MASTER_PORT`) this process
//! is one rank; without them it has all of them, one thread each.

use super::Error;
use super::rendezvous::Launch;
use crate::common::options::Overlap;
use commtrace::Guard;
use commtrace::collectives::nccl;
use commtrace::prelude::*;
use cudarc::driver::{CudaContext, CudaStream};
use std::sync::Arc;
use std::thread;

/// The streams of a rank.
pub struct Streams {
    pub compute: Arc<CudaStream>,
    /// That of the collectives: the same if nothing is to overlap.
    pub collectives: Arc<CudaStream>,
}

/// Does what a rank does on each of this process's ranks, of which there are `ranks` unless a launcher says
/// otherwise, and ends recording; one outcome each.
pub fn run<T: Send>(
    trace: Guard,
    ranks: usize,
    overlap: Overlap,
    rank: impl Fn(&NcclComm, &Streams) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    // SAFETY: it loads and unloads the driver's library.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err("--backend nccl needs a GPU: libcuda.so was not found".into());
    }
    let devices = usize::try_from(CudaContext::device_count()?)?;
    if devices == 0 {
        return Err("--backend nccl needs a GPU: the driver has no device".into());
    }
    if let Some(launch) = Launch::from_env()? {
        let streams = Streams::new(launch.local_rank % devices, overlap)?;
        let id = launch.share(|| Ok(nccl::unique_id()?))?;
        let comm = NcclComm::from_rank(Arc::clone(&streams.collectives), launch.rank, launch.size, id)?;
        let outcome = rank(&comm, &streams)?;
        // Gathers what the ranks recorded, so that rank 0 reports on all.
        trace.finish(&comm);
        return Ok(vec![outcome]);
    }
    let streams: Vec<Streams> =
        (0..ranks).map(|rank| Streams::new(rank % devices, overlap)).collect::<Result<_, _>>()?;
    let comms =
        NcclComm::from_devices(streams.iter().map(|streams| Arc::clone(&streams.collectives)).collect())?;
    let outcomes = thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = comms
            .into_iter()
            .zip(&streams)
            .map(|(comm, streams)| {
                scope.spawn(move || {
                    let _rank = rank_scope(comm.global_rank());
                    rank(&comm, streams)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|_| Err("a rank panicked".into()))).collect()
    });
    drop(trace);
    outcomes
}

impl Streams {
    fn new(device: usize, overlap: Overlap) -> Result<Self, Error> {
        let context = CudaContext::new(device)?;
        let compute = context.new_stream()?;
        let collectives = match overlap {
            Overlap::On => context.new_stream()?,
            Overlap::Off => Arc::clone(&compute),
        };
        Ok(Self { compute, collectives })
    }
}
