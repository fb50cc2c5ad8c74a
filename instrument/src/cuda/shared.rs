//! What the application's threads, the resolver and the writer share of GPU timing.

use super::context::{GpuContext, Pair};
use super::control::Control;
use super::driver::Driver;
use super::registry::{self, Candidate, Identity, KnownStream, Owner};
use super::resolver;
use crate::clock;
use crate::intern::Sym;
use crate::message::say;
use crate::queue::Queue;
use crate::recorder::{Recorder, lock};
use crate::spans::SpanWords;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, RwLock};
use std::thread::Thread;

/// A span whose events are recorded and have not been seen to happen.
#[derive(Debug)]
pub(crate) struct GpuRecord {
    pub words: SpanWords,
    pub stream: Arc<TracedStream>,
    /// Ticks when it was entered: its work began later.
    pub entered: u64,
    pub pair: Pair,
    pub thread: u32,
}

/// Calls that share the events of their group.
#[derive(Debug)]
pub(crate) struct GroupRecord {
    pub calls: Vec<SpanWords>,
    pub entered: u64,
    pub pair: Pair,
    pub stream: Arc<TracedStream>,
    pub thread: u32,
}

/// A stream as one recorder knows it.
#[derive(Debug)]
pub(crate) struct TracedStream {
    pub known: Arc<KnownStream>,
    pub context: Arc<GpuContext>,
    /// Its label.
    pub label: Sym,
}

/// A base event that was tied to the host clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GpuAnchor {
    /// The rank whose file it belongs to, if a span told.
    pub rank: Option<u32>,
    pub device: u32,
    pub host_ns: i64,
    pub width_ns: i64,
    pub residual_ns: Option<i64>,
}

/// Streams of one recorder.
const MAX_STREAMS: usize = 4096;

/// Anchors that wait for the writer.
const MAX_ANCHORS: usize = 4096;

/// No GPU span is unresolved.
const NOTHING: u64 = u64::MAX;

/// The GPU half of a recorder.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// Events of each context.
    events: usize,
    pub queue: Arc<Queue<GpuRecord>>,
    pub groups: Groups,
    streams: RwLock<HashMap<u32, Arc<TracedStream>>>,
    contexts: Mutex<Vec<Arc<GpuContext>>>,
    resolver: OnceLock<Option<Thread>>,
    /// Ticks before which every GPU interval that starts there has reached the writer's queue.
    resolved_until: AtomicU64,
    /// Communication that has been unresolved for long, by span number: what a hang is seen by.
    pub overdue: Mutex<HashMap<u64, (u64, SpanWords)>>,
    anchors: Mutex<Vec<GpuAnchor>>,
    pub control: Control,
}

/// Groups that are open or on their way to the resolver.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Ticks at which each open group began, by number.
    pub open: Mutex<HashMap<u64, u64>>,
    pub ended: Mutex<Vec<GroupRecord>>,
    pub next: AtomicU64,
}

impl Gpu {
    pub fn new(queue: usize, events: usize) -> Self {
        Self {
            events,
            queue: Arc::new(Queue::new(queue)),
            groups: Groups::default(),
            streams: RwLock::default(),
            contexts: Mutex::default(),
            resolver: OnceLock::new(),
            resolved_until: AtomicU64::new(NOTHING),
            overdue: Mutex::default(),
            anchors: Mutex::default(),
            control: Control::default(),
        }
    }

    /// Starts the resolver if it does not run yet. `false` if it cannot.
    pub fn start(&self, recorder: &Arc<Recorder>, driver: &'static Driver) -> bool {
        let resolver = self.resolver.get_or_init(|| {
            self.resolved_until.store(clock::ticks(), Ordering::Release);
            crate::guard::finish_before_the_driver();
            resolver::spawn(Arc::clone(recorder), driver)
                .inspect_err(|error| {
                    self.resolved_until.store(NOTHING, Ordering::Release);
                    say(format_args!(
                        "GPU timing is off: cannot start the thread that resolves events: {error}; spans \
                         on GPU streams are timed with the host clock"
                    ));
                })
                .ok()
        });
        resolver.is_some()
    }

    /// Whether any span was timed on a GPU.
    pub fn is_started(&self) -> bool {
        self.resolver.get().is_some_and(Option::is_some)
    }

    pub fn wake_resolver(&self) {
        if let Some(Some(thread)) = self.resolver.get() {
            thread.unpark();
        }
    }

    /// The stream numbered `id`, if spans of it were seen by this recorder.
    pub fn stream(&self, id: u32) -> Option<Arc<TracedStream>> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// `known` as this recorder's. `None` if there are too many, or it is gone.
    pub fn trace(&self, recorder: &Recorder, known: &Arc<KnownStream>) -> Option<Arc<TracedStream>> {
        if let Some(stream) = self.stream(known.id)
            && !stream.context.is_closed()
        {
            return Some(stream);
        }
        let context = self.context(known)?;
        let label = recorder.interner.intern(&known.label).0;
        let stream = Arc::new(TracedStream { known: Arc::clone(known), context, label });
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        if streams.len() >= MAX_STREAMS && !streams.contains_key(&known.id) {
            return None;
        }
        Some(Arc::clone(streams.entry(known.id).insert_entry(stream).get()))
    }

    /// The stream that the thread numbered `thread` means by the per-thread stream `stream`.
    pub fn of_thread(
        &self,
        recorder: &Recorder,
        stream: &TracedStream,
        thread: u32,
    ) -> Option<Arc<TracedStream>> {
        let known = &stream.known;
        let identity = Identity::OfThread { of: known.id, thread };
        let own = registry::find(identity).unwrap_or_else(|| {
            registry::register(Candidate {
                identity,
                handle: known.handle,
                context: known.context,
                device: known.device,
                owner: known.owner.clone(),
                name: Some(&format!("{} {thread}", known.label)),
            })
        });
        self.trace(recorder, &own)
    }

    fn context(&self, known: &KnownStream) -> Option<Arc<GpuContext>> {
        let owner = known.cudarc_context();
        if owner.is_none() && !matches!(known.owner, Owner::Caller) {
            return None;
        }
        let mut contexts = lock(&self.contexts);
        contexts.retain(|context| !context.is_closed());
        let same = contexts.iter().find(|context| context.handle == known.context);
        if let Some(context) = same.filter(|context| context.join(owner.clone())) {
            return Some(Arc::clone(context));
        }
        let context = Arc::new(GpuContext::new(known.context, known.device, self.events));
        context.join(owner);
        contexts.push(Arc::clone(&context));
        Some(context)
    }

    /// The contexts in use.
    pub fn contexts(&self) -> Vec<Arc<GpuContext>> {
        lock(&self.contexts).clone()
    }

    /// Forgets streams that are gone, and those of threads that are, but for what `in_use` still needs.
    pub fn forget_streams(&self, in_use: impl Fn(u32) -> bool) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|&id, stream| {
            // A thread keeps its own in its cache; should another stream have taken the place there, it is found anew.
            let unused = stream.known.is_of_thread && Arc::strong_count(stream) == 1;
            in_use(id) || !(unused || stream.known.is_gone())
        });
    }

    /// States that every GPU interval that starts before `ticks` has reached the writer's queue.
    pub fn resolved_until(&self, ticks: u64) {
        self.resolved_until.store(ticks, Ordering::Release);
    }

    /// States that no GPU interval will come any more.
    pub fn resolved_all(&self) {
        self.resolved_until.store(NOTHING, Ordering::Release);
    }

    /// Ticks before which every GPU interval that starts there has reached the writer's queue; `None` if
    /// there is nothing to wait for.
    pub fn watermark(&self) -> Option<u64> {
        Some(self.resolved_until.load(Ordering::Acquire)).filter(|&ticks| ticks != NOTHING)
    }

    pub fn add_anchor(&self, anchor: GpuAnchor) {
        let mut anchors = lock(&self.anchors);
        if anchors.len() < MAX_ANCHORS {
            anchors.push(anchor);
        }
    }

    pub fn take_anchors(&self) -> Vec<GpuAnchor> {
        std::mem::take(&mut *lock(&self.anchors))
    }
}

/// Says once why spans are not timed on the GPU.
pub(crate) fn say_unavailable(reason: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        say(format_args!("GPU timing is off: {reason}; spans on GPU streams are timed with the host clock"));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: u32, is_of_thread: bool) -> Arc<TracedStream> {
        let known = KnownStream {
            id,
            handle: 2,
            context: 0,
            device: 0,
            owner: Owner::Caller,
            label: "per-thread".into(),
            is_of_thread,
        };
        let context = Arc::new(GpuContext::new(0, 0, 0));
        Arc::new(TracedStream { known: Arc::new(known), context, label: 0 })
    }

    #[test]
    fn what_a_thread_that_is_gone_meant_by_a_stream_is_forgotten() {
        let gpu = Gpu::new(16, 16);
        let of_live_thread = stream(1, true);
        {
            let mut streams = gpu.streams.write().unwrap();
            let all = [stream(0, false), Arc::clone(&of_live_thread), stream(2, true), stream(3, true)];
            streams.extend(all.map(|stream| (stream.known.id, stream)));
        }
        // Spans on the third are outstanding.
        gpu.forget_streams(|id| id == 2);
        assert!([0, 1, 2].iter().all(|&id| gpu.stream(id).is_some()));
        assert!(gpu.stream(3).is_none());
    }
}
