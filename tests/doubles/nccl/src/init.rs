//! Making communicators: ranks meet, and agree that they fit together.

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::exchange::{Receive, Send};
use crate::mesh::Mesh;
use crate::{debug, settings, tuning};
use std::sync::Arc;

/// A communicator to be made; all ranks must be at it at once.
pub enum Job {
    /// A rank joins the communicator of this name.
    Join { comm: Arc<Comm>, name: String, rank: usize, size: usize },
    /// A rank of `parent` says where it belongs; `comm` is what it becomes a rank of, if anything.
    Split { parent: Arc<Comm>, turn: u64, number: u64, color: i32, key: i32, comm: Option<Arc<Comm>> },
}

/// Runs jobs side by side, as they may be ranks that wait for each other.
pub fn run_all(jobs: Vec<Job>) -> Result {
    let mut jobs = jobs;
    let Some(last) = jobs.pop() else { return Ok(()) };
    std::thread::scope(|scope| {
        let others: Vec<_> = jobs.into_iter().map(|job| scope.spawn(|| job.run())).collect();
        let own = last.run();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result>| {
            thread.join().unwrap_or_else(|_| Err(Error::usage("making a communicator failed")))
        };
        // All are joined before the first error is reported.
        let others: Vec<Result> = others.into_iter().map(ended).collect();
        others.into_iter().chain([own]).collect()
    })
}

impl Job {
    fn run(self) -> Result {
        match self {
            Job::Join { comm, name, rank, size } => join(&comm, &name, rank, size),
            Job::Split { parent, turn, number, color, key, comm } => {
                let members = parent.in_turn(turn, |mesh| {
                    let mine = (color, key);
                    let all = all_gather(mesh, &[mine.0, mine.1].map(i32::to_ne_bytes).concat())?;
                    Ok((mesh.rank, all))
                });
                let (rank, all) = members?;
                let Some(comm) = comm else { return Ok(()) };
                let number_at = |bytes: &[u8], at: usize| {
                    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
                    i32::from_ne_bytes(bytes.unwrap_or_default())
                };
                let mut members: Vec<(i32, usize)> = all
                    .iter()
                    .enumerate()
                    .filter(|(_, bytes)| number_at(bytes, 0) == color)
                    .map(|(member, bytes)| (number_at(bytes, 4), member))
                    .collect();
                // By key, then by the rank in the parent.
                members.sort_unstable();
                let place = members.iter().position(|(_, member)| *member == rank);
                let place = place.ok_or_else(|| Error::usage("a rank is missing from its own split"))?;
                let name = format!("{}.{number}.{color}", parent.mesh()?.name);
                join(&comm, &name, place, members.len())
            }
        }
    }
}

fn join(comm: &Comm, name: &str, rank: usize, size: usize) -> Result {
    if let Some(problem) = &settings::get().problem {
        return Err(Error::argument(problem.clone()));
    }
    debug::joining(comm, name, rank, size, "START");
    tuning::check().inspect_err(|error| debug::warn(comm.device, &error.text))?;
    let mesh = Mesh::connect(name, rank, size, &comm.abort)?;
    let mesh = comm.set_mesh(mesh)?;
    let devices = all_gather(&mesh, &comm.device.to_ne_bytes())?;
    let shares = |(other, device): (usize, &Vec<u8>)| {
        (other != rank && device[..] == comm.device.to_ne_bytes()).then_some(other)
    };
    match devices.iter().enumerate().find_map(shares) {
        Some(other) if !settings::get().ranks_share_devices => Err(Error::usage(format!(
            "Duplicate GPU detected: ranks {rank} and {other} both use device {}; give each its own \
             (DOUBLE_CUDA_DEVICES), or set NCCL_MULTI_RANK_GPU_ENABLE=1",
            comm.device
        ))),
        _ => {
            debug::joining(comm, name, rank, size, "COMPLETE");
            Ok(())
        }
    }
}

/// What every rank has, in the order of ranks; all parts are equally long.
pub fn all_gather(mesh: &Mesh, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut all = vec![mine.to_vec(); mesh.size];
    let sends = mesh.peers().map(|peer| Send { peer, bytes: mine }).collect();
    let receives = all
        .iter_mut()
        .enumerate()
        .filter(|(peer, _)| *peer != mesh.rank)
        .map(|(peer, bytes)| Receive { peer, bytes })
        .collect();
    mesh.exchange(sends, receives)?;
    Ok(all)
}
