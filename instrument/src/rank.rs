//! Which rank a span belongs to.
//!
//! A [`rank_scope`] on the thread comes first, then the launcher's environment, then what
//! [`set_world`] said, then the rank in the process's first communicator ([`global_rank`]), then 0.

use crate::guard;
use crate::recorder::{RegisteredCommunicator, lock};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static SCOPE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// "Not said" in the statics below.
const UNKNOWN: u64 = u64::MAX;

static LAUNCHER_RANK: AtomicU64 = AtomicU64::new(UNKNOWN);
static LAUNCHER_SIZE: AtomicU64 = AtomicU64::new(UNKNOWN);
static WORLD_RANK: AtomicU64 = AtomicU64::new(UNKNOWN);
static WORLD_SIZE: AtomicU64 = AtomicU64::new(UNKNOWN);

/// What the first communicator says; the rank stays unknown where a process holds several of its ranks.
static ASSUMED_RANK: AtomicU64 = AtomicU64::new(UNKNOWN);
static ASSUMED_SIZE: AtomicU64 = AtomicU64::new(UNKNOWN);
static FIRST: Mutex<Option<First>> = Mutex::new(None);

/// The communicator that is taken for the world, and the rank in it that asked first.
struct First {
    name: String,
    rank: u32,
    /// Another rank of it asked from this process as well.
    several: bool,
}

/// Communicators registered before a recorder existed.
static EARLY: Mutex<Vec<RegisteredCommunicator>> = Mutex::new(Vec::new());

/// More than any program creates before `init`; a program that never records must not pile them up.
const MAX_EARLY: usize = 1024;

/// A communicator as recorded in the rank's file, so that the ranks can be matched later.
#[derive(Debug, Clone, Copy)]
pub struct Communicator<'a> {
    /// The name that spans carry in `comm`; equal on all of its ranks.
    pub name: &'a str,
    /// Global ranks of its members, in the communicator's order.
    pub ranks: &'a [u32],
    /// The calling rank's number in it.
    pub comm_rank: u32,
}

/// Records `communicator` for the rank of the calling thread.
pub fn register_communicator(communicator: &Communicator<'_>) {
    let registered = RegisteredCommunicator {
        rank: current_rank(),
        name: communicator.name.to_owned(),
        ranks: communicator.ranks.to_vec(),
        comm_rank: communicator.comm_rank,
    };
    let recorders = guard::active_recorders();
    if recorders.is_empty() {
        let mut early = lock(&EARLY);
        if early.len() < MAX_EARLY {
            early.push(registered);
        }
        return;
    }
    for recorder in recorders {
        recorder.register(registered.clone());
    }
}

pub(crate) fn take_early_communicators() -> Vec<RegisteredCommunicator> {
    std::mem::take(&mut *lock(&EARLY))
}

/// States the process's rank and the number of ranks, for jobs whose launcher sets no variables.
/// The launcher's environment and [`rank_scope`] come first.
pub fn set_world(rank: u32, size: u32) {
    WORLD_RANK.store(rank.into(), Ordering::Relaxed);
    WORLD_SIZE.store(size.into(), Ordering::Relaxed);
}

pub(crate) fn set_launcher(rank: Option<u32>, size: Option<u32>) {
    LAUNCHER_RANK.store(rank.map_or(UNKNOWN, u64::from), Ordering::Relaxed);
    LAUNCHER_SIZE.store(size.map_or(UNKNOWN, u64::from), Ordering::Relaxed);
}

/// The number of ranks of the job, if the launcher, [`set_world`] or the process's first communicator
/// ([`global_rank`]) says it.
pub fn world_size() -> Option<u32> {
    known(&LAUNCHER_SIZE).or_else(|| stated_world().1)
}

/// Rank and size that [`set_world`] stated, else those of the first communicator.
pub(crate) fn stated_world() -> (Option<u32>, Option<u32>) {
    (known(&WORLD_RANK).or_else(|| known(&ASSUMED_RANK)), known(&WORLD_SIZE).or_else(|| known(&ASSUMED_SIZE)))
}

/// The global rank of a communicator's member, for backends that know only its number in the
/// communicator: what a [`rank_scope`], the launcher or [`set_world`] says of the calling thread. Where
/// nothing does, the process's first communicator is taken for the world.
pub fn global_rank(communicator: &str, comm_rank: u32, comm_size: u32) -> u32 {
    if let Some(rank) = SCOPE.get().or_else(|| known(&LAUNCHER_RANK)).or_else(|| known(&WORLD_RANK)) {
        return rank;
    }
    let mut first = lock(&FIRST);
    let rank = first_says(&mut first, communicator, comm_rank);
    if let Some(world) = &*first {
        let assumed = if world.several { UNKNOWN } else { world.rank.into() };
        ASSUMED_RANK.store(assumed, Ordering::Relaxed);
        if world.name == communicator {
            ASSUMED_SIZE.store(comm_size.into(), Ordering::Relaxed);
        }
    }
    rank
}

/// The global rank of `comm_rank` in `communicator`, going by the first communicator alone.
fn first_says(first: &mut Option<First>, communicator: &str, comm_rank: u32) -> u32 {
    match first {
        Some(first) if first.name == communicator => {
            first.several |= first.rank != comm_rank;
            comm_rank
        }
        Some(first) if first.several => comm_rank,
        Some(first) => first.rank,
        none => {
            *none = Some(First { name: communicator.to_owned(), rank: comm_rank, several: false });
            comm_rank
        }
    }
}

fn known(stored: &AtomicU64) -> Option<u32> {
    u32::try_from(stored.load(Ordering::Relaxed)).ok()
}

/// Until the guard is dropped, spans of this thread belong to `rank`.
///
/// ```
/// use commtrace_instrument::{current_rank, rank_scope};
/// let scope = rank_scope(3);
/// assert_eq!(current_rank(), 3);
/// drop(scope);
/// ```
pub fn rank_scope(rank: u32) -> RankScope {
    RankScope { previous: SCOPE.replace(Some(rank)), not_send: std::marker::PhantomData }
}

/// The rank that a span created now on this thread belongs to.
#[inline]
pub fn current_rank() -> u32 {
    match SCOPE.get() {
        Some(rank) => rank,
        None => {
            known(&LAUNCHER_RANK).or_else(|| known(&WORLD_RANK)).or_else(|| known(&ASSUMED_RANK)).unwrap_or(0)
        }
    }
}

/// Ends a [`rank_scope`] when dropped.
#[derive(Debug)]
#[must_use = "the scope ends when the guard is dropped"]
pub struct RankScope {
    previous: Option<u32>,
    /// It belongs to its thread.
    not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for RankScope {
    fn drop(&mut self) {
        // A thread that is being torn down has no scope left to restore.
        let _ = SCOPE.try_with(|scope| scope.set(self.previous));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_communicator_is_taken_for_the_world() {
        let first = &mut None;
        assert_eq!(first_says(first, "world", 3), 3);
        assert_eq!(first_says(first, "tensor", 1), 3, "the same rank in a smaller communicator");
        assert_eq!(first_says(first, "world", 3), 3);
    }

    #[test]
    fn of_several_ranks_in_a_process_each_has_its_number_in_the_communicator() {
        let first = &mut None;
        assert_eq!([0, 1].map(|rank| first_says(first, "world", rank)), [0, 1]);
        assert!(first.as_ref().is_some_and(|first| first.several));
        assert_eq!(first_says(first, "tensor", 1), 1, "nothing tells whose communicator this is");
    }

    #[test]
    fn a_scope_comes_before_the_communicator() {
        let _scope = rank_scope(4);
        assert_eq!(global_rank("world", 1, 8), 4);
    }
}
