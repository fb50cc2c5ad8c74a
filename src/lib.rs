//! Trace compute and collectives of multi-GPU training in Rust.
//!
//! Wrap compute in spans, let the communicators trace themselves, set one environment variable, and read
//! at the end of the run which collective's time was *exposed* (not hidden by compute), whether it was
//! waiting for a late rank or moving bytes, and what to try next.
//!
//! ```
//! use commtrace::prelude::*;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let _trace = commtrace::init()?; // off unless the environment asks; reports when dropped
//!
//!     // Two ranks as threads of this process; other communicators have the same methods.
//!     let ranks = LocalComm::run(2, |comm| {
//!         let gradients = vec![comm.rank() as f32; 1024];
//!         let mut sum = vec![0.0; 1024];
//!         for step in 0..3 {
//!             let _step = step_span!(step).entered();
//!             let forward = compute_span!("forward").entered();
//!             // model.forward(&batch)
//!             drop(forward);
//!             comm.all_reduce(&gradients, &mut sum, &ReduceOp::Sum)?; // opens its own span
//!         }
//!         Ok::<_, commtrace::collectives::Error>(sum[0])
//!     });
//!     assert_eq!(ranks, [Ok(1.0), Ok(1.0)]);
//!     Ok(())
//! }
//! ```
//!
//! # Where the figures go
//!
//! | variable | meaning |
//! | --- | --- |
//! | `COMMTRACE_DIR=DIR` | record every rank into DIR and write the reports there at shutdown |
//! | `COMMTRACE=summary` | no files: only the text summary on stderr at shutdown; `off` disables everything |
//! | `COMMTRACE_REPORT=text,json,chrome` | which reports; default `text,json` |
//! | `COMMTRACE_STEPS=10..20`, `COMMTRACE_RANKS=0,8` | record only these (ranges half-open; `10..` skips a warm-up) |
//! | `COMMTRACE_MAX_MB` | most that one rank writes (default 2048); then it stops, says so, and the summary goes on |
//! | `COMMTRACE_FLUSH_MS`, `COMMTRACE_QUEUE` | writer interval (1000), records buffered before dropping (65536) |
//! | `COMMTRACE_EVENTS` | timing events of each CUDA context, two for every GPU span that has not finished (16384; feature `cuda`) |
//! | `COMMTRACE_MERGE_TIMEOUT_S` | how long rank 0 waits for the others' files (10) |
//!
//! With neither of the first two set, nothing is recorded and a span costs what a disabled `tracing`
//! callsite costs. A program decides otherwise with [`Config`]. The command `commtrace report DIR`
//! reads a folder again.
//!
//! # Beside other subscribers
//!
//! [`init`] makes the process's global subscriber. A program that has one adds [`layer`] to it:
//!
//! ```
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (layer, _trace) = commtrace::layer()?;
//! let subscriber = tracing_subscriber::registry().with(layer); // .with(fmt::layer()) and so on
//! # let _ = subscriber;
//! # Ok(())
//! # }
//! ```
//!
//! # Parts
//!
//! This crate holds no code of its own. [`collectives`] has the communicators, [`report`] reads records
//! and analyzes them, and what is at the root makes spans and records them.

#[cfg(unix)]
pub use commtrace_instrument::finish_on_sigterm;
pub use commtrace_instrument::{
    CommtraceLayer, Config, ConfigError, Guard, InitError, Mode, PeerCounts, RankScope, Reports,
    RoutingPhase, RoutingScope, SpanStream, Stats, StreamLabel, TokenExchange, combine_scope, comm_span,
    compute_span, current_rank, dispatch_scope, init, layer, rank_scope, record_routing, set_world,
    step_span,
};
#[cfg(feature = "cuda")]
pub use commtrace_instrument::{GpuGroup, GpuStream};

pub use commtrace_collectives as collectives;
/// `cudarc::nccl` with calls that trace themselves (feature `nccl`).
#[cfg(feature = "nccl")]
pub use commtrace_collectives::nccl;
pub use commtrace_report as report;

/// What a training program uses: the span macros, the communicators and what their methods take, and
/// `guard.finish(&comm)`.
pub mod prelude {
    #[cfg(feature = "mpi")]
    pub use commtrace_collectives::MpiComm;
    #[cfg(feature = "nccl")]
    pub use commtrace_collectives::NcclComm;
    pub use commtrace_collectives::{Communicator, Finish, Group, LocalComm, Pending, ReduceOp};
    #[cfg(feature = "cuda")]
    pub use commtrace_instrument::GpuStream;
    pub use commtrace_instrument::{
        combine_scope, comm_span, compute_span, dispatch_scope, rank_scope, step_span,
    };
}

/// The README's programs compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
