//! What several examples share.
#![allow(dead_code, reason = "each example uses a part of it")]

pub mod data;
#[cfg(feature = "nccl")]
pub mod gpu;
pub mod loss;
pub mod options;
