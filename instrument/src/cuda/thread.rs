//! A thread's half of GPU timing: the spans on GPU streams that it has entered.

use super::context::Pair;
use super::driver::driver;
use super::reason::Reason;
use super::registry::Hold;
use super::shared::{Gpu, GpuRecord, TracedStream};
use crate::intern::NO_SYM;
use crate::queue::{RawRecord, Sender, Sent};
use crate::recorder::Recorder;
use crate::spans::{NO_U32, SpanWords, UNTIMED};
use std::sync::Arc;

/// An entered span.
#[derive(Debug)]
struct OpenSpan {
    id: u64,
    stream: Option<Arc<TracedStream>>,
    /// The stream must live until the end event is recorded.
    _hold: Option<Hold>,
    /// Its events, the first of them recorded; why it will have no time.
    events: Result<Pair, Reason>,
}

/// Streams that a thread remembers.
const CACHED: usize = 16;

/// A thread's half of GPU timing.
#[derive(Debug, Default)]
pub(crate) struct GpuThread {
    sender: Option<Sender<GpuRecord>>,
    open: Vec<OpenSpan>,
    /// The streams used last, by the id under which spans know them: for a per-thread stream that is
    /// not the id of the stream itself.
    streams: [Option<(u32, Arc<TracedStream>)>; CACHED],
}

impl GpuThread {
    /// The span `id` was entered, whose stream has the id `stream`: records its start.
    pub fn enter(&mut self, recorder: &Recorder, id: u64, stream: u32, thread: u32) {
        let span = match self.stream(recorder, stream, thread) {
            None => OpenSpan { id, stream: None, _hold: None, events: Err(Reason::TooManyStreams) },
            Some(stream) => {
                let hold = stream.known.hold();
                let events = match (&hold, driver()) {
                    (Some(_), Ok(driver)) => stream.context.record_start(driver, stream.known.handle),
                    _ => Err(Reason::StreamDestroyed),
                };
                OpenSpan { id, stream: Some(stream), _hold: hold, events }
            }
        };
        self.open.push(span);
    }

    /// The span was exited: records its end and sends it on its way. `entered` is in ticks.
    pub fn exit(
        &mut self,
        recorder: &Recorder,
        id: u64,
        words: SpanWords,
        entered: u64,
        thread: u32,
        untimed: &mut Sender<RawRecord>,
    ) {
        let Some(index) = self.open.iter().rposition(|open| open.id == id) else { return };
        let mut span = self.open.remove(index);
        let events = span.take_events();
        let Some(stream) = &span.stream else {
            if let Err(reason) = events {
                send_untimed(recorder, untimed, words.with_stream(NO_SYM), NO_U32, thread, reason);
            }
            return;
        };
        let recorded = match (events, driver()) {
            (Ok(pair), Ok(driver)) => {
                stream.context.record_end(driver, pair, stream.known.handle).map(|()| pair)
            }
            (Ok(_), Err(_)) => Err(Reason::StreamDestroyed),
            (Err(reason), _) => Err(reason),
        };
        match recorded {
            Err(reason) => {
                let words = words.with_stream(stream.label);
                send_untimed(recorder, untimed, words, stream.known.device, thread, reason);
            }
            Ok(pair) => {
                let words = words.with_stream(stream.label);
                let record = GpuRecord { words, stream: Arc::clone(stream), entered, pair, thread };
                let sender = self.sender.get_or_insert_with(|| recorder.gpu.queue.sender());
                match sender.send(record) {
                    Sent::Stored => {}
                    Sent::StoredWakeWriter => recorder.gpu.wake_resolver(),
                    Sent::Dropped => stream.context.give(pair),
                }
            }
        }
    }

    /// A span was exited that is not to be recorded any more.
    pub fn abandon(&mut self, id: u64) {
        if let Some(index) = self.open.iter().rposition(|open| open.id == id) {
            self.open.remove(index);
        }
    }

    /// The stream that spans mean by `id` on this thread, numbered `thread`.
    pub fn stream(&mut self, recorder: &Recorder, id: u32, thread: u32) -> Option<Arc<TracedStream>> {
        let slot = id as usize % CACHED;
        if let Some((known, stream)) = &self.streams[slot]
            && *known == id
            && !stream.context.is_closed()
        {
            return Some(Arc::clone(stream));
        }
        let stream = find(&recorder.gpu, recorder, id, thread)?;
        self.streams[slot] = Some((id, Arc::clone(&stream)));
        Some(stream)
    }
}

fn find(gpu: &Gpu, recorder: &Recorder, id: u32, thread: u32) -> Option<Arc<TracedStream>> {
    let stream = gpu.stream(id)?;
    let stream =
        if stream.context.is_closed() { gpu.trace(recorder, &Arc::clone(&stream.known))? } else { stream };
    if stream.known.is_per_thread() { gpu.of_thread(recorder, &stream, thread) } else { Some(stream) }
}

/// Sends a span that has no time to the writer.
pub(crate) fn send_untimed(
    recorder: &Recorder,
    sender: &mut Sender<RawRecord>,
    words: SpanWords,
    device: u32,
    thread: u32,
    reason: Reason,
) {
    let record = RawRecord { words, start: UNTIMED, end: reason.pack(), thread, device };
    if sender.send(record) == Sent::StoredWakeWriter {
        recorder.wake_writer();
    }
}

impl OpenSpan {
    fn take_events(&mut self) -> Result<Pair, Reason> {
        std::mem::replace(&mut self.events, Err(Reason::NotFinished))
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let (Ok(pair), Some(stream)) = (self.take_events(), &self.stream) {
            stream.context.give(pair);
        }
    }
}
