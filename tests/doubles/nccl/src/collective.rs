//! The collectives themselves, on buffers that lie in the stand-in device's memory.
//!
//! Each begins with every rank telling all others what it was asked for, and ends when all are through.

use crate::driver;
use crate::element::DataType;
use crate::error::{Code, Error, Result};
use crate::exchange::{Receive, Send};
use crate::init::all_gather;
use crate::mesh::Mesh;
use crate::reduce::{self, Reduction, Scalar};
use crate::settings;
use std::time::Instant;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast { root: usize },
    Reduce { root: usize },
    Gather { root: usize },
    Scatter { root: usize },
    Send { peer: usize },
    Recv { peer: usize },
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => "all_reduce",
            Kind::AllGather => "all_gather",
            Kind::ReduceScatter => "reduce_scatter",
            Kind::AllToAll => "all_to_all",
            Kind::Broadcast { .. } => "broadcast",
            Kind::Reduce { .. } => "reduce",
            Kind::Gather { .. } => "gather",
            Kind::Scatter { .. } => "scatter",
            Kind::Send { .. } => "send",
            Kind::Recv { .. } => "recv",
        }
    }

    /// The root or the peer.
    pub fn other(self) -> Option<usize> {
        match self {
            Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll => None,
            Kind::Broadcast { root } | Kind::Reduce { root } => Some(root),
            Kind::Gather { root } | Kind::Scatter { root } => Some(root),
            Kind::Send { peer } | Kind::Recv { peer } => Some(peer),
        }
    }

    pub fn is_point_to_point(self) -> bool {
        matches!(self, Kind::Send { .. } | Kind::Recv { .. })
    }
}

/// A call with its buffers. `count` is in elements, and as NCCL counts: of one rank's part where the
/// buffers of both sides differ in size.
#[derive(Clone, Debug)]
pub struct Call {
    pub kind: Kind,
    pub send: usize,
    pub receive: usize,
    pub count: usize,
    pub data_type: DataType,
    pub reduction: Option<Reduction>,
}

impl Call {
    /// Bytes of `count` elements.
    pub fn bytes(&self) -> usize {
        self.count * self.data_type.size()
    }

    fn describe(&self) -> String {
        let Call { kind, count, data_type, .. } = self;
        format!("{} of {count} {data_type:?}, root {:?}", kind.name(), kind.other())
    }

    /// What all ranks must say alike.
    fn agreement(&self) -> [u8; 24] {
        let mut said = [0; 24];
        let kind = self.kind.name().as_bytes();
        said[0] = kind[0];
        said[1] = kind.len() as u8;
        said[2] = self.data_type as u8;
        said[3] = self.reduction.as_ref().map_or(u8::MAX, Reduction::code);
        said[8..16].copy_from_slice(&(self.count as u64).to_ne_bytes());
        said[16..].copy_from_slice(&self.kind.other().map_or(u64::MAX, |it| it as u64).to_ne_bytes());
        said
    }
}

/// The bytes of a buffer.
fn buffer<'a>(address: usize, length: usize) -> Result<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    if address == 0 || !driver::get()?.reaches(address, length) {
        let text = format!("{length} bytes at {address:#x} are not memory of the device");
        return Err(Error::new(Code::UNHANDLED_CUDA_ERROR, text));
    }
    // SAFETY: the bytes lie in one allocation of the driver, which initializes them; as with NCCL the
    // application must not touch the buffers of a collective before its stream is through with it, and
    // what is read here is copied before anything is written.
    Ok(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, length) })
}

/// A copy of a buffer, since in place calls write where they read.
fn copy_of(address: usize, length: usize) -> Result<Vec<u8>> {
    Ok(buffer(address, length)?.to_vec())
}

/// Runs one collective.
pub fn run(mesh: &Mesh, call: &Call) -> Result {
    agree(mesh, call)?;
    let transfer = Transfer::begin();
    match call.kind {
        Kind::AllReduce => all_reduce(mesh, call)?,
        Kind::AllGather => {
            let mine = copy_of(call.send, call.bytes())?;
            spread(mesh, call, |_| &mine)?;
        }
        Kind::ReduceScatter => reduce_scatter(mesh, call)?,
        Kind::AllToAll => {
            let all = copy_of(call.send, call.bytes() * mesh.size)?;
            spread(mesh, call, |peer| &all[peer * call.bytes()..][..call.bytes()])?;
        }
        Kind::Broadcast { root } => {
            let mine = if mesh.rank == root { copy_of(call.send, call.bytes())? } else { Vec::new() };
            from_root(mesh, call, root, |_| &mine)?;
        }
        Kind::Scatter { root } => {
            let length = if mesh.rank == root { call.bytes() * mesh.size } else { 0 };
            let all = copy_of(call.send, length)?;
            from_root(mesh, call, root, |peer| &all[peer * call.bytes()..][..call.bytes()])?;
        }
        Kind::Reduce { root } => {
            if let Some(parts) = to_root(mesh, &part(call, call.count)?, root)? {
                combine(call, &parts, buffer(call.receive, call.bytes())?);
            }
        }
        Kind::Gather { root } => {
            if let Some(parts) = to_root(mesh, &copy_of(call.send, call.bytes())?, root)? {
                buffer(call.receive, call.bytes() * mesh.size)?.copy_from_slice(&parts.concat());
            }
        }
        Kind::Send { .. } | Kind::Recv { .. } => {
            return Err(Error::usage("a point-to-point call is no collective"));
        }
    }
    if settings::get().wrong_rank == Some(mesh.rank)
        && let Some(first) = buffer(call.receive, call.bytes())?.first_mut()
    {
        *first ^= 1;
    }
    transfer.fill_up();
    all_gather(mesh, &[1]).map(|_| ())
}

/// The time since all ranks arrived.
struct Transfer(Instant);

impl Transfer {
    fn begin() -> Transfer {
        Transfer(Instant::now())
    }

    /// Waits until it is as long as the settings ask for.
    fn fill_up(&self) {
        if let Some(rest) = settings::get().transfer.checked_sub(self.0.elapsed()) {
            std::thread::sleep(rest);
        }
    }
}

/// Compares what all ranks were asked for; it is also where they wait for the last to arrive.
fn agree(mesh: &Mesh, call: &Call) -> Result {
    let mine = call.agreement();
    let all = all_gather(mesh, &mine)?;
    match all.iter().position(|said| said[..] != mine) {
        None => Ok(()),
        Some(peer) => Err(Error::usage(format!(
            "ranks disagree: rank {} calls {}, rank {peer} something else",
            mesh.rank,
            call.describe()
        ))),
    }
}

/// This rank's part of a reduction, times its scalar if it has one.
fn part(call: &Call, count: usize) -> Result<Vec<u8>> {
    let size = call.data_type.size();
    let mut part = copy_of(call.send, count * size)?;
    if let Some(Reduction::Scaled(scalar)) = &call.reduction {
        let scalar = match scalar {
            Scalar::Bytes(bytes) => bytes.clone(),
            Scalar::OnDevice(address) => copy_of(*address, size)?,
        };
        reduce::scale(call.data_type, &scalar, &mut part);
    }
    Ok(part)
}

fn combine<P: AsRef<[u8]>>(call: &Call, parts: &[P], result: &mut [u8]) {
    let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
    if let Some(reduction) = &call.reduction {
        reduce::reduce(call.data_type, reduction, &parts, result);
    }
}

/// Each rank reduces a slice of its own, then gives it to all: every rank gets the same bits.
fn all_reduce(mesh: &Mesh, call: &Call) -> Result {
    let mine = part(call, call.count)?;
    let size = call.data_type.size();
    let slice_of = |rank: usize| {
        let bound = |rank: usize| (call.count as u128 * rank as u128 / mesh.size as u128) as usize * size;
        bound(rank)..bound(rank + 1)
    };
    let slice = |rank: usize| &mine[slice_of(rank)];
    let parts = gather_parts(mesh, slice)?;
    let mut reduced = vec![0; slice(mesh.rank).len()];
    combine(call, &parts, &mut reduced);
    let mut rest = buffer(call.receive, call.bytes())?;
    let mut receives = Vec::new();
    for peer in 0..mesh.size {
        let (bytes, after) = std::mem::take(&mut rest).split_at_mut(slice_of(peer).len());
        rest = after;
        if peer == mesh.rank {
            bytes.copy_from_slice(&reduced);
        } else {
            receives.push(Receive { peer, bytes });
        }
    }
    mesh.exchange(mesh.peers().map(|peer| Send { peer, bytes: &reduced }).collect(), receives)
}

fn reduce_scatter(mesh: &Mesh, call: &Call) -> Result {
    let mine = part(call, call.count * mesh.size)?;
    let parts = gather_parts(mesh, |rank| &mine[rank * call.bytes()..][..call.bytes()])?;
    combine(call, &parts, buffer(call.receive, call.bytes())?);
    Ok(())
}

/// Gives each rank its slice, and returns what all ranks have for this one, in their order.
fn gather_parts<'a>(mesh: &Mesh, slice: impl Fn(usize) -> &'a [u8]) -> Result<Vec<Vec<u8>>> {
    let own = slice(mesh.rank);
    let mut parts: Vec<Vec<u8>> = (0..mesh.size)
        .map(|rank| if rank == mesh.rank { own.to_vec() } else { vec![0; own.len()] })
        .collect();
    let sends = mesh.peers().map(|peer| Send { peer, bytes: slice(peer) }).collect();
    let receives = parts
        .iter_mut()
        .enumerate()
        .filter(|(peer, _)| *peer != mesh.rank)
        .map(|(peer, bytes)| Receive { peer, bytes })
        .collect();
    mesh.exchange(sends, receives)?;
    Ok(parts)
}

/// Gives each rank `slice` of its number; the receive buffer has one part a rank, in their order.
fn spread<'a>(mesh: &Mesh, call: &Call, slice: impl Fn(usize) -> &'a [u8]) -> Result {
    let parts = gather_parts(mesh, slice)?;
    buffer(call.receive, call.bytes() * mesh.size)?.copy_from_slice(&parts.concat());
    Ok(())
}

/// The root gives each rank its slice.
fn from_root<'a>(mesh: &Mesh, call: &Call, root: usize, slice: impl Fn(usize) -> &'a [u8]) -> Result {
    let receive = buffer(call.receive, call.bytes())?;
    if mesh.rank != root {
        return mesh.exchange(Vec::new(), vec![Receive { peer: root, bytes: receive }]);
    }
    receive.copy_from_slice(slice(root));
    mesh.exchange(mesh.peers().map(|peer| Send { peer, bytes: slice(peer) }).collect(), Vec::new())
}

/// The root gets what all ranks have, in their order.
fn to_root(mesh: &Mesh, mine: &[u8], root: usize) -> Result<Option<Vec<Vec<u8>>>> {
    if mesh.rank != root {
        return mesh.exchange(vec![Send { peer: root, bytes: mine }], Vec::new()).map(|()| None);
    }
    let mut parts = vec![mine.to_vec(); mesh.size];
    let receives = parts
        .iter_mut()
        .enumerate()
        .filter(|(peer, _)| *peer != root)
        .map(|(peer, bytes)| Receive { peer, bytes })
        .collect();
    mesh.exchange(Vec::new(), receives)?;
    Ok(Some(parts))
}

/// Runs sends and receives together: none waits for the others' order. Each ends when the receiver has
/// what was sent.
pub fn run_point_to_point(mesh: &Mesh, calls: &[&Call]) -> Result {
    let header = |call: &Call| [call.count as u64, call.data_type as u64].map(u64::to_ne_bytes).concat();
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for call in calls {
        match call.kind {
            Kind::Send { peer } => sends.push((peer, header(call), copy_of(call.send, call.bytes())?, [0])),
            Kind::Recv { peer } => {
                receives.push((peer, header(call), vec![0; 16], vec![0; call.bytes()], call.receive));
            }
            _ => return Err(Error::usage("a collective is no point-to-point call")),
        }
    }
    let own = mesh.rank;
    let far = |peer: &usize| *peer != own;
    mesh.exchange(
        sends.iter().filter(|it| far(&it.0)).map(|it| Send { peer: it.0, bytes: &it.1 }).collect(),
        receives
            .iter_mut()
            .filter(|it| far(&it.0))
            .map(|it| Receive { peer: it.0, bytes: &mut it.2 })
            .collect(),
    )?;
    if let Some((peer, ..)) = receives.iter().find(|it| far(&it.0) && it.1 != it.2) {
        let text = format!("rank {own} and rank {peer} disagree on what is sent from one to the other");
        return Err(Error::usage(text));
    }
    let transfer = Transfer::begin();
    mesh.exchange(
        sends.iter().filter(|it| far(&it.0)).map(|it| Send { peer: it.0, bytes: &it.2 }).collect(),
        receives
            .iter_mut()
            .filter(|it| far(&it.0))
            .map(|it| Receive { peer: it.0, bytes: &mut it.3 })
            .collect(),
    )?;
    // What a rank sends to itself is received in order too.
    let mut to_self = sends.iter().filter(|it| it.0 == own);
    for receive in receives.iter_mut().filter(|it| it.0 == own) {
        let sent = to_self.next().filter(|sent| sent.1 == receive.1);
        let sent = sent.ok_or_else(|| Error::usage("a rank receives from itself what it does not send"))?;
        receive.3.copy_from_slice(&sent.2);
    }
    for (_, _, _, bytes, address) in &receives {
        buffer(*address, bytes.len())?.copy_from_slice(bytes);
    }
    transfer.fill_up();
    let done = [1];
    mesh.exchange(
        receives.iter().filter(|it| far(&it.0)).map(|it| Send { peer: it.0, bytes: &done }).collect(),
        sends.iter_mut().filter(|it| far(&it.0)).map(|it| Receive { peer: it.0, bytes: &mut it.3 }).collect(),
    )
}
