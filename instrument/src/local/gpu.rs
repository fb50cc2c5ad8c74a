//! What a thread does for spans on GPU streams.

use super::Local;
use crate::cuda::{KnownStream, Reason, TracedStream, send_untimed};
use crate::spans::{Kind, SpanWords};
use std::sync::Arc;

impl Local {
    /// The new span `id` is to be timed on `stream`. Steps stay with the host: what they delimit are
    /// calls.
    pub fn attach_gpu(&mut self, id: u64, stream: &Arc<KnownStream>) {
        let Some(place) = self.find(id).or_else(|| self.find_elsewhere(id)) else { return };
        let mut fields = self.cell(&place).load().unpack();
        fields.kind = match fields.kind {
            Kind::Compute => Kind::GpuCompute,
            Kind::Comm => Kind::GpuComm,
            _ => return,
        };
        fields.stream = stream.id;
        self.cell(&place).store(&SpanWords::pack(&fields));
        if self.gpu.stream(&self.recorder, stream.id, self.table.thread).is_none() {
            self.recorder.gpu.trace(&self.recorder, stream);
        }
    }

    /// Takes the span `id` out of its own timing, to be timed as part of a group: its fields, and the
    /// stream that this thread means by its stream.
    pub fn take_grouped(&mut self, id: u64) -> Option<(SpanWords, Arc<TracedStream>)> {
        let place = self.find(id).or_else(|| self.find_elsewhere(id))?;
        let words = self.cell(&place).load();
        if !words.kind().is_gpu() {
            return None;
        }
        let stream = self.gpu.stream(&self.recorder, words.stream(), self.table.thread)?;
        let mut fields = words.unpack();
        fields.kind = Kind::Ignored;
        self.cell(&place).store(&SpanWords::pack(&fields));
        Some((words, stream))
    }

    /// Sends spans without a time to the writer.
    pub fn send_untimed(&mut self, spans: &[SpanWords], device: u32, reason: Reason) {
        for &words in spans {
            send_untimed(&self.recorder, &mut self.sender, words, device, self.table.thread, reason);
        }
    }

    /// The thread's number.
    pub fn thread(&self) -> u32 {
        self.table.thread
    }
}
