//! What the writer does for spans on GPU streams.

use super::Writer;
use crate::clock::Calibration;
use crate::cuda::Reason;
use crate::intern::NO_SYM;
use crate::message::say;
use crate::queue::RawRecord;
use crate::recorder::{Recorder, lock};
use crate::spans::{NO_U32, SpanFields, UNTIMED};
use commtrace_report::record::{Row, RowKind, meta};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// Longest that a flush waits for the resolver to look at the events.
const CATCH_UP: Duration = Duration::from_millis(500);

/// Longest that the end waits for the resolver, beyond its own deadline: a driver call may hang.
const FINISH: Duration = Duration::from_secs(8);

/// How often the queue is emptied meanwhile.
const DRAIN: Duration = Duration::from_millis(5);

/// How much longer than a call of the host one on a GPU may have been open without being written: the
/// resolver looks only now and then for what is overdue.
const LAG_NS: i64 = 2_000_000_000;

/// [`LAG_NS`], or 0 as long as there is no GPU work.
pub(super) fn lag_ns(recorder: &Recorder) -> i64 {
    if recorder.gpu.is_started() { LAG_NS } else { 0 }
}

/// Lets the resolver pass on what has finished by now.
pub(super) fn catch_up(recorder: &Recorder) {
    if recorder.gpu.is_started() {
        recorder.gpu.control.round(|| recorder.gpu.wake_resolver(), CATCH_UP);
    }
}

/// `watermark_ns`, or the instant before which no GPU interval is outstanding, if that is earlier.
///
/// A span's work begins on the GPU after the span was entered, so that is the earliest that an
/// outstanding one can start; device time is tied to the host's to within less than `SETTLED_NS`.
pub(super) fn hold_back(recorder: &Recorder, calibration: &Calibration, watermark_ns: i64) -> i64 {
    match recorder.gpu.watermark() {
        Some(ticks) => watermark_ns.min(calibration.to_ns(ticks).saturating_sub(super::SETTLED_NS)),
        None => watermark_ns,
    }
}

/// Start and length of what the GPU timed, or why it has none.
pub(super) fn times(record: &RawRecord) -> (Option<(i64, i64)>, Option<Cow<'static, str>>) {
    if record.start == UNTIMED {
        return (None, Some(Reason::unpack(record.end).text()));
    }
    let (start_ns, end_ns) = (record.start as i64, record.end as i64);
    (Some((start_ns, end_ns.saturating_sub(start_ns).max(0))), None)
}

/// Of a span that is entered, `stream` is the stream's number: makes it the label that records have.
pub(super) fn label_stream(recorder: &Recorder, fields: &mut SpanFields) {
    if fields.kind.is_gpu() {
        fields.stream = recorder.gpu.stream(fields.stream).map_or(NO_SYM, |stream| stream.label);
    }
}

/// Adds the calls whose work on the GPU is overdue, with the ticks at which they were made.
pub(super) fn add_overdue(recorder: &Recorder, open: &mut Vec<(u64, SpanFields)>) {
    open.extend(lock(&recorder.gpu.overdue).values().map(|(entered, words)| (*entered, words.unpack())));
}

impl Writer {
    /// Ends the resolver, which waits a while for outstanding work, and takes what it sends.
    pub(super) fn finish_gpu(&mut self) {
        let recorder = std::sync::Arc::clone(&self.recorder);
        if !recorder.gpu.is_started() {
            return;
        }
        recorder.gpu.control.finish();
        recorder.gpu.wake_resolver();
        let deadline = Instant::now() + FINISH;
        while !recorder.gpu.control.wait_done(DRAIN) {
            if Instant::now() >= deadline {
                say(format_args!(
                    "the CUDA driver does not answer: the spans on GPU streams that were still \
                     outstanding are not in the report"
                ));
                return;
            }
            self.drain();
        }
    }

    /// Writes the instants at which device clocks were tied to the host's.
    pub(super) fn write_gpu_anchors(&mut self) {
        for anchor in self.recorder.gpu.take_anchors() {
            let rank = anchor.rank.or(self.ranks.first().copied());
            if let (Some(files), Some(rank)) = (&mut self.files, rank) {
                files.push_meta(
                    rank,
                    &Row {
                        start_ns: Some(anchor.host_ns),
                        dur_ns: Some(anchor.width_ns),
                        value: anchor.residual_ns,
                        device: (anchor.device != NO_U32).then_some(anchor.device),
                        ..Row::new(RowKind::Meta, meta::GPU_ANCHOR)
                    },
                );
            }
        }
    }
}
