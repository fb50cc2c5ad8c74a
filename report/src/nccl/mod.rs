//! What NCCL's own tools tell: debug logs, Inspector dumps, benchmark tables.
//!
//! These are facts beside a timeline, not intervals in it: which communicators there are, which
//! algorithm ran for which size, how fast an operation is alone. [`read`](crate::read) puts them into
//! [`Input`](crate::timeline::Input); [`attach_algorithms`] joins a log's evidence to collectives.

mod bandwidth;
mod evidence;
mod inspector;
mod log;
mod tests_table;

pub use bandwidth::{algbw_gbs, busbw_factor};
pub use evidence::{Attached, Evidence, Selection, attach_algorithms};
pub use inspector::{Inspector, InspectorComm, InspectorOp};
pub use log::{AlgorithmChoice, Calls, Communicator, LastCall, LogWarning, Member, NcclLog, Transport};
pub use tests_table::{Measure, NcclTests, Place, TestDevice, TestRow};
