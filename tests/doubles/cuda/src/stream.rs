//! Streams: each is a thread that works off its queue in order.
//!
//! A stream's time is that of its pieces: a piece starts when the one before it has ended and it had
//! been submitted, not when the operating system happened to wake the thread. So what events measure
//! and what the log says agree however busy the machine is.

use crate::capture::{self, Capture};
use crate::clock;
use crate::context::{self, Context};
use crate::error::{Error, Result};
use crate::log;
use crate::sync::Progress;
use crate::work::Work;
use double_common::handles::{Handle, Table};
use double_common::{lock, wait};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Handle of the legacy default stream; 0 is it too.
pub const LEGACY: Handle = 1;
/// Handle of the calling thread's default stream.
pub const PER_THREAD: Handle = 2;
/// Flag of a stream that does not wait for the legacy stream.
pub const NON_BLOCKING: u32 = 1;

/// Work that a stream takes on before a submitter has to wait, as a real channel fills up.
const MOST_QUEUED: u64 = 4096;

/// A stream.
pub struct Stream {
    pub handle: Handle,
    pub id: u64,
    pub context: Arc<Context>,
    pub flags: u32,
    pub priority: i32,
    pub progress: Arc<Progress>,
    queue: Mutex<Queue>,
    arrived: Condvar,
    capture: Mutex<Option<Arc<Capture>>>,
    /// Whether `capture` holds one, so that the common case takes no lock.
    captures: AtomicBool,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    submitted: u64,
    has_worker: bool,
    closed: bool,
}

struct Item {
    work: Work,
    submitted_ns: i64,
    /// Counts of other streams that must be reached first: the legacy stream's rule.
    after: Vec<(Arc<Progress>, u64)>,
}

static STREAMS: Table<Stream> = Table::new(0x22);

/// This thread's default streams, one a context; closed when the thread ends.
struct OwnStreams(Vec<Arc<Stream>>);

impl Drop for OwnStreams {
    fn drop(&mut self) {
        for stream in &self.0 {
            stream.close();
        }
    }
}

thread_local! {
    static OWN: RefCell<OwnStreams> = const { RefCell::new(OwnStreams(Vec::new())) };
}

impl Stream {
    fn new(context: &Arc<Context>, handle: Handle, flags: u32, priority: i32) -> Arc<Stream> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Arc::new(Stream {
            handle,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            context: context.clone(),
            flags,
            priority,
            progress: Arc::default(),
            queue: Mutex::default(),
            arrived: Condvar::new(),
            capture: Mutex::new(None),
            captures: AtomicBool::new(false),
        })
    }

    /// Creates a stream in the current context.
    pub fn create(flags: u32, priority: i32) -> Result<Handle> {
        if flags & !NON_BLOCKING != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let context = context::current()?;
        let (handle, stream) = STREAMS
            .insert_with(|handle| Stream::new(&context, handle, flags, priority.clamp(-5, 0)))
            .ok_or(Error::OUT_OF_MEMORY)?;
        context.add_stream(&stream);
        Ok(handle)
    }

    /// A stream that is reached by a handle of its own kind, not through the table.
    pub fn special(context: &Arc<Context>, handle: Handle) -> Result<Arc<Stream>> {
        // Applications know the legacy stream as null.
        let shown = if handle == LEGACY { 0 } else { handle };
        let stream = Stream::new(context, shown, 0, 0);
        context.add_stream(&stream);
        Ok(stream)
    }

    fn is_legacy(&self) -> bool {
        self.handle == 0
    }

    fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0 && !self.is_legacy()
    }

    /// Whether what is enqueued here would have to wait for work that is being captured: on the legacy
    /// stream while a blocking stream of the context is.
    pub fn is_barred_by_capture(&self) -> bool {
        let captured = |other: &Arc<Stream>| other.is_blocking() && other.capture().is_some();
        self.is_legacy() && self.context.streams().iter().any(captured)
    }

    /// The capture that this stream is part of.
    pub fn capture(&self) -> Option<Arc<Capture>> {
        if self.captures.load(Ordering::Acquire) { lock(&self.capture).clone() } else { None }
    }

    pub fn set_capture(&self, capture: Option<Arc<Capture>>) {
        let mut slot = lock(&self.capture);
        self.captures.store(capture.is_some(), Ordering::Release);
        *slot = capture;
    }

    /// Adds work, to the stream or to the capture that it is part of.
    pub fn submit(self: &Arc<Self>, work: Work) -> Result {
        match self.capture() {
            Some(capture) => capture.add(self, work),
            None => self.enqueue(|_| work).map(|_| ()),
        }
    }

    /// Adds work that knows its place in the queue, and returns that place.
    pub fn enqueue(self: &Arc<Self>, make: impl FnOnce(u64) -> Work) -> Result<u64> {
        self.context.check()?;
        let after = self.dependencies()?;
        let mut queue = lock(&self.queue);
        while queue.submitted - self.progress.done() >= MOST_QUEUED {
            let enough = queue.submitted - MOST_QUEUED + 1;
            drop(queue);
            self.progress.wait_for(enough);
            queue = lock(&self.queue);
        }
        if queue.closed {
            return Err(Error::CONTEXT_IS_DESTROYED);
        }
        if !queue.has_worker {
            let stream = self.clone();
            std::thread::Builder::new()
                .name(format!("double-cuda-{}", self.id))
                .spawn(move || stream.run())
                .map_err(|_| Error::OUT_OF_MEMORY)?;
            queue.has_worker = true;
        }
        queue.submitted += 1;
        let place = queue.submitted;
        let was_empty = queue.items.is_empty();
        queue.items.push_back(Item { work: make(place), submitted_ns: clock::host_ns(), after });
        drop(queue);
        if was_empty {
            self.arrived.notify_one();
        }
        Ok(place)
    }

    /// The legacy stream waits for all blocking streams of its context, and they for it.
    fn dependencies(&self) -> Result<Vec<(Arc<Progress>, u64)>> {
        if self.is_legacy() {
            let others: Vec<_> =
                self.context.streams().into_iter().filter(|other| other.is_blocking()).collect();
            for other in &others {
                if let Some(capture) = other.capture() {
                    capture.invalidate();
                    return Err(Error::STREAM_CAPTURE_IMPLICIT);
                }
            }
            Ok(others.iter().filter_map(|other| other.pending()).collect())
        } else if self.is_blocking() {
            Ok(self.context.legacy_stream()?.pending().into_iter().collect())
        } else {
            Ok(Vec::new())
        }
    }

    /// What to wait for until all work submitted so far is done; `None` if it is.
    fn pending(&self) -> Option<(Arc<Progress>, u64)> {
        let submitted = lock(&self.queue).submitted;
        (self.progress.done() < submitted).then(|| (self.progress.clone(), submitted))
    }

    /// Whether all work submitted so far is done.
    pub fn is_idle(&self) -> bool {
        self.pending().is_none()
    }

    /// Waits for all work submitted so far.
    pub fn synchronize(&self) -> Result {
        if let Some((progress, place)) = self.pending() {
            progress.wait_for(place);
        }
        self.context.check()
    }

    /// Takes no more work; the thread ends with what it has.
    pub fn close(&self) {
        lock(&self.queue).closed = true;
        self.arrived.notify_one();
    }

    fn run(self: Arc<Self>) {
        let mut items = VecDeque::new();
        let mut ended_ns = i64::MIN;
        let mut done = 0;
        while self.next_items(&mut items) {
            for item in items.drain(..) {
                let start_ns = item.start_ns(ended_ns);
                ended_ns = if self.context.check().is_ok() {
                    // A thread that ends would leave all that wait for it behind.
                    catch_unwind(AssertUnwindSafe(|| item.work.run(&self, start_ns))).unwrap_or_else(|_| {
                        self.context.fail(Error::UNKNOWN);
                        start_ns
                    })
                } else {
                    item.work.skip(start_ns)
                };
                done += 1;
                self.progress.advance(done);
            }
        }
    }

    /// Takes all that is queued, waiting for something; `false` when there will be nothing more.
    fn next_items(&self, items: &mut VecDeque<Item>) -> bool {
        let mut queue = lock(&self.queue);
        if queue.items.is_empty() {
            drop(queue);
            log::flush();
            queue = lock(&self.queue);
        }
        while queue.items.is_empty() {
            if queue.closed {
                return false;
            }
            queue = wait(&self.arrived, queue);
        }
        std::mem::swap(&mut queue.items, items);
        true
    }
}

impl Item {
    /// Waits for what must come first, and says when the piece could start.
    fn start_ns(&self, previous_end_ns: i64) -> i64 {
        let mut start_ns = previous_end_ns.max(self.submitted_ns);
        for (progress, place) in &self.after {
            if progress.done() < *place {
                progress.wait_for(*place);
                start_ns = start_ns.max(clock::host_ns());
            }
        }
        start_ns
    }
}

/// The stream behind a handle: the current context's own for the special ones.
pub fn find(handle: Handle) -> Result<Arc<Stream>> {
    let stream = match handle {
        0 | LEGACY => context::current()?.legacy_stream()?,
        PER_THREAD => own_stream()?,
        _ => {
            context::initialized()?;
            STREAMS.get(handle).ok_or(Error::INVALID_HANDLE)?
        }
    };
    stream.context.check()?;
    Ok(stream)
}

fn own_stream() -> Result<Arc<Stream>> {
    let context = context::current()?;
    OWN.with_borrow_mut(|OwnStreams(streams)| {
        streams.retain(|stream| stream.context.check() != Err(Error::CONTEXT_IS_DESTROYED));
        if let Some(stream) = streams.iter().find(|stream| stream.context.id == context.id) {
            return Ok(stream.clone());
        }
        let stream = Stream::special(&context, PER_THREAD)?;
        streams.push(stream.clone());
        Ok(stream)
    })
}

/// Destroys a stream; its work still runs.
pub fn destroy(handle: Handle) -> Result {
    let stream = STREAMS.get(handle).ok_or(Error::INVALID_HANDLE)?;
    if let Some(capture) = stream.capture() {
        capture.invalidate();
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    STREAMS.remove(handle);
    stream.close();
    stream.context.check()
}

/// Waits for a stream, as `cuStreamSynchronize`.
pub fn synchronize(handle: Handle) -> Result {
    let stream = find(handle)?;
    refuse_captured(&stream)?;
    capture::refuse_unsafe()?;
    stream.synchronize()
}

/// Whether a stream is idle, as `cuStreamQuery`.
pub fn query(handle: Handle) -> Result {
    let stream = find(handle)?;
    refuse_captured(&stream)?;
    capture::refuse_unsafe()?;
    if stream.is_idle() { Ok(()) } else { Err(Error::NOT_READY) }
}

fn refuse_captured(stream: &Stream) -> Result {
    match stream.capture() {
        Some(capture) => {
            capture.invalidate();
            Err(Error::STREAM_CAPTURE_UNSUPPORTED)
        }
        None => Ok(()),
    }
}
