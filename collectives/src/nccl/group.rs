//! Calls that NCCL launches together.
//!
//! NCCL's groups belong to a thread: what the thread calls between start and end is launched at the
//! (outermost) end. So the calls made meanwhile are kept here, and timed there, on each of their streams.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use commtrace_instrument::GpuGroup;
use cudarc::driver::{CudaView, CudaViewMut, SyncOnDrop};
use cudarc::nccl::NcclType;
use cudarc::nccl::result::NcclStatus;
use tracing::Span;

use super::call::NcclReduction;
use super::enqueue::Memory;
use super::library::{Library, SUCCESS};
use super::{NcclComm, Shared, status};
use crate::Result;

/// The group that this thread has open.
#[derive(Default)]
struct Open {
    /// Starts without an end.
    depth: u32,
    /// Unique in the process; 0 while no group is open.
    number: u64,
    timed: GpuGroup,
    spans: Vec<Span>,
    /// Communicators that have calls in it, which it keeps alive.
    comms: Vec<Arc<Shared>>,
}

thread_local! {
    static OPEN: RefCell<Open> = RefCell::default();
}

/// The number of the group that this thread has open.
pub(super) fn current() -> Option<u64> {
    let number = OPEN.try_with(|open| open.try_borrow().map_or(0, |open| open.number)).unwrap_or(0);
    (number != 0).then_some(number)
}

/// Adds a call of `comm`, which has been enqueued, to the group that this thread has open.
pub(super) fn add(comm: &Arc<Shared>, span: Span) {
    // A thread that is being torn down has no group, and nothing borrows it while this runs.
    let _ = OPEN.try_with(|open| {
        let Ok(mut open) = open.try_borrow_mut() else { return };
        if comm.group.swap(open.number, Ordering::Relaxed) != open.number {
            open.comms.push(Arc::clone(comm));
        }
        if !span.is_disabled() {
            open.timed.add(&span);
            open.spans.push(span);
        }
    });
}

/// Starts a group: the calls that this thread makes until [`group_end`] are launched together then.
/// Groups nest; the outermost end counts.
///
/// # Errors
///
/// [`Error::Setup`](crate::Error::Setup) without NCCL, [`Error::Native`](crate::Error::Native)
/// if it fails.
pub fn group_start() -> Result<NcclStatus> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let nccl = Library::get()?;
    // SAFETY: it takes nothing.
    let code = unsafe { (nccl.group_start)() };
    if code != SUCCESS {
        return Err(nccl.error("starting a group", code, std::ptr::null_mut()));
    }
    let _ = OPEN.try_with(|open| {
        let Ok(mut open) = open.try_borrow_mut() else { return };
        if open.depth == 0 {
            open.number = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        open.depth = open.depth.saturating_add(1);
    });
    Ok(NcclStatus::Success)
}

/// Ends a group, and launches its calls if it is the outermost.
///
/// # Errors
///
/// [`Error::Setup`](crate::Error::Setup) without NCCL, [`Error::Native`](crate::Error::Native)
/// if a call of the group fails or none was started.
pub fn group_end() -> Result<NcclStatus> {
    let nccl = Library::get()?;
    let group = OPEN
        .try_with(|open| {
            let mut open = open.try_borrow_mut().ok()?;
            open.depth = open.depth.saturating_sub(1);
            (open.depth == 0).then(|| std::mem::take(&mut *open))
        })
        .ok()
        .flatten();
    let code = match group {
        Some(group) => group.launch(nccl),
        // SAFETY: it takes nothing.
        None => unsafe { (nccl.group_end)() },
    };
    status(code).ok_or_else(|| nccl.error("ending a group", code, std::ptr::null_mut()))
}

impl Open {
    fn launch(mut self, nccl: &Library) -> std::ffi::c_int {
        // Those that are not timed on the GPU are timed here; for the others this records nothing.
        let entered: Vec<_> = self.spans.iter().map(Span::enter).collect();
        self.timed.begin();
        // SAFETY: it takes nothing.
        let code = unsafe { (nccl.group_end)() };
        if status(code).is_some() {
            self.timed.end();
        }
        // The last one entered is the first to be left.
        entered.into_iter().rev().for_each(drop);
        for comm in &self.comms {
            comm.group.store(0, Ordering::Relaxed);
        }
        code
    }
}

/// Calls that are launched together when it ends: cudarc's `Group`, made by [`NcclComm::group`] and
/// [`NcclComm::start_group`].
///
/// As there, the calls take views, whose buffers stay borrowed until the end.
pub struct NcclGroup<'g> {
    comm: &'g NcclComm,
    /// Dropped after the end, when the work that they record has been launched.
    guards: Vec<SyncOnDrop<'g>>,
    ended: bool,
}

impl NcclComm {
    /// Starts the calls that `calls` makes together and returns when they have been launched.
    ///
    /// ```no_run
    /// use commtrace_collectives::{NcclComm, ReduceOp, Result};
    /// use cudarc::driver::CudaSlice;
    ///
    /// fn exchange(comm: &NcclComm, mine: &CudaSlice<f32>, theirs: &mut CudaSlice<f32>) -> Result<()> {
    ///     let peer = 1 - comm.rank() as i32;
    ///     comm.group(|g| {
    ///         g.send(mine.as_view(), peer)?;
    ///         g.recv(theirs.as_view_mut(), peer)?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The closure's own error, else that of the first failed call. The calls made before the closure
    /// failed are still launched, since other ranks wait for them.
    pub fn group<'g, R>(&'g self, calls: impl FnOnce(&mut NcclGroup<'g>) -> Result<R>) -> Result<R> {
        let mut group = self.start_group()?;
        let value = calls(&mut group);
        let ended = group.end();
        let value = value?;
        ended.map(|_| value)
    }

    /// Starts a group that lasts until it is dropped or [`end`](NcclGroup::end)ed, as cudarc's `Comm::group` does.
    ///
    /// # Errors
    ///
    /// Those of [`group_start`].
    pub fn start_group(&self) -> Result<NcclGroup<'_>> {
        group_start()?;
        Ok(NcclGroup { comm: self, guards: Vec::new(), ended: false })
    }
}

/// Each call as that of [`NcclComm`] with the same name.
impl<'g> NcclGroup<'g> {
    /// The communicator.
    pub fn comm(&self) -> &'g NcclComm {
        self.comm
    }

    /// Launches the calls.
    ///
    /// # Errors
    ///
    /// Those of [`group_end`].
    pub fn end(mut self) -> Result<NcclStatus> {
        self.ended = true;
        group_end()
    }

    fn read<'s: 'g, T>(&mut self, buffer: CudaView<'s, T>) -> Memory {
        let len = buffer.len();
        let (address, guard) = buffer.view_ptr(&self.comm.shared.stream);
        self.guards.push(guard);
        Memory { address, len }
    }

    fn write<'r: 'g, T>(&mut self, buffer: CudaViewMut<'r, T>) -> Memory {
        let len = buffer.len();
        let (address, guard) = buffer.view_ptr_mut(&self.comm.shared.stream);
        self.guards.push(guard);
        Memory { address, len }
    }

    /// Reduces `sendbuff` over all ranks into every rank's `recvbuff`.
    pub fn all_reduce<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        recvbuff: CudaViewMut<'r, T>,
        reduce_op: &impl NcclReduction,
    ) -> Result<NcclStatus> {
        let (send, recv) = (self.read(sendbuff), self.write(recvbuff));
        self.comm.enqueue_all_reduce::<T>(send, recv, reduce_op.as_nccl_op())
    }

    /// Reduces `buff` over all ranks, in place.
    pub fn all_reduce_in_place<'r: 'g, T: NcclType>(
        &mut self,
        buff: CudaViewMut<'r, T>,
        reduce_op: &impl NcclReduction,
    ) -> Result<NcclStatus> {
        let memory = self.write(buff);
        self.comm.enqueue_all_reduce::<T>(memory, memory, reduce_op.as_nccl_op())
    }

    /// Reduces `sendbuff` over all ranks into the root's `recvbuff`.
    pub fn reduce<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        recvbuff: Option<CudaViewMut<'r, T>>,
        reduce_op: &impl NcclReduction,
        root: i32,
    ) -> Result<NcclStatus> {
        let send = self.read(sendbuff);
        let recv = recvbuff.map(|buffer| self.write(buffer));
        self.comm.enqueue_reduce::<T>(send, recv, reduce_op.as_nccl_op(), root)
    }

    /// Reduces `recvbuff` over all ranks into the root's.
    pub fn reduce_in_place<'r: 'g, T: NcclType>(
        &mut self,
        recvbuff: CudaViewMut<'r, T>,
        reduce_op: &impl NcclReduction,
        root: i32,
    ) -> Result<NcclStatus> {
        let memory = self.write(recvbuff);
        self.comm.enqueue_reduce::<T>(memory, Some(memory), reduce_op.as_nccl_op(), root)
    }

    /// Copies the root's `sendbuff` into every rank's `recvbuff`.
    pub fn broadcast<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: Option<CudaView<'s, T>>,
        recvbuff: CudaViewMut<'r, T>,
        root: i32,
    ) -> Result<NcclStatus> {
        let send = sendbuff.map(|buffer| self.read(buffer));
        let recv = self.write(recvbuff);
        self.comm.enqueue_broadcast::<T>(send, recv, root)
    }

    /// Copies the root's `recvbuff` into every other rank's.
    pub fn broadcast_in_place<'r: 'g, T: NcclType>(
        &mut self,
        recvbuff: CudaViewMut<'r, T>,
        root: i32,
    ) -> Result<NcclStatus> {
        let memory = self.write(recvbuff);
        self.comm.enqueue_broadcast::<T>(Some(memory), memory, root)
    }

    /// Gathers all ranks' `sendbuff` into every rank's `recvbuff`.
    pub fn all_gather<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        recvbuff: CudaViewMut<'r, T>,
    ) -> Result<NcclStatus> {
        let (send, recv) = (self.read(sendbuff), self.write(recvbuff));
        self.comm.enqueue_all_gather::<T>(send, recv)
    }

    /// Reduces `sendbuff` over all ranks and leaves in `recvbuff` this rank's part.
    pub fn reduce_scatter<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        recvbuff: CudaViewMut<'r, T>,
        reduce_op: &impl NcclReduction,
    ) -> Result<NcclStatus> {
        let (send, recv) = (self.read(sendbuff), self.write(recvbuff));
        self.comm.enqueue_reduce_scatter::<T>(send, recv, reduce_op.as_nccl_op())
    }

    /// Sends equal parts of `sendbuff` to all ranks and receives theirs.
    pub fn all_to_all<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        recvbuff: CudaViewMut<'r, T>,
    ) -> Result<NcclStatus> {
        let (send, recv) = (self.read(sendbuff), self.write(recvbuff));
        self.comm.enqueue_all_to_all::<T>(send, recv)
    }

    /// Sends parts of any length to all ranks and receives theirs.
    pub fn all_to_all_v<'s: 'g, 'r: 'g, T: NcclType>(
        &mut self,
        sendbuff: CudaView<'s, T>,
        send_counts: &[usize],
        recvbuff: CudaViewMut<'r, T>,
        recv_counts: &[usize],
    ) -> Result<NcclStatus> {
        let (send, recv) = (self.read(sendbuff), self.write(recvbuff));
        self.comm.enqueue_all_to_all_v::<T>((send, send_counts), (recv, recv_counts))
    }

    /// Sends `data` to rank `peer`.
    pub fn send<'s: 'g, T: NcclType>(&mut self, data: CudaView<'s, T>, peer: i32) -> Result<()> {
        let memory = self.read(data);
        self.comm.enqueue_send::<T>(memory, peer).map(drop)
    }

    /// Receives `buff` from rank `peer`.
    pub fn recv<'r: 'g, T: NcclType>(&mut self, buff: CudaViewMut<'r, T>, peer: i32) -> Result<NcclStatus> {
        let memory = self.write(buff);
        self.comm.enqueue_recv::<T>(memory, peer)
    }
}

impl Drop for NcclGroup<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // cudarc panics if this fails; what the error means, the stream's next user finds out.
            let _ = group_end();
        }
    }
}
