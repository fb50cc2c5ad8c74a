//! The span macros. Each makes an ordinary `tracing` span of level INFO and target `commtrace`.

/// A training step: intervals recorded until it is exited belong to this step.
///
/// ```
/// use commtrace_instrument::step_span;
/// for step in 0..3 {
///     let _step = step_span!(step).entered();
/// }
/// ```
#[macro_export]
macro_rules! step_span {
    ($step:expr) => {
        $crate::__private::notice_if_disabled($crate::__private::tracing::span!(
            target: "commtrace",
            $crate::__private::tracing::Level::INFO,
            "step",
            commtrace.kind = "step",
            step = ($step) as i64
        ))
    };
}

/// A compute interval named by a literal; further `tracing` fields may follow.
///
/// `stream = &stream`, if given, comes first and names the stream that the work is enqueued on
/// ([`SpanStream`](crate::SpanStream)). On a GPU stream (feature `cuda`) the span is timed by the GPU.
/// `label = …` is a name made at run time, such as a layer's number.
///
/// ```
/// use commtrace_instrument::compute_span;
/// let layer = 3;
/// let span = compute_span!("forward", label = layer).entered();
/// drop(span);
/// ```
#[macro_export]
macro_rules! compute_span {
    ($name:expr $(, $($fields:tt)*)?) => {
        $crate::__span!("compute", $name, $($($fields)*)?)
    };
}

/// A communication interval; the name is the op. Fields that the report understands are `bytes`,
/// `comm`, `seq`, `dtype`, `peer`, `comm_rank`, `comm_size` and `op` (overrides the name).
///
/// The communicators of `commtrace-collectives` open this span themselves.
///
/// ```
/// use commtrace_instrument::comm_span;
/// let span = comm_span!("all_reduce", bytes = 4096_u64, comm = "dp", seq = 0_u64).entered();
/// drop(span);
/// ```
#[macro_export]
macro_rules! comm_span {
    ($name:expr $(, $($fields:tt)*)?) => {
        $crate::__span!("comm", $name, $($($fields)*)?)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __span {
    ($kind:literal, $name:expr, stream = $stream:expr $(, $($fields:tt)*)?) => {{
        let stream = $stream;
        let span = $crate::__private::tracing::span!(
            target: "commtrace",
            $crate::__private::tracing::Level::INFO,
            $name,
            commtrace.kind = $kind,
            stream = &*$crate::SpanStream::label(stream),
            $($($fields)*)?
        );
        $crate::SpanStream::attach(stream, &span);
        $crate::__private::notice_if_disabled(span)
    }};
    ($kind:literal, $name:expr, $($fields:tt)*) => {
        $crate::__private::notice_if_disabled($crate::__private::tracing::span!(
            target: "commtrace",
            $crate::__private::tracing::Level::INFO,
            $name,
            commtrace.kind = $kind,
            $($fields)*
        ))
    };
}
