//! A stand-in for NCCL (`libnccl.so.2`), for tests on machines without a GPU.
//!
//! It has NCCL's C interface as cudarc loads it and stands on the stand-in CUDA driver, which it finds
//! as NCCL finds the driver. A collective is a piece of work in a stream: asynchronous to the caller,
//! in the stream's order, and it ends when all ranks are through. Times that it takes are times of host
//! threads and sockets: **no figure from it is a GPU or network figure.**
//!
//! What is modelled:
//!
//! - communicators over threads of one process, over processes of one machine, and both mixed: ranks
//!   are connected to each other by Unix sockets whose names the unique id gives (`mesh.rs`); splits;
//!   abort, also while a collective waits for a rank that does not come; a rank that is gone is an
//!   error on the others;
//! - all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather, scatter, send and
//!   receive, in place too, with real arithmetic in all data types and reductions (`element.rs`);
//!   partial results are added in the order of ranks, so that all ranks get the same bits;
//! - groups, nested ones included: sends and receives of a group progress together, and communicators
//!   of one thread join their collectives;
//! - capture of collectives into CUDA graphs;
//! - the lines of `NCCL_DEBUG=INFO` that say which communicators, calls and algorithms there are (`debug.rs`),
//!   and what `NCCL_ALGO` allows (`tuning.rs`), though the arithmetic is always the same;
//! - what each rank asked for is compared: a collective on which ranks disagree is an error on all,
//!   where NCCL would hang or corrupt memory.
//!
//! What the environment can ask for is in `settings.rs` and tests/doubles/README.md.

#[macro_use]
mod abi;

mod api;
mod collective;
mod comm;
mod debug;
mod driver;
mod element;
mod error;
mod exchange;
mod float8;
mod group;
mod init;
mod launch;
mod mesh;
mod reduce;
mod settings;
mod tuning;
mod turn;
mod unique_id;
