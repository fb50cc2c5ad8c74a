//! Spans, clocks, the `tracing` Layer and the recorder of commtrace.
//!
//! An application wraps its work in [`step_span!`], [`compute_span!`] and [`comm_span!`], starts
//! recording with [`init`] (or adds [`layer`] to its own subscriber), and keeps the [`Guard`] until the
//! end of `main`. Environment variables decide what is recorded; with none set, nothing is.
//!
//! ```
//! use commtrace_instrument::{Config, Mode, comm_span, compute_span, step_span};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! // `commtrace::init()?` does the same as the environment asks.
//! let guard = Config::from_env()?.mode(Mode::Directory(folder.path().into())).init()?;
//! for step in 0..3 {
//!     let _step = step_span!(step).entered();
//!     let backward = compute_span!("backward").entered();
//!     drop(backward);
//!     let _all_reduce = comm_span!("all_reduce", bytes = 4096_u64).entered();
//! }
//! let report = guard.into_report().ok_or("this process reports")?;
//! assert_eq!(report.ranks[0].summary.num_comm_events, 3);
//! # Ok(())
//! # }
//! ```
//!
//! # Internals
//!
//! A span's fields are kept in a table of the thread that created it and found by span id without a
//! lock; entering pushes a clock reading on a thread-local stack; exiting pushes a record of fixed size
//! into the thread's ring. The writer thread empties the rings, converts ticks to nanoseconds, writes
//! Arrow batches and keeps running aggregates. Nothing waits for it: what does not fit is counted.
//!
//! With feature `cuda`, a span on a GPU stream also records two CUDA events; the module `cuda` says what
//! becomes of them.
#![deny(unsafe_op_in_unsafe_fn)]

mod clock;
mod config;
#[cfg(feature = "cuda")]
mod cuda;
mod environment;
mod fields;
mod gather;
mod guard;
mod host;
mod intern;
mod launcher;
mod layer;
mod local;
mod macros;
mod message;
mod queue;
mod rank;
mod record_files;
mod recorder;
mod routing;
mod shutdown;
mod spans;
mod stream;
mod writer;

/// What [`Guard::finish_over`] and [`Guard::into_report`] return.
pub use commtrace_report::analyze::Report;
pub use config::{Config, ConfigError, Mode, Reports};
#[cfg(feature = "cuda")]
pub use cuda::{GpuGroup, GpuStream};
pub use environment::{Environment, LauncherVariables, Problem, VARIABLES, Variable};
pub use gather::{Exchange, ExchangeError};
#[cfg(unix)]
pub use guard::finish_on_sigterm;
pub use guard::{Guard, InitError, init, layer};
pub use layer::CommtraceLayer;
pub use rank::{
    Communicator, RankScope, current_rank, global_rank, rank_scope, register_communicator, set_world,
    world_size,
};
pub use recorder::Stats;
pub use routing::{
    PeerCounts, RoutingPhase, RoutingScope, TokenExchange, combine_scope, dispatch_scope, record_routing,
};
pub use stream::{SpanStream, StreamLabel};

#[doc(hidden)]
pub mod __private {
    pub use tracing;

    /// Used by the span macros.
    #[inline]
    pub fn notice_if_disabled(span: tracing::Span) -> tracing::Span {
        crate::guard::notice_if_disabled(span)
    }
}
