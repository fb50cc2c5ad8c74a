//! Collectives, sends and receives, and reductions of the application's own.

use super::rank_in;
use crate::abi::Out;
use crate::collective::{Call, Kind};
use crate::comm::{self, Comm};
use crate::element::{Combine, DataType};
use crate::error::{Error, Result};
use crate::group;
use crate::launch::Pending;
use crate::reduce::{Reduction, Scalar};
use crate::{debug, tuning};
use double_common::handles::Handle;
use std::ffi::{c_int, c_void};

/// `ncclNumOps`: the reductions of the application's own are numbered from here.
const OWN_REDUCTIONS: c_int = 5;

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
        let mesh = comm.mesh()?;
        let size = mesh.size;
        let kind = kind(size)?;
        let code = data_type;
        let data_type = DataType::from_code(code)?;
        if count.checked_mul(data_type.size()).and_then(|bytes| bytes.checked_mul(size)).is_none() {
            return Err(Error::argument(format!("{count} elements are too many")));
        }
        let reduction = operation.map(|it| reduction(&comm, it, data_type)).transpose()?;
        let call = Call { kind, send, receive, count, data_type, reduction };
        tuning::check_call(kind, code).inspect_err(|error| debug::warn(comm.device, &error.text))?;
        debug::called(&comm, mesh, &call, code);
        Ok(Pending { comm, stream, call })
    };
    group::add_call(make())
}

nccl! {
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
}
