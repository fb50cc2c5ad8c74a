//! Trace compute and collectives of multi-GPU training in Rust.
