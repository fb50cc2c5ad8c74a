//! The calls on device pointers: what is checked, what is counted, and what NCCL is asked for.

use std::ffi::{c_int, c_void};
use std::ptr;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::nccl::NcclType;
use cudarc::nccl::result::NcclStatus;
use cudarc::nccl::sys::{cudaStream_t, ncclComm_t};

use super::NcclComm;
use super::call::{Call, too_short};
use super::library::{Library, SUCCESS};
use crate::trace::Parts;
use crate::{Op, Result};

/// Device memory of a buffer that the caller holds until the call has been enqueued.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) address: CUdeviceptr,
    /// In elements of the call's type.
    pub(super) len: usize,
}

impl Memory {
    fn read(self) -> *const c_void {
        self.address as *const c_void
    }

    fn write(self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// The address of the element numbered `index`.
    fn at<T>(self, index: usize) -> CUdeviceptr {
        self.address.saturating_add((index as u64).saturating_mul(size_of::<T>() as u64))
    }
}

/// The number of `T` in `ncclDataType_t`.
fn code<T: NcclType>() -> c_int {
    T::as_nccl_type() as c_int
}

// SAFETY of all calls below: the communicator and the stream are alive, since `self` holds them; both
// buffers are device memory of at least the length that the call needs, which `problem` has checked, and the caller
// of each method holds them, with the events by which cudarc keeps the memory until the work is done.
impl NcclComm {
    pub(super) fn enqueue_all_reduce<T: NcclType>(
        &self,
        send: Memory,
        recv: Memory,
        op: c_int,
    ) -> Result<NcclStatus> {
        let problem = too_short("recv", recv.len, Some(send.len));
        self.issue(Call::new::<T>(Op::AllReduce, send.len), problem, |nccl, comm, stream| {
            // SAFETY: see above.
            unsafe { (nccl.all_reduce)(send.read(), recv.write(), send.len, code::<T>(), op, comm, stream) }
        })
    }

    pub(super) fn enqueue_reduce<T: NcclType>(
        &self,
        send: Memory,
        recv: Option<Memory>,
        op: c_int,
        root: i32,
    ) -> Result<NcclStatus> {
        let problem = self.not_a_rank("root", root).or_else(|| match recv {
            Some(recv) if self.is(root) => too_short("recv", recv.len, Some(send.len)),
            None if self.is(root) => Some("the root gave no recv buffer".to_owned()),
            _ => None,
        });
        let to = recv.map_or(ptr::null_mut(), Memory::write);
        self.issue(Call::new::<T>(Op::Reduce, send.len).with_peer(root), problem, |nccl, comm, stream| {
            // SAFETY: see above; NCCL uses `recv` on the root only.
            unsafe { (nccl.reduce)(send.read(), to, send.len, code::<T>(), op, root, comm, stream) }
        })
    }

    pub(super) fn enqueue_broadcast<T: NcclType>(
        &self,
        send: Option<Memory>,
        recv: Memory,
        root: i32,
    ) -> Result<NcclStatus> {
        let problem = self.not_a_rank("root", root).or_else(|| match send {
            Some(send) if self.is(root) => too_short("send", send.len, Some(recv.len)),
            None if self.is(root) => Some("the root gave no send buffer".to_owned()),
            _ => None,
        });
        let from = send.map_or(ptr::null(), Memory::read);
        self.issue(Call::new::<T>(Op::Broadcast, recv.len).with_peer(root), problem, |nccl, comm, stream| {
            // SAFETY: see above; NCCL uses `send` on the root only.
            unsafe { (nccl.broadcast)(from, recv.write(), recv.len, code::<T>(), root, comm, stream) }
        })
    }

    pub(super) fn enqueue_all_gather<T: NcclType>(&self, send: Memory, recv: Memory) -> Result<NcclStatus> {
        let all = send.len.checked_mul(self.world_size());
        let problem = too_short("recv", recv.len, all);
        let call = Call::new::<T>(Op::AllGather, all.unwrap_or(usize::MAX));
        self.issue(call, problem, |nccl, comm, stream| {
            // SAFETY: see above.
            unsafe { (nccl.all_gather)(send.read(), recv.write(), send.len, code::<T>(), comm, stream) }
        })
    }

    pub(super) fn enqueue_reduce_scatter<T: NcclType>(
        &self,
        send: Memory,
        recv: Memory,
        op: c_int,
    ) -> Result<NcclStatus> {
        let all = recv.len.checked_mul(self.world_size());
        let problem = too_short("send", send.len, all);
        let call = Call::new::<T>(Op::ReduceScatter, all.unwrap_or(usize::MAX));
        self.issue(call, problem, |nccl, comm, stream| {
            // SAFETY: see above.
            unsafe {
                (nccl.reduce_scatter)(send.read(), recv.write(), recv.len, code::<T>(), op, comm, stream)
            }
        })
    }

    pub(super) fn enqueue_all_to_all<T: NcclType>(&self, send: Memory, recv: Memory) -> Result<NcclStatus> {
        let ranks = self.world_size();
        let problem = if send.len.is_multiple_of(ranks) {
            too_short("recv", recv.len, Some(send.len))
        } else {
            Some(format!("{} elements cannot be cut into {ranks} equal parts", send.len))
        };
        let count = send.len / ranks.max(1);
        let call = Call::new::<T>(Op::AllToAll, send.len).with_parts(Parts::Equal(count));
        self.issue(call, problem, |nccl, comm, stream| {
            if let Some(all_to_all) = nccl.all_to_all {
                // SAFETY: see above.
                return unsafe { all_to_all(send.read(), recv.write(), count, code::<T>(), comm, stream) };
            }
            let parts = (0..ranks).map(|rank| (rank * count, count));
            exchange::<T>(nccl, send, recv, parts.clone(), parts, comm, stream)
        })
    }

    /// Parts of `send_counts` and `recv_counts` elements for and from each rank lie one after another.
    pub(super) fn enqueue_all_to_all_v<T: NcclType>(
        &self,
        (send, send_counts): (Memory, &[usize]),
        (recv, recv_counts): (Memory, &[usize]),
    ) -> Result<NcclStatus> {
        let ranks = self.world_size();
        let total = |counts: &[usize]| counts.iter().try_fold(0_usize, |sum, &count| sum.checked_add(count));
        let wrong = |name: &str, counts: &[usize], memory: Memory| {
            if counts.len() != ranks {
                return Some(format!("{name}_counts has {} entries for {ranks} ranks", counts.len()));
            }
            too_short(name, memory.len, total(counts))
        };
        let problem = wrong("send", send_counts, send).or_else(|| wrong("recv", recv_counts, recv));
        let call = Call::new::<T>(Op::AllToAllV, total(send_counts).unwrap_or(usize::MAX))
            .with_parts(Parts::Counts { sent: send_counts, received: recv_counts });
        self.issue(call, problem, |nccl, comm, stream| {
            exchange::<T>(nccl, send, recv, parts(send_counts), parts(recv_counts), comm, stream)
        })
    }

    pub(super) fn enqueue_send<T: NcclType>(&self, data: Memory, peer: i32) -> Result<NcclStatus> {
        let problem = self.not_a_rank("peer", peer);
        self.issue(Call::new::<T>(Op::Send, data.len).with_peer(peer), problem, |nccl, comm, stream| {
            // SAFETY: see above.
            unsafe { (nccl.send)(data.read(), data.len, code::<T>(), peer, comm, stream) }
        })
    }

    pub(super) fn enqueue_recv<T: NcclType>(&self, buffer: Memory, peer: i32) -> Result<NcclStatus> {
        let problem = self.not_a_rank("peer", peer);
        self.issue(Call::new::<T>(Op::Recv, buffer.len).with_peer(peer), problem, |nccl, comm, stream| {
            // SAFETY: see above.
            unsafe { (nccl.recv)(buffer.write(), buffer.len, code::<T>(), peer, comm, stream) }
        })
    }

    /// NCCL has no barrier: every rank adds up one element, `token`, which nobody reads.
    pub(super) fn enqueue_barrier(&self, token: Memory) -> Result<NcclStatus> {
        let problem = too_short("token", token.len, Some(1));
        let call = Call { dtype: None, ..Call::new::<u8>(Op::Barrier, 0) };
        self.issue(call, problem, |nccl, comm, stream| {
            // SAFETY: see above.
            unsafe { (nccl.all_reduce)(token.read(), token.write(), 1, code::<u8>(), 0, comm, stream) }
        })
    }

    fn is(&self, rank: i32) -> bool {
        usize::try_from(rank) == Ok(self.rank())
    }

    fn not_a_rank(&self, name: &str, rank: i32) -> Option<String> {
        let size = self.world_size();
        let inside = usize::try_from(rank).is_ok_and(|rank| rank < size);
        (!inside).then(|| format!("{name} {rank} is not a rank of a communicator of {size}"))
    }
}

/// Where each of `counts` elements begins, and how many they are.
fn parts(counts: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    counts.iter().scan(0_usize, |next, &count| {
        let first = *next;
        *next = next.saturating_add(count);
        Some((first, count))
    })
}

/// A send to and a receive from every rank, together; returns the first error's code.
fn exchange<T: NcclType>(
    nccl: &Library,
    send: Memory,
    recv: Memory,
    sent: impl Iterator<Item = (usize, usize)>,
    received: impl Iterator<Item = (usize, usize)>,
    comm: ncclComm_t,
    stream: cudaStream_t,
) -> c_int {
    // SAFETY: it takes nothing.
    let started = unsafe { (nccl.group_start)() };
    if started != SUCCESS {
        return started;
    }
    let mut result = SUCCESS;
    for (peer, ((from, send_count), (to, recv_count))) in (0..).zip(sent.zip(received)) {
        let (from, to) = (send.at::<T>(from) as *const c_void, recv.at::<T>(to) as *mut c_void);
        // SAFETY: the parts lie within the buffers, which the caller has checked; for the rest see above.
        let code = unsafe {
            match (nccl.send)(from, send_count, code::<T>(), peer, comm, stream) {
                SUCCESS => (nccl.recv)(to, recv_count, code::<T>(), peer, comm, stream),
                code => code,
            }
        };
        if result == SUCCESS {
            result = code;
        }
    }
    // SAFETY: ends what was started above.
    let ended = unsafe { (nccl.group_end)() };
    if result == SUCCESS { ended } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_one_after_another() {
        assert_eq!(parts(&[3, 0, 2]).collect::<Vec<_>>(), [(0, 3), (3, 0), (3, 2)]);
        assert_eq!(Memory { address: 100, len: 5 }.at::<f32>(3), 112);
    }
}
