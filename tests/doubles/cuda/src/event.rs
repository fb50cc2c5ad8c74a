//! Events: each record is a place in a stream's queue and the time at which the stream reached it.

use crate::capture::{self, Capture};
use crate::clock;
use crate::context::{self, Context};
use crate::error::{Error, Result};
use crate::faults;
use crate::stream::{self, Stream};
use crate::sync::Progress;
use crate::work::Work;
use double_common::handles::{Handle, Table};
use double_common::lock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

const DISABLE_TIMING: u32 = 2;
const ALL_FLAGS: u32 = 7;
/// Flag of a record or wait that becomes a node of the graph under capture.
pub const EXTERNAL: u32 = 1;

/// An event and what was recorded last.
pub struct Event {
    pub context: Arc<Context>,
    flags: u32,
    last: Mutex<Last>,
}

#[derive(Clone)]
enum Last {
    Never,
    Recorded(Arc<Record>),
    /// Under capture, with what the recording stream depended on at that moment.
    Captured(Arc<Capture>, capture::Seen),
}

/// One record of an event.
pub struct Record {
    progress: Arc<Progress>,
    place: u64,
    device: i32,
    /// Never completes: a fault that was asked for.
    stuck: bool,
    host_ns: AtomicI64,
}

static EVENTS: Table<Event> = Table::new(0x33);

impl Record {
    pub fn is_complete(&self) -> bool {
        !self.stuck && self.progress.done() >= self.place
    }

    /// Waits; a stuck record never returns, as a hung device does not.
    pub fn wait(&self) {
        self.progress.wait_for(self.place);
        if self.stuck {
            loop {
                std::thread::park();
            }
        }
    }

    /// The stream has come to the record, at this time of the host.
    pub fn reached(&self, host_ns: i64) {
        self.host_ns.store(host_ns, Ordering::Release);
    }

    pub fn host_ns(&self) -> i64 {
        self.host_ns.load(Ordering::Acquire)
    }

    /// Whether it is a record in this stream, whose order alone then is enough.
    pub fn is_in(&self, stream: &Stream) -> bool {
        Arc::ptr_eq(&self.progress, &stream.progress)
    }

    fn device_ns(&self) -> i64 {
        clock::device_ns(self.device, self.host_ns())
    }
}

impl Event {
    fn has_timing(&self) -> bool {
        self.flags & DISABLE_TIMING == 0
    }

    fn last(&self) -> Last {
        lock(&self.last).clone()
    }

    /// A record at a place of `stream`'s queue, not yet published.
    fn new_record(&self, stream: &Stream, place: u64) -> Arc<Record> {
        Arc::new(Record {
            progress: stream.progress.clone(),
            place,
            device: stream.context.device,
            stuck: self.has_timing() && faults::next_record_sticks(),
            host_ns: AtomicI64::new(0),
        })
    }

    /// A record of a graph's node that runs as part of the work at `place`; it becomes the event's last.
    pub fn record_in_graph(&self, stream: &Stream, place: u64) -> Arc<Record> {
        let record = self.new_record(stream, place);
        *lock(&self.last) = Last::Recorded(record.clone());
        record
    }

    /// The last record, for a graph's node that waits for it.
    pub fn last_record(&self) -> Option<Arc<Record>> {
        match self.last() {
            Last::Recorded(record) => Some(record),
            Last::Never | Last::Captured(..) => None,
        }
    }
}

/// Creates an event in the current context.
pub fn create(flags: u32) -> Result<Handle> {
    if flags & !ALL_FLAGS != 0 {
        return Err(Error::INVALID_VALUE);
    }
    let context = context::current()?;
    let event = Event { context, flags, last: Mutex::new(Last::Never) };
    EVENTS.insert(Arc::new(event)).ok_or(Error::OUT_OF_MEMORY)
}

/// Destroys an event; what waits for its record still does.
pub fn destroy(handle: Handle) -> Result {
    EVENTS.remove(handle).ok_or(Error::INVALID_HANDLE)?.context.check()
}

fn find(handle: Handle) -> Result<Arc<Event>> {
    context::initialized()?;
    let event = EVENTS.get(handle).ok_or(Error::INVALID_HANDLE)?;
    event.context.check()?;
    Ok(event)
}

/// Records an event in a stream of its own context.
pub fn record(event: Handle, stream: Handle, flags: u32) -> Result {
    let event = find(event)?;
    let stream = stream::find(stream)?;
    if flags & !EXTERNAL != 0 {
        return Err(Error::INVALID_VALUE);
    }
    if event.context.id != stream.context.id {
        return Err(Error::INVALID_HANDLE);
    }
    let last = match stream.capture() {
        Some(capture) if flags == EXTERNAL => {
            return capture.add(&stream, Work::RecordNode(event));
        }
        Some(capture) => {
            let seen = capture.seen_by(&stream)?;
            Last::Captured(capture, seen)
        }
        None if flags == EXTERNAL => return Err(Error::INVALID_VALUE),
        None => {
            // Only this call publishes the record; the queue may reach it before.
            let mut made = None;
            stream.enqueue(|place| Work::Record(made.insert(event.new_record(&stream, place)).clone()))?;
            made.map(Last::Recorded).ok_or(Error::UNKNOWN)?
        }
    };
    *lock(&event.last) = last;
    Ok(())
}

/// Makes a stream wait for what is the event's last record now.
pub fn stream_wait(stream: Handle, event: Handle, flags: u32) -> Result {
    let stream = stream::find(stream)?;
    let event = find(event)?;
    if flags & !EXTERNAL != 0 {
        return Err(Error::INVALID_VALUE);
    }
    match (flags, stream.capture()) {
        (EXTERNAL, Some(capture)) => return capture.add(&stream, Work::WaitNode(event)),
        (EXTERNAL, None) => return Err(Error::INVALID_VALUE),
        _ => {}
    }
    match (event.last(), stream.capture()) {
        (Last::Never, _) => Ok(()),
        (Last::Recorded(record), None) if !record.stuck && record.is_in(&stream) => Ok(()),
        (Last::Recorded(record), None) => stream.enqueue(|_| Work::Wait(record)).map(|_| ()),
        (Last::Recorded(_), Some(capture)) => {
            capture.invalidate();
            Err(Error::STREAM_CAPTURE_ISOLATION)
        }
        (Last::Captured(capture, seen), _) => capture.join(&stream, &seen),
    }
}

/// The last record, for calls that a captured event refuses; `None` if there was none.
fn recorded(event: &Event) -> Result<Option<Arc<Record>>> {
    match event.last() {
        Last::Never => Ok(None),
        Last::Recorded(record) => Ok(Some(record)),
        Last::Captured(capture, _) => {
            capture.invalidate();
            Err(Error::CAPTURED_EVENT)
        }
    }
}

/// Whether the last record is complete, as `cuEventQuery`.
pub fn query(handle: Handle) -> Result {
    let event = find(handle)?;
    let record = recorded(&event)?;
    capture::refuse_unsafe()?;
    match record {
        Some(record) if !record.is_complete() => Err(Error::NOT_READY),
        _ => event.context.check(),
    }
}

/// Waits for the last record, as `cuEventSynchronize`.
pub fn synchronize(handle: Handle) -> Result {
    let event = find(handle)?;
    let record = recorded(&event)?;
    capture::refuse_unsafe()?;
    if let Some(record) = record {
        record.wait();
    }
    event.context.check()
}

/// Milliseconds on the device's clock between two records.
pub fn elapsed_ms(start: Handle, end: Handle) -> Result<f32> {
    let (start, end) = (find(start)?, find(end)?);
    if !start.has_timing() || !end.has_timing() || start.context.id != end.context.id {
        return Err(Error::INVALID_HANDLE);
    }
    let (Some(start), Some(end)) = (recorded(&start)?, recorded(&end)?) else {
        return Err(Error::INVALID_HANDLE);
    };
    if !start.is_complete() || !end.is_complete() {
        return Err(Error::NOT_READY);
    }
    Ok(((end.device_ns() - start.device_ns()) as f64 * 1e-6) as f32)
}
