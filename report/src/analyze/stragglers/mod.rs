//! Stragglers: who makes others wait, and with what.
//!
//! A collective tells who came last, and not why. A rank may be late because it computed longer, or because
//! it had to wait in another communicator; and on any machine somebody comes last each time. So:
//!
//! - `share`: each wait is shared out among the ranks that had not arrived.
//! - `lateness`: a rank's share is its own doing, or inherited from ranks that held it up before.
//! - `ledger`: sums over collectives per rank and step, in bounded memory.
//! - `judge`: which rank's lateness is clearly more than chance.
//! - `spans`: in which span it spends longer than the others.
//!
//! The analysis of a whole timeline (`pass`) and the running aggregates fill the same [`Ledger`] and
//! [`SpanTimes`], and so find the same.

mod blocks;
mod figures;
mod judge;
mod lateness;
mod ledger;
mod pass;
mod share;
mod spans;
mod verdict;
mod words;

pub use figures::{Pattern, RankWaits, Straggler};
pub(crate) use lateness::{End, Part};
pub(crate) use ledger::{Ledger, block_of_time};
pub(super) use pass::stragglers;
pub(crate) use spans::SpanTimes;
use verdict::Found;
