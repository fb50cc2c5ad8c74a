//! From events that have happened to intervals on their way to the writer.

use super::device_clock::DeviceClock;
use super::driver::{Driver, NOT_READY};
use super::group::split;
use super::pending::{Lane, Waiting, Work};
use super::reason::Reason;
use super::shared::TracedStream;
use super::thread::send_untimed;
use crate::intern::Sym;
use crate::queue::{RawRecord, Sender, Sent};
use crate::recorder::{Recorder, lock};
use crate::spans::SpanWords;
use std::sync::Arc;
use std::time::Instant;

/// Resolves what is done on one stream. Its context is current.
pub(super) fn poll_lane(
    driver: &Driver,
    clock: &DeviceClock,
    lane: &mut Lane,
    now: Instant,
    out: &mut Output<'_>,
) {
    let context = Arc::clone(&lane.stream.context);
    let stream = Arc::clone(&lane.stream);
    let mut aside = Vec::new();
    lane.poll(
        now,
        |waiting| driver.query(context.pool.event(waiting.pair.end)),
        |waiting, error| {
            let start = context.pool.event(waiting.pair.start);
            let end = context.pool.event(waiting.pair.end);
            let interval = match error {
                Some(code) => Err(code),
                None => clock.interval_ns(driver, start, end),
            };
            match interval {
                Ok(Some((start_ns, end_ns))) => out.timed(&stream, waiting, start_ns, end_ns),
                Ok(None) => out.untimed(&stream, waiting, Reason::NoClock),
                Err(NOT_READY) => aside.push(waiting),
                Err(code) => {
                    let reason = Reason::of_code(code);
                    context.note(reason);
                    out.untimed(&stream, waiting, reason);
                }
            }
        },
    );
    aside.into_iter().for_each(|waiting| lane.set_aside(waiting));
}

/// The way to the writer.
pub(super) struct Output<'a> {
    pub recorder: &'a Recorder,
    pub sender: &'a mut Sender<RawRecord>,
    /// The label of calls that share a group's interval.
    pub grouped: Sym,
}

impl Output<'_> {
    fn timed(&mut self, stream: &TracedStream, waiting: Waiting, start_ns: i64, end_ns: i64) {
        self.resolved(&waiting);
        stream.context.give(waiting.pair);
        match waiting.work {
            Work::Span(words) => self.send(stream, words, waiting.thread, start_ns, end_ns),
            Work::Group(calls) => {
                let shares = split(start_ns, end_ns, calls.iter().map(|words| words.bytes()));
                for (words, (start_ns, end_ns)) in calls.iter().zip(shares) {
                    let words = words.labelled(self.grouped);
                    self.send(stream, words, waiting.thread, start_ns, end_ns);
                }
            }
        }
    }

    fn send(&mut self, stream: &TracedStream, words: SpanWords, thread: u32, start_ns: i64, end_ns: i64) {
        let (start, end) = (start_ns as u64, end_ns as u64);
        let record = RawRecord { words, start, end, thread, device: stream.known.device };
        if self.sender.send(record) == Sent::StoredWakeWriter {
            self.recorder.wake_writer();
        }
    }

    pub fn untimed(&mut self, stream: &TracedStream, waiting: Waiting, reason: Reason) {
        self.resolved(&waiting);
        stream.context.give(waiting.pair);
        let grouped = matches!(waiting.work, Work::Group(_));
        for &words in waiting.work.spans() {
            let words = if grouped { words.labelled(self.grouped) } else { words };
            let device = stream.known.device;
            send_untimed(self.recorder, self.sender, words, device, waiting.thread, reason);
        }
    }

    /// What is resolved is not overdue any more. Before it is sent, so that the writer never announces
    /// an interval behind the finished one.
    fn resolved(&self, waiting: &Waiting) {
        if waiting.overdue {
            let mut overdue = lock(&self.recorder.gpu.overdue);
            for words in waiting.work.spans() {
                overdue.remove(&words.span());
            }
        }
    }
}
