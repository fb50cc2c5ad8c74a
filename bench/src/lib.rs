//! Two experiments that anyone can run: how fast collectives are, and whether overlapping them with compute
//! pays.
//!
//! An experiment leaves one [`Record`] per algorithm and run label: JSON that says what was measured, on what,
//! with which result, or why there is none.
//!
//! A [`Session`] runs [`Plan`]s, each in processes of its own, whose ranks follow [`Orders`]: they measure over the
//! trait [`Communicator`](commtrace_collectives::Communicator), with a [`Timer`] of what carries it, check all results,
//! and leave [events](RankEvent) in files, so that what is known of a rank does not depend on how it ends.
#![deny(unsafe_op_in_unsafe_fn)]

mod assemble;
mod collective;
mod decision;
mod element;
mod event;
mod evidence;
mod files;
mod hardware;
mod launched;
mod measure;
mod missing;
#[cfg(feature = "nccl")]
mod nccl;
mod overlap;
mod pattern;
mod plan;
mod product;
mod quantile;
mod rank;
pub mod record;
pub mod report;
mod row;
#[cfg(feature = "schema")]
pub mod schema;
mod session;
mod supervise;
mod table;
mod termination;
mod timer;
mod utc;

pub use collective::Collective;
pub use element::{DTYPES, Number, parse_dtype};
pub use event::{EventFile, EventFolder, GaveUp, Measured, RankEvent, Subject};
pub use files::{FileError, RecordFiles};
pub use launched::Launched;
pub use measure::measure;
pub use missing::no_gpu;
pub use plan::{Backend, Fault, FaultKind, Plan, file_name_part, payloads};
pub use product::has_product;
pub use quantile::quantile;
pub use rank::Orders;
pub use record::Record;
pub use row::row;
pub use session::{Program, Session};
pub use table::table;
pub use termination::told_to_end;
pub use timer::{HostTimer, Timer};
