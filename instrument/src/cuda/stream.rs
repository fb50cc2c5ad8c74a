//! Streams of a GPU after `stream =` in a span macro.

use super::driver::{Handle, LEGACY_STREAM, PER_THREAD_STREAM, driver};
use super::registry::{self, Candidate, Identity, KnownStream, Owner, find_again};
use super::shared::say_unavailable;
use crate::layer::recorder_of;
use crate::local::with_local;
use crate::stream::{SpanStream, StreamLabel};
use cudarc::driver::CudaStream;
use std::ffi::c_void;
use std::sync::Arc;

/// A CUDA stream whose spans are timed on the GPU.
///
/// `stream = &stream` takes cudarc's `Arc<CudaStream>` as it is. This type gives a stream a name of your
/// own, and takes streams of other libraries.
///
/// ```no_run
/// use commtrace_instrument::{GpuStream, compute_span};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = cudarc::driver::CudaContext::new(0)?;
/// let stream = context.new_stream()?;
/// {
///     // In records it is "stream 1", the first of its device that spans were timed on.
///     let _forward = compute_span!("forward", stream = &stream).entered();
///     // … enqueue the work …
/// }
/// let copies = GpuStream::new(&context.new_stream()?).named("copies");
/// let _load = compute_span!("load", stream = &copies).entered();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct GpuStream {
    known: Arc<KnownStream>,
    identity: Identity,
    /// Kept alive, as any holder of cudarc's `Arc` does.
    _stream: Option<Arc<CudaStream>>,
}

impl GpuStream {
    /// A stream of cudarc.
    pub fn new(stream: &Arc<CudaStream>) -> Self {
        Self { known: known(stream), identity: identity(stream), _stream: Some(Arc::clone(stream)) }
    }

    /// A stream of another library (candle, burn's cubecl, cust, the CUDA runtime) or of another version
    /// of cudarc: `context` is its `CUcontext`, null for the one that is current on the calling thread,
    /// and `stream` its `CUstream` or `cudaStream_t`, null for the context's default stream.
    ///
    /// ```no_run
    /// use commtrace_instrument::{GpuStream, compute_span};
    /// // cust: `stream.as_inner().cast()`; cubecl and candle: the handle of their cudarc stream.
    /// fn traced(context: *mut std::ffi::c_void, stream: *mut std::ffi::c_void) {
    ///     // SAFETY: the caller keeps both for the whole run.
    ///     let stream = unsafe { GpuStream::from_raw(context, stream) };
    ///     let _forward = compute_span!("forward", stream = &stream).entered();
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// - `stream` is a stream of `context`, and neither is anything else.
    /// - `stream` stays alive as long as this value and its clones may open a span, and as long as a span
    ///   that they opened is entered. The work in it may finish later.
    /// - `context` stays alive until recording ends, that is, until the [`Guard`](crate::Guard) is
    ///   dropped: its events are looked at in the background. (If it is destroyed earlier, drivers
    ///   usually notice and the spans are reported without a time, but CUDA does not promise that.)
    pub unsafe fn from_raw(context: *mut c_void, stream: *mut c_void) -> Self {
        let stream = stream as Handle;
        let mut context = context as Handle;
        let mut device = NO_DEVICE;
        if let Ok(driver) = driver() {
            if context == 0 {
                context = driver.current_context().unwrap_or(0);
            }
            if context != 0
                && let Ok(Ok(ordinal)) = driver.with_context(context, || driver.current_device())
            {
                device = ordinal;
            }
        }
        let identity = Identity::Raw { context, stream };
        let known = registry::find(identity).unwrap_or_else(|| {
            registry::register(Candidate {
                identity,
                handle: stream,
                context,
                device,
                owner: Owner::Caller,
                name: None,
            })
        });
        Self { known, identity, _stream: None }
    }

    /// The same stream under a name of its own in records and reports, also where it is passed without
    /// this value from now on. Name a device's streams differently: communication is cut out of the
    /// compute that it is nested in on the same device and stream, and the name tells them apart.
    pub fn named(mut self, name: &str) -> Self {
        self.known = registry::register(Candidate {
            identity: self.identity,
            handle: self.known.handle,
            context: self.known.context,
            device: self.known.device,
            owner: self.known.owner.clone(),
            name: Some(name),
        });
        self
    }

    /// The name in records and reports.
    pub fn name(&self) -> &str {
        &self.known.label
    }
}

/// The device of a stream whose context cannot be asked.
const NO_DEVICE: u32 = crate::spans::NO_U32;

impl SpanStream for GpuStream {
    fn label(&self) -> StreamLabel<'_> {
        StreamLabel::Borrowed(&self.known.label)
    }

    fn attach(&self, span: &tracing::Span) {
        attach(span, &self.known);
    }
}

impl SpanStream for Arc<CudaStream> {
    fn label(&self) -> StreamLabel<'_> {
        StreamLabel::Shared(Arc::clone(&known(self).label))
    }

    fn attach(&self, span: &tracing::Span) {
        if !span.is_disabled() {
            attach(span, &known(self));
        }
    }
}

/// Where there may be no GPU: without a stream, the span is timed with the host clock.
impl<S: SpanStream> SpanStream for Option<S> {
    fn label(&self) -> StreamLabel<'_> {
        self.as_ref().map_or(StreamLabel::Borrowed("host"), S::label)
    }

    fn attach(&self, span: &tracing::Span) {
        match self {
            Some(stream) => stream.attach(span),
            None => {
                // If that is for want of a driver, the user is told so.
                span.with_subscriber(|(_, dispatch)| {
                    if recorder_of(dispatch).is_some()
                        && let Err(reason) = driver()
                    {
                        say_unavailable(reason);
                    }
                });
            }
        }
    }
}

fn identity(stream: &Arc<CudaStream>) -> Identity {
    match stream.cu_stream() as Handle {
        handle @ (0 | LEGACY_STREAM | PER_THREAD_STREAM) => {
            Identity::OfContext { context: Arc::as_ptr(stream.context()) as usize, stream: handle }
        }
        _ => Identity::Cudarc(Arc::as_ptr(stream) as usize),
    }
}

fn known(stream: &Arc<CudaStream>) -> Arc<KnownStream> {
    let identity = identity(stream);
    find_again(identity).unwrap_or_else(|| {
        let context = stream.context();
        registry::register(Candidate {
            identity,
            handle: stream.cu_stream() as Handle,
            context: context.cu_ctx() as Handle,
            device: u32::try_from(context.ordinal()).unwrap_or(NO_DEVICE),
            owner: match identity {
                Identity::OfContext { .. } => Owner::Context(Arc::downgrade(context)),
                _ => Owner::Cudarc(Arc::downgrade(stream)),
            },
            name: None,
        })
    })
}

/// Makes `span` one that is timed on `stream`. Where that is impossible it stays timed by the host.
fn attach(span: &tracing::Span, stream: &Arc<KnownStream>) {
    span.with_subscriber(|(id, dispatch)| {
        let Some(recorder) = recorder_of(dispatch) else { return };
        match driver() {
            Ok(driver) => {
                if recorder.gpu.start(recorder, driver) {
                    with_local(recorder, |local| local.attach_gpu(id.into_u64(), stream));
                }
            }
            Err(reason) => say_unavailable(reason),
        }
    });
}
