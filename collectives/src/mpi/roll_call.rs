//! Who is missing: asked when a rank has waited too long.
//!
//! The rank that gives up asks all others whether they wait in the same call. Those that do answer while they
//! wait, and remember who asked, since that rank has left by the time when they give up themselves.
//! Whoever does not answer in time has not come.

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mpi::ffi;

use super::core::{Core, TAG_ASK, TAG_HERE};
use super::request::{Control, succeeded};
use super::runtime::lock;
use crate::host::key::Key;

/// How long answers are waited for. Those who wait look for questions many times in this time, however
/// busy the machine.
const PATIENCE: Duration = Duration::from_millis(500);

/// No call of all ranks under way.
pub(super) const NOWHERE: u64 = u64::MAX;

/// A call of all ranks as a number. No program makes 2^62 calls.
pub(super) fn number(key: Key) -> u64 {
    match key {
        Key::Collective { seq } => seq << 1,
        Key::Split { count } => count << 1 | 1,
        Key::Message { .. } => NOWHERE,
    }
}

impl Core {
    /// Global ranks of those that are not in the call numbered `seq`, as far as one can tell.
    pub(super) fn roll_call(&self, seq: u64) -> Vec<u32> {
        let size = self.members.size();
        let mut present = vec![false; size];
        let mark = |present: &mut Vec<bool>, rank: usize| {
            if let Some(place) = present.get_mut(rank) {
                *place = true;
            }
        };
        mark(&mut present, self.rank);
        (0..size).filter(|&rank| rank != self.rank).for_each(|rank| self.tell(rank, TAG_ASK, seq));
        let until = Instant::now() + PATIENCE;
        while present.contains(&false) && Instant::now() < until {
            self.answer();
            for (rank, place) in present.iter_mut().enumerate() {
                *place |= lock(&self.asked).contains(&(rank, seq));
            }
            while let Some((rank, answered)) = self.heard(TAG_HERE) {
                if answered == seq {
                    mark(&mut present, rank);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let missing = present.iter().enumerate().filter(|(_, present)| !**present);
        missing.map(|(rank, _)| self.members.global(rank)).collect()
    }

    /// Tells those who ask about the collective that this rank is in.
    pub(super) fn answer(&self) {
        let here = self.here.load(Ordering::Relaxed);
        while let Some((rank, seq)) = self.heard(TAG_ASK) {
            if seq == here {
                self.tell(rank, TAG_HERE, seq);
                lock(&self.asked).push((rank, seq));
            }
        }
    }

    /// Sends a number. It is small enough to be gone at once; the communicator is about to break, so what
    /// is left of the operation is given up.
    fn tell(&self, rank: usize, tag: c_int, number: u64) {
        let Ok(peer) = c_int::try_from(rank) else { return };
        // SAFETY: the number lies in the box.
        let sending = unsafe {
            Control::start(&self.runtime, "MPI_Isend", None, number, |number, request| {
                let data = std::ptr::from_mut(number).cast_const().cast();
                ffi::MPI_Isend(data, 1, ffi::RSMPI_UINT64_T, peer, tag, self.control.raw(), request)
            })
        };
        drop(sending);
    }

    /// The next number with this tag and who sent it.
    fn heard(&self, tag: c_int) -> Option<(usize, u64)> {
        let mut number = 0_u64;
        let mut status = std::mem::MaybeUninit::<ffi::MPI_Status>::uninit();
        let mut there: c_int = 0;
        let _serial = self.runtime.enter();
        let comm = self.control.raw();
        // SAFETY: the flag and the status outlive the call.
        let probed =
            unsafe { ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, tag, comm, &mut there, status.as_mut_ptr()) };
        if succeeded("MPI_Iprobe", probed).is_err() || there == 0 {
            return None;
        }
        // SAFETY: written, since a message is there. Only this thread receives messages of this tag, so the
        // receive finds what was probed and returns at once.
        let source = unsafe {
            let source = status.assume_init().MPI_SOURCE;
            let into = (&raw mut number).cast();
            let ignored = ffi::RSMPI_STATUS_IGNORE;
            let code = ffi::MPI_Recv(into, 1, ffi::RSMPI_UINT64_T, source, tag, comm, ignored);
            succeeded("MPI_Recv", code).ok()?;
            source
        };
        Some((usize::try_from(source).ok()?, number))
    }
}
