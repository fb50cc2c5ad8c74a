//! Calls whose work the GPU runs as one: NCCL's groups.

use super::context::Pair;
use super::driver::driver;
use super::reason::Reason;
use super::registry::Hold;
use super::shared::{GroupRecord, TracedStream};
use crate::clock;
use crate::layer::recorder_of;
use crate::local::with_local;
use crate::recorder::{Recorder, lock};
use crate::spans::{NO_U64, SpanWords};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Calls whose work the GPU runs as one: what stands between `ncclGroupStart` and `ncclGroupEnd`.
///
/// NCCL begins a group's work when the group ends, so a call in it has no interval of its own. Its share
/// of the time that the group takes on the call's stream is that of its bytes (the calls share equally if
/// there are none); the records are labelled `grouped`.
///
/// ```no_run
/// use commtrace_instrument::{GpuGroup, GpuStream, comm_span};
/// # fn example(stream: &GpuStream) {
/// let mut group = GpuGroup::new();
/// // ncclGroupStart(); for each call, once what it waits for is enqueued:
/// group.add(&comm_span!("all_reduce", stream = stream, bytes = 4096_u64));
/// group.add(&comm_span!("broadcast", stream = stream, bytes = 512_u64));
/// group.begin();
/// // ncclGroupEnd();
/// group.end();
/// # }
/// ```
#[derive(Debug, Default)]
pub struct GpuGroup {
    streams: Vec<GroupStream>,
}

/// The calls of one stream.
#[derive(Debug)]
struct GroupStream {
    recorder: Arc<Recorder>,
    stream: Arc<TracedStream>,
    calls: Vec<SpanWords>,
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    /// Among the open groups of the recorder.
    number: u64,
    entered: u64,
    /// The stream must live until the end event is recorded.
    _hold: Option<Hold>,
    events: Result<Pair, Reason>,
}

/// Groups that wait for the resolver.
const MAX_ENDED: usize = 65_536;

/// Groups after which the resolver is woken.
const WAKE_AFTER: usize = 64;

impl GpuGroup {
    /// A group without calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a call: a span made with `stream = …` of a GPU stream and not entered. It is recorded when
    /// the group ends; entering it, before or afterwards, records nothing more.
    ///
    /// A span that is not recorded, or not timed on a GPU, is left as it is.
    pub fn add(&mut self, span: &tracing::Span) {
        span.with_subscriber(|(id, dispatch)| {
            let Some(recorder) = recorder_of(dispatch) else { return };
            let taken = with_local(recorder, |local| local.take_grouped(id.into_u64())).flatten();
            let Some((words, stream)) = taken else { return };
            let calls = self.streams.iter_mut().find(|known| {
                known.stream.known.id == stream.known.id && Arc::ptr_eq(&known.recorder, recorder)
            });
            match calls {
                Some(known) => known.calls.push(words),
                None => self.streams.push(GroupStream {
                    recorder: Arc::clone(recorder),
                    stream,
                    calls: vec![words],
                    begun: None,
                }),
            }
        });
    }

    /// The work is about to be enqueued. Records a start event on each stream of the group's calls.
    pub fn begin(&mut self) {
        for stream in &mut self.streams {
            stream.begin();
        }
    }

    /// The work is enqueued: records the end events. A group that is dropped instead, because its work
    /// could not be enqueued, is not recorded.
    pub fn end(mut self) {
        for stream in &mut self.streams {
            stream.end();
        }
    }
}

impl GroupStream {
    fn begin(&mut self) {
        if self.begun.is_some() || !self.recorder.active.load(Ordering::Relaxed) {
            return;
        }
        let groups = &self.recorder.gpu.groups;
        let number = groups.next.fetch_add(1, Ordering::Relaxed);
        let entered = {
            let mut open = lock(&groups.open);
            let entered = clock::ticks();
            open.insert(number, entered);
            entered
        };
        let hold = self.stream.known.hold();
        let events = match (&hold, driver()) {
            (Some(_), Ok(driver)) => self.stream.context.record_start(driver, self.stream.known.handle),
            _ => Err(Reason::StreamDestroyed),
        };
        self.begun = Some(Begun { number, entered, _hold: hold, events });
    }

    fn end(&mut self) {
        let Some(mut begun) = self.begun.take() else { return };
        let gpu = &self.recorder.gpu;
        let context = &self.stream.context;
        let events = std::mem::replace(&mut begun.events, Err(Reason::NotFinished));
        let recorded = match (events, driver()) {
            (Ok(pair), Ok(driver)) => {
                context.record_end(driver, pair, self.stream.known.handle).map(|()| pair)
            }
            (Ok(_), Err(_)) => Err(Reason::StreamDestroyed),
            (Err(reason), _) => Err(reason),
        };
        let label = self.stream.label;
        let calls: Vec<SpanWords> =
            std::mem::take(&mut self.calls).iter().map(|words| words.with_stream(label)).collect();
        let lose = |count: usize| {
            gpu.queue.dropped.fetch_add(count as u64, Ordering::Relaxed);
            if let Ok(pair) = recorded {
                context.give(pair);
            }
        };
        let count = calls.len();
        let sent = with_local(&self.recorder, |local| match recorded {
            Err(reason) => local.send_untimed(&calls, self.stream.known.device, reason),
            Ok(pair) => {
                let mut ended = lock(&gpu.groups.ended);
                if ended.len() >= MAX_ENDED {
                    return lose(count);
                }
                ended.push(GroupRecord {
                    calls,
                    entered: begun.entered,
                    pair,
                    stream: Arc::clone(&self.stream),
                    thread: local.thread(),
                });
                if ended.len().is_multiple_of(WAKE_AFTER) {
                    gpu.wake_resolver();
                }
            }
        });
        if sent.is_none() {
            // The thread is being torn down.
            lose(count);
        }
        lock(&gpu.groups.open).remove(&begun.number);
    }
}

impl Drop for GroupStream {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            if let Ok(pair) = begun.events {
                self.stream.context.give(pair);
            }
            lock(&self.recorder.gpu.groups.open).remove(&begun.number);
        }
    }
}

/// The interval from `start_ns` to `end_ns`, split in proportion to `bytes` (`NO_U64` where unknown),
/// equally if there are none. The parts are contiguous and make up the whole.
pub(super) fn split(
    start_ns: i64,
    end_ns: i64,
    bytes: impl Iterator<Item = u64> + Clone,
) -> impl Iterator<Item = (i64, i64)> {
    let known = |bytes: u64| if bytes == NO_U64 { 0 } else { i128::from(bytes) };
    let total: i128 = bytes.clone().map(known).sum();
    let count = bytes.clone().count() as i128;
    let (total, equal) = if total == 0 { (count.max(1), true) } else { (total, false) };
    let length = i128::from(end_ns) - i128::from(start_ns);
    let mut before = 0;
    bytes.map(move |bytes| {
        // Neither product overflows: 2^64 ns times the bytes that a group can have.
        let at = |part: i128| (i128::from(start_ns) + length.saturating_mul(part) / total) as i64;
        let from = at(before);
        before += if equal { 1 } else { known(bytes) };
        (from, at(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(start_ns: i64, end_ns: i64, bytes: &[u64]) -> Vec<(i64, i64)> {
        split(start_ns, end_ns, bytes.iter().copied()).collect()
    }

    #[test]
    fn a_group_is_split_by_bytes() {
        assert_eq!(parts(100, 200, &[1, 3]), [(100, 125), (125, 200)]);
        assert_eq!(parts(0, 90, &[NO_U64, 2, 1]), [(0, 0), (0, 60), (60, 90)]);
    }

    #[test]
    fn without_bytes_it_is_split_equally() {
        assert_eq!(parts(0, 9, &[0, NO_U64, 0]), [(0, 3), (3, 6), (6, 9)]);
        assert_eq!(parts(5, 5, &[0]), [(5, 5)]);
        assert_eq!(parts(0, 9, &[]), []);
    }

    #[test]
    fn the_parts_make_up_the_whole() {
        for case in 0..500_u64 {
            let bytes: Vec<u64> = (0..case % 17)
                .map(|call| (case * 7919 + call * 104_729) % 5_000 * (1 << (call * 3 % 40)))
                .collect();
            let (start, end) = (-(case as i64) * 1_000, case as i64 * 123_457);
            let parts = parts(start, end, &bytes);
            let mut at = start;
            for &(from, to) in &parts {
                assert!(from == at && to >= from);
                at = to;
            }
            assert!(parts.is_empty() || at == end);
            // Against the definition in floating point.
            let total: f64 = bytes.iter().map(|&bytes| bytes as f64).sum();
            for (&(from, to), &bytes) in parts.iter().zip(&bytes) {
                if total > 0.0 {
                    let share = (end - start) as f64 * bytes as f64 / total;
                    assert!(((to - from) as f64 - share).abs() <= 1.5, "{from} {to} {share}");
                }
            }
        }
    }
}
