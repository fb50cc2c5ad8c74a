//! What several examples share.
#![allow(dead_code, unused_imports, reason = "each example uses a part of it")]

pub mod data;
#[cfg(feature = "nccl")]
pub mod gpu;
pub mod loss;
pub mod options;
