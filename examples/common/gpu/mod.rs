//! Ranks on GPUs: memory, matrix products and work in a stream, and how the ranks of a job are started.

pub mod memory;
pub mod products;
mod ranks;
mod rendezvous;

pub use ranks::{Streams, run};

/// An error that a rank's thread can hand over.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
