//! Making communicators, and taking them from and giving them to other code.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use commtrace_instrument::{
    Communicator as Registration, GpuStream, global_rank, rank_scope, register_communicator,
};
use cudarc::driver::CudaStream;
use cudarc::nccl::{Id, sys};

use super::device::CurrentContext;
use super::library::{IN_PROGRESS, Library, SUCCESS};
use super::{NcclComm, Raw, Shared, group, here, id, number};
use crate::{Error, Result};

/// The version of NCCL that is loaded, as `(major, minor, patch)`.
///
/// # Errors
///
/// [`Error::Setup`] if there is none.
pub fn version() -> Result<(u32, u32, u32)> {
    Library::get()?.version()
}

/// A new unique id, for one rank to make and all others to get; cudarc's `Id::new()`, which panics
/// without NCCL.
///
/// # Errors
///
/// [`Error::Setup`] if there is no NCCL, [`Error::Native`] if it fails.
pub fn unique_id() -> Result<Id> {
    let nccl = Library::get()?;
    let mut id = sys::ncclUniqueId { internal: [0; 128] };
    // SAFETY: the pointer is to an id of ours.
    match unsafe { (nccl.get_unique_id)(&mut id) } {
        SUCCESS => Ok(Id::uninit(id.internal)),
        code => Err(nccl.error("making a unique id", code, ptr::null_mut())),
    }
}

/// What is known of a new communicator.
struct New {
    raw: sys::ncclComm_t,
    stream: Arc<CudaStream>,
    name: Arc<str>,
    rank: usize,
    size: usize,
    global_rank: u32,
}

impl NcclComm {
    /// The communicators of all `streams` of this process, one rank per stream, in their order.
    ///
    /// Their global ranks are 0, 1, ... in this order; in a process that has a rank of its own, `r`,
    /// they go on from `r` times the number of streams. Calls that one thread makes for several of them
    /// belong between [`group_start`](super::group_start) and [`group_end`](super::group_end).
    ///
    /// # Errors
    ///
    /// [`Error::Setup`] without NCCL; [`Error::Native`] if it fails, or within a group.
    pub fn from_devices(streams: Vec<Arc<CudaStream>>) -> Result<Vec<Self>> {
        let nccl = Library::get()?;
        let size = streams.len();
        not_in_a_group(|| format!("making the {size} communicators of this process"))?;
        let id = unique_id()?;
        let mut raws: Vec<_> = (0..size).map(|_| place()).collect();
        // What ncclCommInitAll does, with an id that is known: the ranks of one thread are made together.
        // SAFETY: it takes nothing.
        let started = unsafe { (nccl.group_start)() };
        if started != SUCCESS {
            return Err(nccl.error("starting a group", started, ptr::null_mut()));
        }
        let mut ranks = streams.iter().zip(&mut raws).enumerate();
        let made = ranks.try_for_each(|(rank, (stream, raw))| init(nccl, stream, raw, size, id, rank));
        // SAFETY: ends what was started above.
        let ended = unsafe { (nccl.group_end)() };
        // If this fails, NCCL has freed what it made.
        made?;
        if ended != SUCCESS && ended != IN_PROGRESS {
            return Err(nccl.error("making the communicators of this process", ended, ptr::null_mut()));
        }
        let name = id::name(&id);
        let globals = global_ranks_of_process(&name, size);
        let comms = raws.into_iter().zip(streams).zip(&globals).enumerate();
        Ok(comms
            .map(|(rank, ((&mut raw, stream), &global_rank))| {
                let name = Arc::clone(&name);
                let comm = Self::new(nccl, New { raw, stream, name, rank, size, global_rank });
                comm.register(&globals);
                comm
            })
            .collect())
    }

    /// This rank's communicator of `world_size` ranks, all of which come with the same `id`, which one of them made with
    /// [`unique_id`]. Returns when all have come.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`] without NCCL; [`Error::Native`] if it fails, or within a group.
    pub fn from_rank(stream: Arc<CudaStream>, rank: usize, world_size: usize, id: Id) -> Result<Self> {
        let nccl = Library::get()?;
        not_in_a_group(|| what_of(rank, world_size))?;
        let handle = place();
        init(nccl, &stream, handle, world_size, id, rank)?;
        let raw = *handle;
        let name = id::name(&id);
        let global_rank = global_rank(&name, number(rank), number(world_size));
        let comm = Self::new(nccl, New { raw, stream, name, rank, size: world_size, global_rank });
        if commtrace_instrument::world_size() == Some(number(world_size)) && global_rank == number(rank) {
            // It is the whole job, in the job's order.
            comm.register(&(0..number(world_size)).collect::<Vec<_>>());
        }
        Ok(comm)
    }

    /// Takes over a communicator that other code made. `name` is what spans carry in `comm`, and must be
    /// the same on all of its ranks and that of no other communicator. Numbers of collectives begin with
    /// 0, so all ranks take it over at the same point.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`] without NCCL; [`Error::Native`] if NCCL does not know the
    /// communicator. It stays the caller's then.
    ///
    /// # Safety
    ///
    /// `raw` is a communicator of the device of `stream`, made by the NCCL library that this process has
    /// loaded, and is used and destroyed by nobody else from now on.
    pub unsafe fn from_raw(raw: sys::ncclComm_t, stream: Arc<CudaStream>, name: &str) -> Result<Self> {
        let nccl = Library::get()?;
        let ask = |what: &str, question: unsafe extern "C" fn(sys::ncclComm_t, *mut c_int) -> c_int| {
            let mut answer = 0;
            // SAFETY: the caller vouches for the communicator; the pointer is to an integer of ours.
            match unsafe { question(raw, &mut answer) } {
                SUCCESS => Ok(usize::try_from(answer).unwrap_or(0)),
                code => Err(nccl.error(what, code, ptr::null_mut())),
            }
        };
        let size = ask("asking a communicator for its size", nccl.comm_count)?;
        let rank = ask("asking a communicator for its rank", nccl.comm_user_rank)?;
        let global_rank = global_rank(name, number(rank), number(size));
        Ok(Self::new(nccl, New { raw, stream, name: name.into(), rank, size, global_rank }))
    }

    /// The communicator as NCCL knows it, which stays this value's: it must not be destroyed, and calls
    /// made on it are not traced.
    pub fn as_raw(&self) -> sys::ncclComm_t {
        self.shared.raw.0
    }

    /// Gives the communicator to the caller, who destroys or aborts it.
    pub fn into_raw(self) -> sys::ncclComm_t {
        self.shared.owned.store(false, Ordering::Relaxed);
        self.shared.raw.0
    }

    /// Divides the ranks into new communicators on the same stream: those that give the same `color` form one, in
    /// the order of `key` (ties by rank). A collective call, which has no span and consumes no `seq`.
    ///
    /// The new communicator is named after this one and the color, as
    /// [`LocalComm::split`](crate::LocalComm::split) does.
    ///
    /// # Errors
    ///
    /// [`Error::Setup`] if NCCL is older than 2.18; [`Error::Native`] if it fails, or within a group.
    pub fn split(&self, color: u32, key: u32) -> Result<Self> {
        self.split_on(self.stream(), color, key)
    }

    /// [`split`](Self::split) into communicators that enqueue their calls on `stream`, which must be of
    /// the same device.
    ///
    /// # Errors
    ///
    /// Those of [`split`](Self::split).
    pub fn split_on(&self, stream: Arc<CudaStream>, color: u32, key: u32) -> Result<Self> {
        let Shared { nccl, raw: Raw(parent), name, splits, .. } = &*self.shared;
        let comm_split = nccl.comm_split.ok_or_else(|| Error::Setup {
            library: "NCCL",
            problem: "it has no ncclCommSplit, which came with version 2.18".to_owned(),
        })?;
        let what = || format!("split {} of communicator {name}", splits.load(Ordering::Relaxed));
        not_in_a_group(what)?;
        let (Ok(color_code), Ok(key)) = (c_int::try_from(color), c_int::try_from(key)) else {
            return Err(Error::Native {
                library: "NCCL",
                what: what(),
                code: 4,
                message: format!("color {color} or key {key} is above {}", c_int::MAX),
            });
        };
        let handle = place();
        let _context = CurrentContext::enter(stream.context())?;
        // SAFETY: `parent` is a communicator, the pointer is to a handle of ours, and null stands for the
        // parent's configuration.
        let code = unsafe { comm_split(*parent, color_code, key, handle, ptr::null_mut()) };
        if code != SUCCESS && code != IN_PROGRESS {
            return Err(nccl.error(&what(), code, *parent));
        }
        let name = id::split_name(name, color, splits.fetch_add(1, Ordering::Relaxed));
        // SAFETY: NCCL has just made it for this device, and nobody else has it.
        let mut comm = unsafe { Self::from_raw(*handle, stream, &name) }?;
        if let Some(shared) = Arc::get_mut(&mut comm.shared) {
            shared.global_rank = self.shared.global_rank;
        }
        Ok(comm)
    }

    fn new(nccl: &'static Library, new: New) -> Self {
        let New { raw, stream, name, rank, size, global_rank } = new;
        here::add(&name);
        let shared = Arc::new(Shared {
            nccl,
            raw: Raw(raw),
            timed: GpuStream::new(&stream),
            owned: AtomicBool::new(true),
            stream,
            name,
            rank,
            size,
            global_rank,
            collectives: AtomicU64::new(0),
            splits: AtomicU64::new(0),
            group: AtomicU64::new(0),
        });
        Self { shared, not_sync: PhantomData }
    }

    /// Records the communicator with the global ranks of its members.
    fn register(&self, ranks: &[u32]) {
        let Shared { name, rank, global_rank, .. } = &*self.shared;
        let _scope = rank_scope(*global_rank);
        register_communicator(&Registration { name, ranks, comm_rank: number(*rank) });
    }
}

/// Where NCCL puts the handle of a new communicator. It stays for ever: in a group, NCCL writes it as the group ends,
/// and code that we do not know of may have one open on this thread.
fn place() -> &'static mut sys::ncclComm_t {
    Box::leak(Box::new(ptr::null_mut()))
}

fn what_of(rank: usize, size: usize) -> String {
    format!("making the communicator of rank {rank} of {size}")
}

/// What is made within a group can be used, or turns out not to exist, when the group ends: too late for a constructor.
fn not_in_a_group(what: impl FnOnce() -> String) -> Result<()> {
    match group::current() {
        None => Ok(()),
        Some(_) => Err(Error::Native {
            library: "NCCL",
            what: what(),
            code: 5,
            message: "a communicator cannot be made between a group's start and end; make it before"
                .to_owned(),
        }),
    }
}

/// Makes the communicator of `rank` on the device of `stream`; within a group it is made when that ends.
fn init(
    nccl: &Library,
    stream: &CudaStream,
    raw: &mut sys::ncclComm_t,
    size: usize,
    id: Id,
    rank: usize,
) -> Result<()> {
    let what = || what_of(rank, size);
    let (Ok(size_code), Ok(rank_code)) = (c_int::try_from(size), c_int::try_from(rank)) else {
        let message = "more ranks than NCCL can number".to_owned();
        return Err(Error::Native { library: "NCCL", what: what(), code: 4, message });
    };
    let _context = CurrentContext::enter(stream.context())?;
    let id = sys::ncclUniqueId { internal: *id.internal() };
    // SAFETY: `raw` is from `place`; the device's context is current.
    let code = unsafe { (nccl.comm_init_rank)(raw, size_code, id, rank_code) };
    if code == SUCCESS || code == IN_PROGRESS {
        Ok(())
    } else {
        Err(nccl.error(&what(), code, ptr::null_mut()))
    }
}

/// The global ranks of a communicator whose ranks are all in this process.
fn global_ranks_of_process(name: &str, size: usize) -> Vec<u32> {
    let size = number(size);
    let said: Vec<u32> = (0..size).map(|rank| global_rank(name, rank, size)).collect();
    match said.as_slice() {
        // The process has a rank of its own.
        &[first, second, ..] if first == second => {
            let base = first.saturating_mul(size);
            (0..size).map(|rank| base.saturating_add(rank)).collect()
        }
        _ => said,
    }
}
