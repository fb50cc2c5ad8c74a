//! What may stand after `stream =` in a span macro.

use std::borrow::Cow;

/// A stream that a span's work runs on.
///
/// Text names a stream of the host, such as a communication thread. With feature `cuda`, GPU streams
/// (cudarc's `Arc<CudaStream>`, `GpuStream`) also make the span one that the GPU times; `None` of an
/// `Option` of them leaves it to the host, where there is no GPU.
pub trait SpanStream {
    /// The stream's name in records and reports.
    fn label(&self) -> Cow<'_, str>;

    /// Called once for the new span, before it is entered.
    fn attach(&self, _span: &tracing::Span) {}
}

impl<S: SpanStream + ?Sized> SpanStream for &S {
    fn label(&self) -> Cow<'_, str> {
        S::label(self)
    }

    fn attach(&self, span: &tracing::Span) {
        S::attach(self, span);
    }
}

impl SpanStream for str {
    fn label(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl SpanStream for String {
    fn label(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}
