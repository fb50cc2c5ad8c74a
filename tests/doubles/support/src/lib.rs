//! What tests need to run on the stand-in CUDA driver and NCCL.
//!
//! [`Doubles`] builds both and puts them, under the names that cudarc loads, into a private folder that
//! goes with it; no `libcuda.so` is left among the build's outputs, where it would hide a real driver.
//! [`in_child`] runs the body of a test in a process of its own that loads them from there, and gives
//! back what they logged and counted. [`Counts::now`] asks the loaded driver.
//!
//! ```no_run
//! # use double_support::{in_child, test_name};
//! # fn work_on_the_gpu() {}
//! // #[test]
//! fn kernels_run() {
//!     let Some(run) = in_child(test_name!(), &[("DOUBLE_CUDA_DEVICES", "1")], || {
//!         work_on_the_gpu(); // in the child: through cudarc, as an application
//!     }) else {
//!         return; // this was the child
//!     };
//!     assert!(run.pieces.iter().any(|piece| piece.kind == "kernel"));
//! }
//! ```
//!
//! The stand-ins have no GPU: no figure from them is a GPU figure.

mod build;
mod child;
mod counts;
mod log;

pub use build::{Doubles, Error};
#[doc(hidden)]
pub use child::name_around;
pub use child::{Finished, Run, finish, in_child, in_child_within};
pub use counts::{Counts, SYNCHRONIZING};
pub use log::Piece;
