//! Spans, clocks, the `tracing` Layer and the recorder.
#![deny(unsafe_op_in_unsafe_fn)]

mod macros;
mod rank;
mod stream;

pub use rank::{Communicator, RankScope, current_rank, rank_scope, register_communicator, set_world};
pub use stream::SpanStream;

#[doc(hidden)]
pub mod __private {
    pub use tracing;

    /// Says once that a filter disables our spans although recording is on.
    #[inline]
    pub fn notice_if_disabled(span: tracing::Span) -> tracing::Span {
        span
    }
}
