//! NCCL's functions. Names and argument orders are those of `nccl.h`. A pointer that C calls an opaque
//! handle is a number here, which has the same representation.
#![allow(non_snake_case)]

use crate::abi::Out;
use crate::collective::{Call, Kind};
use crate::comm::{self, Comm};
use crate::element::{Combine, DataType};
use crate::error::{self, Error, Result};
use crate::init::{self, Job};
use crate::launch::Pending;
use crate::reduce::{Reduction, Scalar};
use crate::unique_id::UniqueId;
use crate::{driver, group, settings};
use double_common::handles::Handle;
use double_common::symbols;
use std::ffi::{c_char, c_int, c_void};

/// `ncclNumOps`: the reductions of the application's own are numbered from here.
const OWN_REDUCTIONS: c_int = 5;
/// `NCCL_SPLIT_NOCOLOR`.
const NO_COLOR: c_int = -1;

fn rank_in(size: usize, rank: c_int, what: &str) -> Result<usize> {
    let known = usize::try_from(rank).ok().filter(|rank| *rank < size);
    known.ok_or_else(|| Error::argument(format!("{what} {rank} is not among {size} ranks")))
}

fn reduction(comm: &Comm, operation: c_int, data_type: DataType) -> Result<Reduction> {
    Ok(match operation {
        0 => Reduction::Plain(Combine::Sum),
        1 => Reduction::Plain(Combine::Prod),
        2 => Reduction::Plain(Combine::Max),
        3 => Reduction::Plain(Combine::Min),
        4 => Reduction::Average,
        _ => {
            let own = usize::try_from(operation - OWN_REDUCTIONS).ok().and_then(|at| comm.scalar(at));
            match own {
                Some((of, scalar)) if of == data_type => Reduction::Scaled(scalar),
                Some(_) => return Err(Error::argument("the reduction is one of another data type")),
                None => return Err(Error::argument(format!("{operation} is no reduction"))),
            }
        }
    })
}

/// The arguments that collectives share.
struct Arguments {
    send: usize,
    receive: usize,
    count: usize,
    data_type: c_int,
    reduction: Option<c_int>,
    comm: Handle,
    stream: usize,
}

/// Checks a call and adds it to its group; `kind` gets the number of ranks.
fn submit(arguments: Arguments, kind: impl FnOnce(usize) -> Result<Kind>) -> Result {
    let make = || {
        let Arguments { send, receive, count, data_type, reduction: operation, comm, stream } = arguments;
        let comm = comm::find(comm)?;
        if let Some(failure) = comm.failure() {
            return Err(failure);
        }
        let size = comm.mesh()?.size;
        let kind = kind(size)?;
        let data_type = DataType::from_code(data_type)?;
        if count.checked_mul(data_type.size()).and_then(|bytes| bytes.checked_mul(size)).is_none() {
            return Err(Error::argument(format!("{count} elements are too many")));
        }
        let reduction = operation.map(|it| reduction(&comm, it, data_type)).transpose()?;
        Ok(Pending { comm, stream, call: Call { kind, send, receive, count, data_type, reduction } })
    };
    group::add_call(make())
}

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
    fn ncclGetVersion(version: Out<c_int>) { version.set(settings::get().version) }

    fn ncclGetUniqueId(id: Out<UniqueId>) { id.set(UniqueId::random()?) }

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

    fn ncclGroupStart() {
        group::start();
        Ok(())
    }

    fn ncclGroupEnd() { group::end() }

    fn ncclAllReduce(
        send: usize,
        receive: usize,
        count: usize,
        data_type: c_int,
        operation: c_int,
        comm: Handle,
        stream: usize,
    ) {
        let reduction = Some(operation);
        submit(Arguments { send, receive, count, data_type, reduction, comm, stream }, |_| {
            Ok(Kind::AllReduce)
        })
    }

    fn ncclReduce(
        send: usize,
        receive: usize,
        count: usize,
        data_type: c_int,
        operation: c_int,
        root: c_int,
        comm: Handle,
        stream: usize,
    ) {
        let reduction = Some(operation);
        submit(Arguments { send, receive, count, data_type, reduction, comm, stream }, |size| {
            Ok(Kind::Reduce { root: rank_in(size, root, "root")? })
        })
    }

    fn ncclReduceScatter(
        send: usize,
        receive: usize,
        count: usize,
        data_type: c_int,
        operation: c_int,
        comm: Handle,
        stream: usize,
    ) {
        let reduction = Some(operation);
        submit(Arguments { send, receive, count, data_type, reduction, comm, stream }, |_| {
            Ok(Kind::ReduceScatter)
        })
    }

    fn ncclBroadcast(
        send: usize,
        receive: usize,
        count: usize,
        data_type: c_int,
        root: c_int,
        comm: Handle,
        stream: usize,
    ) {
        submit(Arguments { send, receive, count, data_type, reduction: None, comm, stream }, |size| {
            Ok(Kind::Broadcast { root: rank_in(size, root, "root")? })
        })
    }

    fn ncclBcast(
        buffer: usize,
        count: usize,
        data_type: c_int,
        root: c_int,
        comm: Handle,
        stream: usize,
    ) {
        let (send, receive) = (buffer, buffer);
        submit(Arguments { send, receive, count, data_type, reduction: None, comm, stream }, |size| {
            Ok(Kind::Broadcast { root: rank_in(size, root, "root")? })
        })
    }

    fn ncclAllGather(
        send: usize,
        receive: usize,
        count: usize,
        data_type: c_int,
        comm: Handle,
        stream: usize,
    ) {
        submit(Arguments { send, receive, count, data_type, reduction: None, comm, stream }, |_| {
            Ok(Kind::AllGather)
        })
    }

    fn ncclAlltoAll(
        send: usize,
        receive: usize,
        count: usize,
        data_type: c_int,
        comm: Handle,
        stream: usize,
    ) {
        submit(Arguments { send, receive, count, data_type, reduction: None, comm, stream }, |_| {
            Ok(Kind::AllToAll)
        })
    }

    fn ncclGather(
        send: usize,
        receive: usize,
        count: usize,
        data_type: c_int,
        root: c_int,
        comm: Handle,
        stream: usize,
    ) {
        submit(Arguments { send, receive, count, data_type, reduction: None, comm, stream }, |size| {
            Ok(Kind::Gather { root: rank_in(size, root, "root")? })
        })
    }

    fn ncclScatter(
        send: usize,
        receive: usize,
        count: usize,
        data_type: c_int,
        root: c_int,
        comm: Handle,
        stream: usize,
    ) {
        submit(Arguments { send, receive, count, data_type, reduction: None, comm, stream }, |size| {
            Ok(Kind::Scatter { root: rank_in(size, root, "root")? })
        })
    }

    fn ncclSend(
        send: usize,
        count: usize,
        data_type: c_int,
        peer: c_int,
        comm: Handle,
        stream: usize,
    ) {
        let receive = 0;
        submit(Arguments { send, receive, count, data_type, reduction: None, comm, stream }, |size| {
            Ok(Kind::Send { peer: rank_in(size, peer, "peer")? })
        })
    }

    fn ncclRecv(
        receive: usize,
        count: usize,
        data_type: c_int,
        peer: c_int,
        comm: Handle,
        stream: usize,
    ) {
        let send = 0;
        submit(Arguments { send, receive, count, data_type, reduction: None, comm, stream }, |size| {
            Ok(Kind::Recv { peer: rank_in(size, peer, "peer")? })
        })
    }

    fn ncclRedOpCreatePreMulSum(
        operation: Out<c_int>,
        scalar: *const c_void,
        data_type: c_int,
        residence: c_int,
        comm: Handle,
    ) {
        operation.check()?;
        let data_type = DataType::from_code(data_type)?;
        let comm = comm::find(comm)?;
        if scalar.is_null() {
            return Err(Error::argument("the scalar is null"));
        }
        let scalar = match residence {
            0 => Scalar::OnDevice(scalar as usize),
            // SAFETY: the caller gives a value of the data type.
            1 => Scalar::Bytes(unsafe {
                std::slice::from_raw_parts(scalar.cast::<u8>(), data_type.size()).to_vec()
            }),
            _ => return Err(Error::argument("the scalar's residence is unknown")),
        };
        operation.set(OWN_REDUCTIONS + comm.add_scalar(data_type, scalar) as c_int)
    }

    fn ncclRedOpDestroy(operation: c_int, comm: Handle) {
        let own = usize::try_from(operation - OWN_REDUCTIONS).ok();
        let removed = own.and_then(|at| comm::find(comm).ok()?.remove_scalar(at));
        removed.map(|_| ()).ok_or_else(|| Error::argument(format!("{operation} is no reduction of its own")))
    }

    fn ncclMemAlloc(address: Out<u64>, size: usize) { address.set(driver::get()?.allocate(size)?) }

    fn ncclMemFree(address: u64) { driver::get()?.free(address) }

    // Registered or not, buffers are alike here.
    fn ncclCommRegister(comm: Handle, buffer: usize, _size: usize, handle: Out<usize>) {
        comm::find(comm)?;
        handle.set(buffer)
    }

    fn ncclCommDeregister(comm: Handle, _handle: usize) { comm::find(comm).map(|_| ()) }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    error::describe(code).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_comm: Handle) -> *const c_char {
    std::panic::catch_unwind(error::last).unwrap_or(c"").as_ptr()
}

extern "C" fn loaded() {
    symbols::hide(c"DOUBLE_NCCL_MISSING", loaded as *const () as *const _);
}

#[used]
#[unsafe(link_section = ".init_array")]
static AS_IT_IS_LOADED: extern "C" fn() = loaded;
