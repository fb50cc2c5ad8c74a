//! Ranks as threads of the test's process, each on a device of its own.

use std::sync::Arc;
use std::thread;

use commtrace_collectives::NcclComm;
use commtrace_collectives::nccl::unique_id;
use cudarc::driver::{CudaContext, CudaStream};

/// Enough devices for all tests.
pub const DEVICES: (&str, &str) = ("DOUBLE_CUDA_DEVICES", "4");

pub fn stream(device: usize) -> Arc<CudaStream> {
    CudaContext::new(device).unwrap().new_stream().unwrap()
}

/// Runs `rank` on each of `ranks` ranks; the results are in rank order.
pub fn ranks<R: Send>(ranks: usize, rank: impl Fn(NcclComm) -> R + Sync) -> Vec<R> {
    let id = unique_id().unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|number| {
                let rank = &rank;
                scope.spawn(move || rank(NcclComm::from_rank(stream(number), number, ranks, id).unwrap()))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
