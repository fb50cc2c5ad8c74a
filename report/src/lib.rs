//! Timeline model, readers, overlap analysis, advice and renderers.

pub mod advise;
pub mod aggregate;
pub mod analyze;
#[cfg(feature = "import")]
pub mod classify;
pub mod convert;
pub mod gather;
pub mod nccl;
pub mod read;
pub mod record;
pub mod render;
#[cfg(feature = "schema")]
pub mod schema;
pub mod timeline;
pub mod units;

mod parallel;
