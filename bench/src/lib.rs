//! Two experiments that anyone can run: how fast collectives are, and whether overlapping them with compute
//! pays.
//!
//! An experiment leaves one [`Record`] per algorithm and run label: JSON that says what was measured, on what,
//! with which result, or why there is none.

mod quantile;
pub mod record;

pub use quantile::quantile;
pub use record::Record;
