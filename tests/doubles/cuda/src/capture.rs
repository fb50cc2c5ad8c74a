//! Stream capture: what is recorded instead of run, and what other calls do to it.
//!
//! The rules are those of the driver's documentation of `cuStreamBeginCapture` and
//! `cuThreadExchangeStreamCaptureMode`. A call that capture forbids fails and invalidates the captures
//! that forbid it; `DOUBLE_CUDA_CAPTURE=lenient` lets potentially unsafe calls pass.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::settings;
use crate::stream::Stream;
use crate::work::Work;
use double_common::lock;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;

/// Which threads a capture, or a thread's own mode, restricts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

impl Mode {
    pub fn from_code(code: u32) -> Result<Mode> {
        match code {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Error::INVALID_VALUE),
        }
    }

    pub fn code(self) -> u32 {
        self as u32
    }
}

/// How many nodes of each stream something depends on: a vector clock over the capture's streams.
pub type Seen = BTreeMap<u64, usize>;

/// A capture from its beginning to its end.
pub struct Capture {
    pub id: u64,
    origin: u64,
    mode: Mode,
    thread: ThreadId,
    state: Mutex<State>,
}

struct State {
    valid: bool,
    nodes: Vec<Work>,
    streams: Vec<Member>,
}

/// A stream that is part of a capture.
struct Member {
    stream: Weak<Stream>,
    id: u64,
    seen: Seen,
}

static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
/// The length of `ACTIVE`, so that calls outside captures take no lock.
static ACTIVE_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets this thread's mode and returns the previous one.
pub fn exchange_thread_mode(mode: Mode) -> Mode {
    THREAD_MODE.replace(mode)
}

/// Fails a potentially unsafe call that this thread must not make now, and invalidates the captures
/// that forbid it.
pub fn refuse_unsafe() -> Result {
    if ACTIVE_COUNT.load(Ordering::Acquire) == 0 || settings::get().lenient_capture {
        return Ok(());
    }
    let thread = std::thread::current().id();
    let forbids = |capture: &&Arc<Capture>| match (THREAD_MODE.get(), capture.mode) {
        (Mode::Relaxed, _) | (_, Mode::Relaxed) => false,
        (Mode::Global, Mode::Global) => true,
        (Mode::Global, Mode::ThreadLocal) | (Mode::ThreadLocal, _) => capture.thread == thread,
    };
    let mut result = Ok(());
    for capture in lock(&ACTIVE).iter().filter(forbids) {
        capture.invalidate();
        result = Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    result
}

/// Begins to capture a stream.
pub fn begin(stream: &Arc<Stream>, mode: Mode) -> Result {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    if stream.handle == 0 {
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    if stream.capture().is_some() {
        return Err(Error::ILLEGAL_STATE);
    }
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        origin: stream.id,
        mode,
        thread: std::thread::current().id(),
        state: Mutex::new(State { valid: true, nodes: Vec::new(), streams: Vec::new() }),
    });
    capture.admit(stream, Seen::new());
    let mut active = lock(&ACTIVE);
    active.push(capture);
    ACTIVE_COUNT.store(active.len(), Ordering::Release);
    Ok(())
}

/// Ends the capture that began with this stream.
pub fn end(stream: &Arc<Stream>) -> Result<Graph> {
    let capture = stream.capture().ok_or(Error::ILLEGAL_STATE)?;
    if capture.origin != stream.id {
        capture.invalidate();
        return Err(Error::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
        return Err(Error::STREAM_CAPTURE_WRONG_THREAD);
    }
    let mut active = lock(&ACTIVE);
    active.retain(|other| other.id != capture.id);
    ACTIVE_COUNT.store(active.len(), Ordering::Release);
    drop(active);
    capture.finish()
}

impl Capture {
    /// Nothing that this capture recorded can become a graph any more.
    pub fn invalidate(&self) {
        lock(&self.state).valid = false;
    }

    pub fn is_valid(&self) -> bool {
        lock(&self.state).valid
    }

    fn admit(self: &Arc<Self>, stream: &Arc<Stream>, seen: Seen) {
        let member = Member { stream: Arc::downgrade(stream), id: stream.id, seen };
        lock(&self.state).streams.push(member);
        stream.set_capture(Some(self.clone()));
    }

    /// Adds a node that follows what its stream depends on so far.
    pub fn add(&self, stream: &Stream, work: Work) -> Result {
        stream.context.check()?;
        let mut state = lock(&self.state);
        let State { valid: true, nodes, streams } = &mut *state else {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        };
        nodes.push(work);
        if let Some(member) = streams.iter_mut().find(|member| member.id == stream.id) {
            *member.seen.entry(stream.id).or_default() += 1;
        }
        Ok(())
    }

    /// What a stream of this capture depends on so far.
    pub fn seen_by(&self, stream: &Stream) -> Result<Seen> {
        let state = lock(&self.state);
        if !state.valid {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        let member = state.streams.iter().find(|member| member.id == stream.id);
        Ok(member.map(|member| member.seen.clone()).unwrap_or_default())
    }

    /// A stream waits for an event recorded in this capture: it becomes part of it.
    pub fn join(self: &Arc<Self>, stream: &Arc<Stream>, seen: &Seen) -> Result {
        if !lock(&ACTIVE).iter().any(|active| active.id == self.id) {
            return Err(Error::CAPTURED_EVENT);
        }
        if !self.is_valid() {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        match stream.capture() {
            None if stream.handle == 0 => {
                self.invalidate();
                Err(Error::STREAM_CAPTURE_IMPLICIT)
            }
            None => {
                self.admit(stream, seen.clone());
                Ok(())
            }
            Some(capture) if capture.id == self.id => {
                let mut state = lock(&self.state);
                if let Some(member) = state.streams.iter_mut().find(|member| member.id == stream.id) {
                    member.depend_on(seen);
                }
                Ok(())
            }
            Some(capture) => {
                capture.invalidate();
                self.invalidate();
                Err(Error::STREAM_CAPTURE_MERGE)
            }
        }
    }

    /// Lets go of all streams and makes the graph, if all forks came back to the origin.
    fn finish(&self) -> Result<Graph> {
        let mut state = lock(&self.state);
        for stream in state.streams.iter().filter_map(|member| member.stream.upgrade()) {
            stream.set_capture(None);
        }
        if !state.valid {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        state.valid = false;
        let empty = Seen::new();
        let origin = state.streams.iter().find(|member| member.id == self.origin);
        let origin = origin.map_or(&empty, |member| &member.seen);
        let own_nodes = |member: &Member| member.seen.get(&member.id).copied().unwrap_or(0);
        let joined = |member: &Member| origin.get(&member.id).copied().unwrap_or(0) >= own_nodes(member);
        if !state.streams.iter().all(joined) {
            return Err(Error::STREAM_CAPTURE_UNJOINED);
        }
        Ok(Graph::new(std::mem::take(&mut state.nodes)))
    }
}

impl Member {
    fn depend_on(&mut self, seen: &Seen) {
        for (stream, nodes) in seen {
            let own = self.seen.entry(*stream).or_default();
            *own = (*own).max(*nodes);
        }
    }
}
