//! How calls spread over ranks, on its way from a queue of its own to the rows of the calls.

use super::Writer;
use crate::message::say;
use crate::queue::{Queue, Ring};
use crate::routing::{Exchange, ExchangeRecord, MAX_WAITING};
use crate::spans::{NO_U32, SpanFields};
use commtrace_report::record::{Row, RowKind, meta};
use commtrace_report::timeline::RoutingPhase;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;

/// What waits for the records of its spans.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    rings: Vec<Ring<ExchangeRecord>>,
    by_span: HashMap<u64, Box<Exchange>>,
    /// The spans in order of arrival, some of which have been taken out: the span of a call that failed is
    /// never entered, and what it left must not stay for ever.
    order: VecDeque<u64>,
    /// Calls whose counts were given up, because their span was not recorded in time or says another number of ranks.
    given_up: u64,
    /// Already written as lost.
    written: u64,
    said_uneven: bool,
}

impl Exchanges {
    /// Takes what is in the queue.
    pub fn take(&mut self, queue: &Queue<ExchangeRecord>) {
        self.rings.extend(queue.take_new_rings());
        if self.rings.is_empty() {
            return;
        }
        let mut rings = std::mem::take(&mut self.rings);
        for ring in &mut rings {
            let ready = ring.records.slots();
            if let Ok(chunk) = ring.records.read_chunk(ready) {
                chunk.into_iter().for_each(|record| self.keep(record));
            }
        }
        queue.retire(&mut rings);
        self.rings = rings;
    }

    fn keep(&mut self, ExchangeRecord { span, exchange }: ExchangeRecord) {
        if exchange.is_uneven() && !self.said_uneven {
            self.said_uneven = true;
            say(format_args!(
                "a call of dispatch_scope or combine_scope exchanges counts that are no multiple of \
                 elements_per_token: its tokens, and those of others like it, are not counted"
            ));
        }
        if self.by_span.insert(span, exchange).is_none() {
            self.order.push_back(span);
        }
        while self.by_span.len() > MAX_WAITING {
            let Some(oldest) = self.order.pop_front() else { break };
            self.given_up += u64::from(self.by_span.remove(&oldest).is_some());
        }
        if self.order.len() > 2 * MAX_WAITING {
            self.order.retain(|span| self.by_span.contains_key(span));
        }
    }

    /// That of a span, for its first record.
    pub fn of(&mut self, span: &SpanFields) -> Option<Box<Exchange>> {
        if self.by_span.is_empty() {
            return None;
        }
        let exchange = self.by_span.remove(&span.span);
        if self.by_span.is_empty() {
            self.order.clear();
        }
        let fits = |exchange: &Exchange| [NO_U32, exchange.comm_size].contains(&span.comm_size);
        self.given_up += u64::from(exchange.as_deref().is_some_and(|exchange| !fits(exchange)));
        exchange.filter(|exchange| fits(exchange))
    }
}

/// `row` with how its call spreads over ranks.
pub(super) fn with<'a>(row: Row<'a>, exchange: &'a Exchange) -> Row<'a> {
    Row {
        comm_size: Some(exchange.comm_size),
        comm_rank: row.comm_rank.or(Some(exchange.comm_rank)),
        phase: exchange.phase.map(RoutingPhase::as_str),
        token_bytes: exchange.token_bytes,
        sent_bytes: Some(&exchange.sent_bytes),
        received_bytes: Some(&exchange.received_bytes),
        ..row
    }
}

impl Writer {
    /// Writes how many calls lost how they spread over ranks.
    pub(super) fn write_lost_exchanges(&mut self) {
        let lost = self.recorder.exchanges.dropped.load(Ordering::Relaxed) + self.exchanges.given_up;
        let new = lost.saturating_sub(self.exchanges.written);
        if new == 0 {
            return;
        }
        self.exchanges.written = lost;
        let row = Row { value: i64::try_from(new).ok(), ..Row::new(RowKind::Meta, meta::PEER_BYTES_DROPPED) };
        if let Some(&rank) = self.ranks.first() {
            self.aggregator.push(rank, &row);
            if let Some(files) = &mut self.files {
                files.push_meta(rank, &row);
            }
        }
    }
}
