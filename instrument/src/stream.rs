//! What may stand after `stream =` in a span macro.

use std::ops::Deref;
use std::sync::Arc;

/// A stream that a span's work runs on.
///
/// Text names a stream of the host, such as a communication thread. With feature `cuda`, GPU streams
/// (cudarc's `Arc<CudaStream>`, `GpuStream`) also make the span one that the GPU times; `None` of an
/// `Option` of them leaves it to the host, where there is no GPU.
pub trait SpanStream {
    /// The stream's name in records and reports.
    fn label(&self) -> StreamLabel<'_>;

    /// Called once for the new span, before it is entered.
    fn attach(&self, _span: &tracing::Span) {}
}

/// A stream's name, had without a copy.
#[derive(Debug, Clone)]
pub enum StreamLabel<'a> {
    /// The stream has it.
    Borrowed(&'a str),
    /// It is kept elsewhere.
    Shared(Arc<str>),
}

impl Deref for StreamLabel<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(name) => name,
            Self::Shared(name) => name,
        }
    }
}

impl<'a> From<&'a str> for StreamLabel<'a> {
    fn from(name: &'a str) -> Self {
        Self::Borrowed(name)
    }
}

impl<S: SpanStream + ?Sized> SpanStream for &S {
    fn label(&self) -> StreamLabel<'_> {
        S::label(self)
    }

    fn attach(&self, span: &tracing::Span) {
        S::attach(self, span);
    }
}

impl SpanStream for str {
    fn label(&self) -> StreamLabel<'_> {
        self.into()
    }
}

impl SpanStream for String {
    fn label(&self) -> StreamLabel<'_> {
        self.as_str().into()
    }
}
