//! A stand-in for the CUDA driver (`libcuda.so.1`), for tests on machines without a GPU.
//!
//! It has the driver's C interface as cudarc loads it and the driver's rules where a program can
//! observe them; it has no GPU. Times that it gives are times of host threads: **no figure from it is
//! a GPU figure.**
//!
//! What is modelled:
//!
//! - devices, primary contexts (retained, released, reset) and contexts of one's own, a stack of
//!   current contexts per thread, handles that go stale without undefined behaviour;
//! - streams: each is a thread that works off a bounded queue in order; the legacy stream that waits
//!   for blocking streams and they for it, a default stream per thread, non-blocking streams,
//!   priorities (accepted, without effect);
//! - events with and without timing, on a device clock with its own origin and drift; stream waits
//!   bind to the record that was last at the time of the call;
//! - stream capture in its three modes, forks by events, what a call that capture forbids does to it,
//!   graphs that replay their nodes in the order of capture;
//! - memory of the device (host memory, checked against what was allocated), pinned and managed
//!   memory, copies that are asynchronous exactly where the driver's are;
//! - host functions, and kernels by name (`kernels.rs`);
//! - sticky errors, and faults that the environment asks for (`faults.rs`).
//!
//! Not modelled: compiled kernels, textures and arrays, external memory, virtual memory management,
//! memory shared between processes, clusters, green contexts, building graphs by hand. Their functions
//! are missing from the library, as from a driver that does not know them.
//!
//! It also keeps what the driver would not tell: a log of when each piece of work ran (`log.rs`) and
//! how often each function was called (`counters.rs`).

#[macro_use]
mod abi;

mod api;
mod capture;
mod clock;
mod context;
mod counters;
mod error;
mod event;
mod faults;
mod graph;
mod kernels;
mod log;
mod memory;
mod settings;
mod stream;
mod sync;
mod work;
