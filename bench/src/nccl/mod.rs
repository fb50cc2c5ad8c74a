//! Ranks on GPUs, by NCCL: one process each.

mod both;
mod device;
mod environment;
mod meet;
mod timer;

pub(crate) use device::count as devices;
pub(crate) use environment::{prepare, problem};

use crate::event::{GaveUp, RankEvent};
use crate::hardware::this_host;
use crate::rank::{About, Orders, gave_up};
use crate::record::FailureKind;
use both::NcclSite;
use commtrace_collectives::{Error, NcclComm, Result, nccl};
use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, CudaStream};
use meet::Meeting;
use std::io;
use std::sync::Arc;
use timer::NcclTimer;

/// Runs the rank of this process.
pub(crate) fn run(orders: &Orders) -> io::Result<bool> {
    let rank = orders.rank.unwrap_or(0);
    let joined = join(orders, rank);
    let ready = joined.map(|joined| (joined.comm.context().new_stream(), joined));
    let (compute, Joined { comm, about }) = match ready {
        Ok((Ok(stream), joined)) => (stream, joined),
        Ok((Err(error), _)) => return give_up(orders, rank, gave_up(&failed("making a stream", error))),
        Err(gave_up) => return give_up(orders, rank, gave_up),
    };
    let timer = match NcclTimer::new(&comm) {
        Ok(timer) => timer,
        Err(error) => return give_up(orders, rank, gave_up(&error)),
    };
    orders.rank(&comm, &mut NcclSite { timer, compute }, about)
}

fn give_up(orders: &Orders, rank: u32, gave_up: GaveUp) -> io::Result<bool> {
    orders.events.append(rank)?.say(&RankEvent::GaveUp(gave_up)).map(|()| false)
}

struct Joined {
    comm: NcclComm,
    about: About,
}

/// Makes the rank's part of the communicator.
fn join(orders: &Orders, rank: u32) -> Result<Joined, GaveUp> {
    let missing = |message| GaveUp { kind: FailureKind::Missing, message, because_of: None };
    let not_started = |message| GaveUp { kind: FailureKind::NotStarted, message, because_of: None };
    let said = |error: Error| gave_up(&error);
    let devices = device::count().map_err(missing)?;
    let stream = stream_of(device::of_rank(rank, devices)).map_err(said)?;
    let (major, minor, patch) = nccl::version().map_err(said)?;
    let meeting = Meeting::find(&orders.events).map_err(not_started)?;
    let ranks = orders.plan.world_size;
    let make = || nccl::unique_id().map_err(|error| error.to_string());
    let id = meeting.share(&orders.plan.stem(), rank, ranks, orders.plan.call_timeout(), make);
    let id = id.map_err(not_started)?;
    let mut host = this_host(rank);
    host.gpus.push(device::describe(stream.context()).map_err(said)?);
    let comm = NcclComm::from_rank(stream, rank as usize, ranks as usize, id).map_err(said)?;
    let library = Some(format!("NCCL {major}.{minor}.{patch}"));
    Ok(Joined { comm, about: About { host, library, cuda_driver: device::driver_version() } })
}

fn stream_of(device: usize) -> Result<Arc<CudaStream>> {
    CudaContext::new(device)
        .and_then(|context| context.new_stream())
        .map_err(|error| failed(&format!("opening GPU {device}"), error))
}

/// An error of the driver; `what` was done.
pub(crate) fn failed(what: &str, DriverError(code): DriverError) -> Error {
    Error::Native {
        library: "CUDA",
        what: what.to_owned(),
        code: code as i32,
        // `CUDA_ERROR_OUT_OF_MEMORY` and so on.
        message: format!("{code:?}"),
    }
}
