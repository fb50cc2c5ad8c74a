//! How calls spread over the ranks of their communicator, and how tokens are routed to experts.
//!
//! Each rank adds up what it sent and received ([`RoutingSums`], also while a run goes on); what the ranks amount to
//! together ([`expert_routing`]) is worked out of these sums alone. They are only compared where each rank
//! of a communicator has the same number of calls and none lost any.

mod across;
mod figures;
mod sums;

pub(crate) use across::expert_routing;
pub use figures::{ExchangeFigures, ExpertRouting, PairBytes, PeerBytes, RankExchanges, RankRouting};
pub(crate) use sums::{RoutedCall, RoutingSums, add_throughput, mark_losses, rank_routing};

/// Ranks of a communicator up to which the bytes for each pair of ranks are given.
pub(crate) const MATRIX_RANKS: usize = 64;

/// Pairs of ranks that are named, and ranks per rank in communicators without a matrix.
pub(crate) const HEAVIEST: usize = 8;
