//! Spans timed on the GPU, by CUDA events.
//!
//! `stream = &stream` in a span macro hands the new span to [`SpanStream::attach`](crate::SpanStream),
//! which finds our layer behind the span's subscriber and marks the span as one of that stream. From then
//! on entering it takes two events from the context's pool and records the first on the stream; exiting
//! records the second and pushes a record into the thread's ring. Nothing waits. The resolver thread
//! sees the events happen, converts device time to host time and passes the interval on to the writer.
//!
//! | file | subject |
//! | --- | --- |
//! | `driver` | the driver's functions |
//! | `registry`, `stream` | streams: what they are recognised by and called; `GpuStream` |
//! | `context`, `pool` | contexts and their events |
//! | `thread`, `group` | what happens on the application's threads |
//! | `shared` | what they, the resolver and the writer share |
//! | `resolver`, `control`, `pending`, `device_clock`, `ties`, `output` | what happens behind them |
//! | `reason` | why a span has no time |

mod context;
mod control;
mod device_clock;
mod driver;
mod group;
mod output;
mod pending;
mod pool;
mod reason;
mod registry;
mod resolver;
mod shared;
mod stream;
mod thread;
mod ties;

pub use group::GpuGroup;
pub use stream::GpuStream;

pub(crate) use reason::Reason;
pub(crate) use registry::KnownStream;
pub(crate) use shared::{Gpu, TracedStream};
pub(crate) use thread::{GpuThread, send_untimed};
