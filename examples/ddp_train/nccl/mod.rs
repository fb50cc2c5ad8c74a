//! `--backend nccl`: ranks on GPUs, with the model's compute on a stream as well.

mod model;
mod train;

pub use train::train;
