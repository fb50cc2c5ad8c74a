//! Communicators that trace themselves.
//!
//! [`Communicator`] is what training code is written against; [`LocalComm`] implements it with the
//! threads of one process as ranks and real arithmetic, `MpiComm` (feature `mpi`) with processes that MPI
//! connects, `NcclComm` (feature `nccl`) with GPUs. Every call opens a span of
//! [`comm_span!`](commtrace_instrument::comm_span) with these fields:
//!
//! | field | |
//! | --- | --- |
//! | name (`op`) | `all_reduce`, `all_gather`, `reduce_scatter`, `broadcast`, `reduce`, `all_to_all`, `all_to_all_v`, `send`, `recv`, `barrier` |
//! | `bytes` | the size that nccl-tests takes: the buffer of one rank; for all_gather and reduce_scatter the long buffer (part × ranks); for all_to_all the whole send buffer; for all_to_all_v the sum of the parts sent |
//! | `dtype` | PyTorch's name of the element type, for example `bfloat16` |
//! | `comm`, `comm_size`, `comm_rank` | the communicator's name and size, and this rank's number in it |
//! | `rank` | the global rank |
//! | `seq` | number of the collective in its communicator; point-to-point calls neither have nor consume one |
//! | `peer` | the other side of a point-to-point call or the root, as a rank of the communicator |
//! | `stream` | the GPU stream, or the communication thread of a non-blocking call |
//! | `grouped` | `true` for the calls of a [`Communicator::group`] |
//!
//! A blocking call's span is entered for as long as the call is the communicator's current one on this
//! rank, which includes waiting for late ranks, as a NCCL kernel does. A non-blocking call's span is made where the
//! call is made (so it belongs to the step that is current there) and entered on the communication
//! thread around the operation. A span on a GPU's stream is timed there, see `nccl`.
#![deny(unsafe_op_in_unsafe_fn)]

mod communicator;
pub mod cost;
mod element;
mod error;
mod finish;
#[macro_use]
mod host;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
pub mod nccl;
mod op;
mod pending;
mod trace;

pub use communicator::{Communicator, Group};
pub use element::{DType, Element, ReduceOp};
pub use error::{CallId, CallKind, Error, Result};
pub use finish::Finish;
pub use local::{LocalBuilder, LocalComm, LocalGroup};
#[cfg(feature = "mpi")]
pub use mpi::{MpiBuilder, MpiComm, MpiGroup};
#[cfg(feature = "nccl")]
pub use nccl::NcclComm;
pub use op::Op;
pub use pending::Pending;
