//! What a thread does for calls of which it is known how they spread over ranks.

use super::Local;
use crate::queue::Sent;
use crate::routing::{Exchange, ExchangeRecord, PeerCounts};
use std::sync::atomic::Ordering;

impl Local {
    /// Sends the counts of the call of the span `id` to the writer, which they reach before the span's record.
    pub fn send_exchange(&mut self, id: u64, counts: &PeerCounts<'_>) {
        let Some(place) = self.find(id).or_else(|| self.find_elsewhere(id)) else { return };
        let fields = self.cell(&place).load().unpack();
        if !fields.kind.is_comm() {
            return;
        }
        let Some(exchange) = Exchange::new(counts) else {
            self.recorder.exchanges.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let record = ExchangeRecord { span: fields.span, exchange: Box::new(exchange) };
        let sender = self.exchanges.get_or_insert_with(|| self.recorder.exchanges.sender());
        if sender.send(record) == Sent::StoredWakeWriter {
            self.recorder.wake_writer();
        }
    }
}
