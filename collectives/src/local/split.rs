//! Sub-communicators.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::round::Core;

/// A rank of a new communicator.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) core: Arc<Core>,
    pub(super) rank: usize,
}

/// One member for each rank of `parent`, from the color and key that each gave.
///
/// Ranks of one color form a communicator, ordered by key and, for equal keys, by their rank in `parent`.
pub(super) fn members(parent: &Core, count: u64, wishes: &[(u32, u32)]) -> Vec<Member> {
    let mut colors: BTreeMap<u32, Vec<(u32, usize)>> = BTreeMap::new();
    for (rank, &(color, key)) in wishes.iter().enumerate() {
        colors.entry(color).or_default().push((key, rank));
    }
    let mut members: Vec<(usize, Member)> = Vec::with_capacity(wishes.len());
    for (color, mut ranks) in colors {
        ranks.sort_unstable();
        let globals = ranks.iter().map(|&(_, rank)| parent.global(rank)).collect();
        let core = Arc::new(Core::new(parent.members.part_name(color, count), globals, parent.timeout));
        for (rank, &(_, parent_rank)) in ranks.iter().enumerate() {
            members.push((parent_rank, Member { core: Arc::clone(&core), rank }));
        }
    }
    members.sort_unstable_by_key(|(parent_rank, _)| *parent_rank);
    members.into_iter().map(|(_, member)| member).collect()
}
