//! Communicators.

use super::rank_in;
use crate::abi::Out;
use crate::comm::{self, Comm};
use crate::error::{Error, Result};
use crate::init::{self, Job};
use crate::unique_id::UniqueId;
use crate::{driver, group};
use double_common::handles::Handle;
use std::ffi::{c_int, c_void};

/// `NCCL_SPLIT_NOCOLOR`.
const NO_COLOR: c_int = -1;

fn join_current(comm: &Out<Handle>, size: c_int, id: UniqueId, rank: c_int) -> Result<Job> {
    comm.check()?;
    let size = usize::try_from(size).ok().filter(|size| *size > 0);
    let size = size.ok_or_else(|| Error::argument("a communicator has at least one rank"))?;
    let rank = rank_in(size, rank, "rank")?;
    let name = id.name()?;
    let (context, device, retained) = driver::get()?.current()?;
    let made = Comm::new(context, device, retained)?;
    comm.set(made.handle)?;
    Ok(Job::Join { comm: made, name, rank, size })
}

fn split(parent: Handle, color: c_int, key: c_int, made: &Out<Handle>) -> Result<Job> {
    made.check()?;
    let parent = comm::find(parent)?;
    parent.mesh()?;
    if color < NO_COLOR {
        return Err(Error::argument(format!("color {color} is negative")));
    }
    let comm = match color {
        NO_COLOR => None,
        _ => Some(Comm::new(parent.context, parent.device, false)?),
    };
    made.set(comm.as_ref().map_or(0, |comm| comm.handle))?;
    let (turn, number) = (parent.turns.take(), parent.next_split());
    Ok(Job::Split { parent, turn, number, color, key, comm })
}

nccl! {
    fn ncclCommInitRank(comm: Out<Handle>, size: c_int, id: UniqueId, rank: c_int) {
        group::add_job(join_current(&comm, size, id, rank))
    }

    // Of a configuration nothing has a meaning here; a non-blocking one blocks.
    fn ncclCommInitRankConfig(
        comm: Out<Handle>,
        size: c_int,
        id: UniqueId,
        rank: c_int,
        _config: *const c_void,
    ) {
        group::add_job(join_current(&comm, size, id, rank))
    }

    fn ncclCommInitAll(comms: *mut Handle, count: c_int, devices: *const c_int) {
        let size = usize::try_from(count).ok().filter(|size| *size > 0 && !comms.is_null());
        let size = size.ok_or_else(|| Error::argument("there must be at least one device"))?;
        let name = UniqueId::random()?.name()?;
        let mut jobs = Vec::new();
        for rank in 0..size {
            let device = if devices.is_null() {
                rank as c_int
            } else {
                // SAFETY: the caller gives a device for each of the ranks.
                unsafe { devices.add(rank).read() }
            };
            let made = Comm::new(driver::get()?.retain(device)?, device, true)?;
            // SAFETY: the caller gives room for as many communicators.
            unsafe { comms.add(rank).write(made.handle) };
            jobs.push(Job::Join { comm: made, name: name.clone(), rank, size });
        }
        init::run_all(jobs)
    }

    fn ncclCommSplit(
        comm: Handle,
        color: c_int,
        key: c_int,
        made: Out<Handle>,
        _config: *const c_void,
    ) {
        group::add_job(split(comm, color, key, &made))
    }

    fn ncclCommCount(comm: Handle, count: Out<c_int>) {
        count.set(comm::find(comm)?.mesh()?.size as c_int)
    }

    fn ncclCommUserRank(comm: Handle, rank: Out<c_int>) {
        rank.set(comm::find(comm)?.mesh()?.rank as c_int)
    }

    fn ncclCommCuDevice(comm: Handle, device: Out<c_int>) { device.set(comm::find(comm)?.device) }

    fn ncclCommFinalize(comm: Handle) {
        comm::find(comm)?.turns.wait_for_all();
        Ok(())
    }

    fn ncclCommDestroy(comm: Handle) { comm::destroy(comm) }

    fn ncclCommAbort(comm: Handle) { comm::abort(comm) }

    fn ncclCommGetAsyncError(comm: Handle, error: Out<c_int>) {
        error.set(comm::find(comm)?.failure().map_or(0, |failure| failure.code.0))
    }
}
