//! The `tracing_subscriber` Layer.

use crate::clock;
use crate::fields::has_kind;
use crate::guard;
use crate::local::{Local, with_local};
use crate::recorder::Recorder;
use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing_core::subscriber::Interest;
use tracing_core::{LevelFilter, Metadata, Subscriber, span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Records spans that have a `commtrace.kind`; made by [`layer`](crate::layer).
///
/// When recording is off it does nothing and influences no filter.
#[derive(Debug)]
pub struct CommtraceLayer {
    recording: Option<Recording>,
}

impl CommtraceLayer {
    pub(crate) fn new(recorder: Option<Arc<Recorder>>) -> Self {
        Self { recording: recorder.map(|recorder| Recording { recorder, alone: false }) }
    }

    /// A layer that is the only one of its subscriber, so that spans and events which it does not
    /// record need not be made at all.
    pub(crate) fn alone(recorder: Arc<Recorder>) -> Self {
        Self { recording: Some(Recording { recorder, alone: true }) }
    }

    /// Where it records to, while it does.
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.recording.as_ref().filter(|on| on.is_active()).map(|on| &on.recorder)
    }

    /// Whether this layer records.
    pub fn is_on(&self) -> bool {
        self.recording.as_ref().is_some_and(|on| on.recorder.active.load(Ordering::Relaxed))
    }
}

/// The recorder behind a subscriber in which our layer is, wherever it is: boxed, optional, or below a
/// filter of its own.
pub(crate) fn recorder_of(dispatch: &tracing::Dispatch) -> Option<&Arc<Recorder>> {
    dispatch.downcast_ref::<CommtraceLayer>()?.recorder()
}

#[derive(Debug)]
struct Recording {
    recorder: Arc<Recorder>,
    alone: bool,
}

impl Recording {
    #[inline]
    fn is_active(&self) -> bool {
        self.recorder.active.load(Ordering::Relaxed) && !guard::in_forked_child()
    }

    /// Whether the span `id`, which the thread does not know, has a kind.
    fn has_kind<S>(id: &span::Id, context: &Context<'_, S>, local: &mut Local) -> bool
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        context.metadata(id).is_some_and(|metadata| local.may_be_elsewhere(metadata))
    }
}

impl<S> Layer<S> for Recording
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.alone && !has_kind(metadata) { Interest::never() } else { Interest::always() }
    }

    #[inline]
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, _context: Context<'_, S>) {
        if !self.is_active() {
            return;
        }
        if with_local(&self.recorder, |local| local.new_span(attributes, id.into_u64())).is_none()
            && has_kind(attributes.metadata())
        {
            self.recorder.overflow.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if !self.is_active() {
            return;
        }
        if let Some(metadata) = context.metadata(id) {
            with_local(&self.recorder, |local| local.record(metadata, id.into_u64(), values));
        }
    }

    #[inline]
    fn on_enter(&self, id: &span::Id, context: Context<'_, S>) {
        if !self.is_active() {
            return;
        }
        with_local(&self.recorder, |local| {
            if !local.enter(id.into_u64()) && Self::has_kind(id, &context, local) {
                local.enter_elsewhere(id.into_u64());
            }
        });
    }

    #[inline]
    fn on_exit(&self, id: &span::Id, _context: Context<'_, S>) {
        let end = clock::ticks();
        if guard::in_forked_child() {
            return;
        }
        with_local(&self.recorder, |local| local.exit(id.into_u64(), end));
    }

    #[inline]
    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        if guard::in_forked_child() {
            return;
        }
        let closed = with_local(&self.recorder, |local| {
            if !local.close(id.into_u64()) && Self::has_kind(&id, &context, local) {
                local.close_elsewhere(id.into_u64());
            }
        });
        if closed.is_none() && context.metadata(&id).is_some_and(has_kind) {
            self.recorder.forget(id.into_u64());
        }
    }
}

/// Everything is left to `Option<impl Layer>`, which `tracing_subscriber` treats as absent when it is
/// `None`, also in how it combines level hints.
impl<S> Layer<S> for CommtraceLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Layer::<S>::register_callsite(&self.recording, metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::<S>::max_level_hint(&self.recording)
    }

    #[inline]
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        self.recording.on_new_span(attributes, id, context);
    }

    #[inline]
    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        self.recording.on_record(id, values, context);
    }

    #[inline]
    fn on_enter(&self, id: &span::Id, context: Context<'_, S>) {
        self.recording.on_enter(id, context);
    }

    #[inline]
    fn on_exit(&self, id: &span::Id, context: Context<'_, S>) {
        self.recording.on_exit(id, context);
    }

    #[inline]
    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        self.recording.on_close(id, context);
    }

    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some(std::ptr::from_ref(self).cast());
        }
        // SAFETY: forwarded to the implementation of `Option`, whose contract is the same.
        unsafe { Layer::<S>::downcast_raw(&self.recording, id) }
    }
}
