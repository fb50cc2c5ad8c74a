//! Ranks on GPUs, by NCCL: [`NcclComm`] in the place of `cudarc::nccl::Comm` (feature `nccl`).
//!
//! The constructors, methods and their arguments are those of [`cudarc::nccl::Comm`], so code that uses it
//! changes its `use` line:
//!
//! ```no_run
//! // use cudarc::nccl::{Comm, Id, ReduceOp};
//! use commtrace_collectives::nccl::{Comm, Id, ReduceOp};
//! use cudarc::driver::CudaContext;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (rank, world_size, id) = (0, 1, Id::new().map_err(|error| format!("{:?}", error.0))?);
//! let stream = CudaContext::new(rank)?.new_stream()?;
//! let comm = Comm::from_rank(stream.clone(), rank, world_size, id)?;
//! let gradients = stream.clone_htod(&[1.0_f32; 1024])?;
//! let mut sum = stream.alloc_zeros::<f32>(1024)?;
//! comm.all_reduce(&gradients, &mut sum, &ReduceOp::Sum)?;
//! # Ok(())
//! # }
//! ```
//!
//! What differs from cudarc: errors are [`Error`], which has a message and turns into
//! cudarc's `NcclError` with `?`; a library or a function that is missing is such an error and no
//! panic; buffers that are too short for a call are refused, where NCCL would write beyond their end;
//! and [`group`](NcclComm::group) takes a closure ([`start_group`](NcclComm::start_group) is cudarc's form).
//! cudarc's `group_start` and `group_end` are [`group_start`] and [`group_end`] here: with cudarc's own
//! around our calls, the calls' times would be those of enqueueing them.
//!
//! # What a call's span measures
//!
//! Its start event is recorded on the communicator's stream after the waits for the call's buffers
//! have been enqueued there, so that waiting for the kernel that makes the data is not counted as
//! communication; its end event right after NCCL's own work. The calls of a group are launched together when
//! it ends: they share the group's interval on their stream, of which each gets a part in proportion
//! to its bytes, and are marked `grouped`.
//!
//! # Ranks
//!
//! A span's `rank` is the global rank: that of a [`rank_scope`](commtrace_instrument::rank_scope) on the
//! thread that makes the communicator, else what the launcher says, else the rank in the process's
//! first communicator. `comm_rank` is the rank in the communicator, and `comm` its name, which is computed from the
//! unique id and therefore equal on all ranks; it is the number that NCCL's log calls `commId`.

mod buffer;
mod bytes;
mod call;
mod calls;
mod communicator;
mod device;
mod enqueue;
mod group;
mod here;
mod id;
mod init;
mod library;
mod pending;

use std::cell::Cell;
use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use commtrace_instrument::{GpuStream, TokenExchange};
use cudarc::driver::{CudaContext, CudaStream};
use cudarc::nccl::sys;
use tracing::Span;

use crate::trace::Spread;
use crate::{CallId, CallKind, Error, Result, trace};
use call::Call;
use library::{IN_PROGRESS, Library, SUCCESS};

pub use crate::ReduceOp;
/// The name that cudarc has for it.
pub use NcclComm as Comm;
pub use buffer::NcclBuffer;
pub use call::NcclReduction;
pub use cudarc::nccl::result::{NcclError, NcclStatus};
pub use cudarc::nccl::{Id, NcclType};
pub use group::{NcclGroup, group_end, group_start};
pub use init::{unique_id, version};

/// A communicator whose calls trace themselves: `cudarc::nccl::Comm` with a span around every call.
///
/// See the [module](self) for what differs. The calls are enqueued on the communicator's stream, in whose order
/// their results can be used. A communicator may move to another thread but cannot be shared by
/// threads, as NCCL demands.
///
/// Ranks that disagree on a call (its length, its type, which one is next) are not found out by
/// NCCL: they wait for each other. Records tell them from each other afterwards.
///
/// # Dropping
///
/// Dropping it aborts it, as cudarc does: work that is still under way ends without its result.
/// Synchronize the stream first.
pub struct NcclComm {
    shared: Arc<Shared>,
    /// NCCL does not allow calls from several threads at a time.
    not_sync: PhantomData<Cell<()>>,
}

/// A communicator; also kept by the open group that has calls of it.
struct Shared {
    nccl: &'static Library,
    raw: Raw,
    /// Whether `raw` is to be aborted in the end.
    owned: AtomicBool,
    stream: Arc<CudaStream>,
    /// The same, as spans take it.
    timed: GpuStream,
    name: Arc<str>,
    rank: usize,
    size: usize,
    global_rank: u32,
    collectives: AtomicU64,
    splits: AtomicU64,
    /// Number of the open group that has calls of this communicator; 0 if there is none.
    group: AtomicU64,
}

/// The handle of a communicator.
#[derive(Clone, Copy)]
struct Raw(sys::ncclComm_t);

// SAFETY: an `ncclComm_t` is not tied to the thread that made it. Calls on it are made by methods of
// `NcclComm`, which is not `Sync`, and refused while a group of another thread has calls of it; such a group
// uses its `Arc` for nothing but to keep the handle alive.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl NcclComm {
    /// The stream that calls are enqueued on.
    pub fn stream(&self) -> Arc<CudaStream> {
        Arc::clone(&self.shared.stream)
    }

    /// The context of the stream.
    pub fn context(&self) -> &Arc<CudaContext> {
        self.shared.stream.context()
    }

    /// The device's number.
    pub fn ordinal(&self) -> usize {
        self.context().ordinal()
    }

    /// This rank's number within the communicator.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.shared.size
    }

    /// The name that spans carry in `comm`, equal on all ranks.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// This rank's number in the job, however its number in this communicator.
    pub fn global_rank(&self) -> u32 {
        self.shared.global_rank
    }

    /// What has gone wrong on the stream since, such as a network error or a rank that is gone: work that
    /// waits for it never ends, until the communicator is dropped. For a watchdog of the application.
    ///
    /// # Errors
    ///
    /// [`Error::Native`] if something has.
    pub fn async_error(&self) -> Result<()> {
        let Shared { nccl, raw, name, .. } = &*self.shared;
        let Some(ask) = nccl.comm_get_async_error else { return Ok(()) };
        let mut state = SUCCESS;
        // SAFETY: the communicator is alive, and the pointer is to an integer of ours.
        let code = match unsafe { ask(raw.0, &mut state) } {
            SUCCESS => state,
            code => code,
        };
        match status(code) {
            Some(_) => Ok(()),
            None => Err(nccl.error(&format!("work of communicator {name}"), code, raw.0)),
        }
    }

    /// Carries out `call`, which `enqueue` enqueues and returns NCCL's code of; `problem` is what is wrong
    /// with its arguments. The waits for the buffers are on the stream by now, as the span's start event is
    /// recorded when it is entered.
    fn issue(
        &self,
        call: Call<'_>,
        problem: Option<String>,
        enqueue: impl FnOnce(&Library, sys::ncclComm_t, sys::cudaStream_t) -> c_int,
    ) -> Result<NcclStatus> {
        let shared = &*self.shared;
        let group = group::current();
        let open = shared.group.load(Ordering::Relaxed);
        let problem = problem.or_else(|| {
            let elsewhere = open != 0 && group != Some(open);
            elsewhere
                .then(|| "the communicator has calls in a group that another thread has not ended".to_owned())
        });
        if let Some(problem) = problem {
            // It does not count: the other ranks meet this rank's next call.
            let call = shared.call_id(call, shared.collectives.load(Ordering::Relaxed));
            return Err(Error::InvalidArgument { call, problems: vec![(shared.global_rank, problem)] });
        }
        let seq = if call.op.is_p2p() { 0 } else { shared.collectives.fetch_add(1, Ordering::Relaxed) };
        let span = shared.span(call, seq, group.is_some());
        let stream = shared.stream.cu_stream().cast();
        let code = match group {
            Some(_) => {
                let code = enqueue(shared.nccl, shared.raw.0, stream);
                if code == SUCCESS || code == IN_PROGRESS {
                    group::add(&self.shared, span);
                }
                code
            }
            None => span.in_scope(|| enqueue(shared.nccl, shared.raw.0, stream)),
        };
        status(code)
            .ok_or_else(|| shared.nccl.error(&shared.call_id(call, seq).to_string(), code, shared.raw.0))
    }
}

impl Shared {
    /// How errors name `call`; `seq` is its number if it is a collective.
    fn call_id(&self, call: Call<'_>, seq: u64) -> CallId {
        let Call { op, peer, .. } = call;
        let kind = match peer {
            Some(peer) if op.is_p2p() => CallKind::WithPeer { op, peer },
            _ => CallKind::Collective { op, seq },
        };
        CallId { comm: Arc::clone(&self.name), call: kind }
    }

    fn span(&self, call: Call<'_>, seq: u64, grouped: bool) -> Span {
        let span = trace::span(&trace::Call {
            op: call.op,
            bytes: call.bytes,
            dtype: call.dtype,
            comm: &self.name,
            seq: (!call.op.is_p2p()).then_some(seq),
            rank: self.global_rank,
            comm_rank: number(self.rank),
            comm_size: number(self.size),
            peer: call.peer.and_then(|peer| u64::try_from(peer).ok()),
            stream: Some(&self.timed),
            grouped,
        });
        if let Some(parts) = call.parts {
            let spread =
                Spread { parts, element_bytes: call.element_bytes, tokens: TokenExchange::current() };
            trace::record_spread(&span, self.rank, self.size, &spread);
        }
        span
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        here::remove(&self.name);
        if *self.owned.get_mut() {
            // SAFETY: NCCL made the communicator, and whoever could use it is gone. That it fails would
            // change nothing, and a destructor must not panic.
            unsafe { (self.nccl.comm_abort)(self.raw.0) };
        }
    }
}

impl fmt::Debug for NcclComm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NcclComm")
            .field("name", &self.shared.name)
            .field("rank", &self.shared.rank)
            .field("world_size", &self.shared.size)
            .finish_non_exhaustive()
    }
}

/// What `code` says unless it is an error.
fn status(code: c_int) -> Option<NcclStatus> {
    match code {
        SUCCESS => Some(NcclStatus::Success),
        // cudarc has no such status under its oldest CUDA versions.
        IN_PROGRESS => Some(sys::ncclResult_t::ncclInProgress.result().unwrap_or(NcclStatus::Success)),
        _ => None,
    }
}

/// For a `?` in functions that return cudarc's error.
impl From<Error> for NcclError {
    fn from(error: Error) -> Self {
        Self(match error {
            Error::Native { library: "NCCL", code, .. } => match code {
                1 => sys::ncclResult_t::ncclUnhandledCudaError,
                2 => sys::ncclResult_t::ncclSystemError,
                3 => sys::ncclResult_t::ncclInternalError,
                5 => sys::ncclResult_t::ncclInvalidUsage,
                6 => sys::ncclResult_t::ncclRemoteError,
                _ => sys::ncclResult_t::ncclInvalidArgument,
            },
            Error::Native { .. } => sys::ncclResult_t::ncclUnhandledCudaError,
            Error::Setup { .. } => sys::ncclResult_t::ncclSystemError,
            _ => sys::ncclResult_t::ncclInvalidArgument,
        })
    }
}

fn number(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}
