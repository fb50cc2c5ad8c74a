//! What may stand after `stream =` in a span macro.

use std::borrow::Cow;

/// A stream that a span's work runs on.
///
/// Text names a stream of the host, such as a communication thread. GPU streams also attach their
/// timing events to the span.
pub trait SpanStream {
    /// The stream's name in records and reports.
    fn label(&self) -> Cow<'_, str>;

    /// Called once for the new span, before it is entered.
    fn attach(&self, _span: &tracing::Span) {}
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
