//! Records on their way from the threads to the writer.
//!
//! Each thread pushes into a single-producer ring; a full ring is replaced by a larger one while the
//! capacity of all rings that are not yet emptied stays within `COMMTRACE_QUEUE`. What does not fit is
//! counted.

use crate::spans::SpanWords;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A finished interval, in ticks of the host unless a device timed it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecord {
    pub words: SpanWords,
    pub start: u64,
    pub end: u64,
    pub thread: u32,
    /// Ordinal of the device that timed it; its times are then nanoseconds of CLOCK_MONOTONIC.
    pub device: u32,
}

/// Capacity of a thread's first ring, and the least that another is worth. The first is granted even
/// when the budget is spent, so that many idle threads cannot silence a new one.
const FIRST_RING: usize = 256;

/// The writer's end of a ring.
#[derive(Debug)]
pub(crate) struct Ring<T = RawRecord> {
    pub records: Consumer<T>,
    /// How much of its capacity was taken from the budget.
    granted: usize,
}

/// What producers and the writer share.
#[derive(Debug)]
pub(crate) struct Queue<T = RawRecord> {
    /// Capacity that may still be handed out.
    budget: AtomicUsize,
    new_rings: Mutex<Vec<Ring<T>>>,
    /// Records that found no room.
    pub dropped: AtomicU64,
    first_ring: usize,
}

impl<T> Queue<T> {
    /// A queue that buffers at most `capacity` records, beyond each thread's first small ring.
    pub fn new(capacity: usize) -> Self {
        Self {
            budget: AtomicUsize::new(capacity),
            new_rings: Mutex::new(Vec::new()),
            dropped: AtomicU64::new(0),
            first_ring: capacity.clamp(1, FIRST_RING),
        }
    }

    /// A sender for the calling thread.
    pub fn sender(self: &Arc<Self>) -> Sender<T> {
        let (producer, consumer) = RingBuffer::new(self.first_ring);
        let granted = self.take_budget(self.first_ring);
        self.announce(Ring { records: consumer, granted });
        Sender { queue: Arc::clone(self), producer, capacity: self.first_ring, until_wake: 0 }
    }

    /// Rings created since the last call.
    pub fn take_new_rings(&self) -> Vec<Ring<T>> {
        std::mem::take(&mut *self.new_rings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives up the rings that are empty and that no thread pushes into any more: their thread ended,
    /// or moved on to a larger one.
    pub fn retire(&self, rings: &mut Vec<Ring<T>>) {
        rings.retain(|ring| {
            let done = ring.records.is_abandoned() && ring.records.is_empty();
            if done {
                self.budget.fetch_add(ring.granted, Ordering::Relaxed);
            }
            !done
        });
    }

    fn announce(&self, ring: Ring<T>) {
        self.new_rings.lock().unwrap_or_else(PoisonError::into_inner).push(ring);
    }

    /// Takes up to `wanted` from the budget and says how much it was.
    fn take_budget(&self, wanted: usize) -> usize {
        let mut available = self.budget.load(Ordering::Relaxed);
        loop {
            let granted = available.min(wanted);
            match self.budget.compare_exchange_weak(
                available,
                available - granted,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return granted,
                Err(now) => available = now,
            }
        }
    }
}

/// What [`Sender::send`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Stored.
    Stored,
    /// Stored, and there is enough to do that the writer should wake up.
    StoredWakeWriter,
    /// No room: counted as dropped.
    Dropped,
}

/// A thread's end of the queue.
#[derive(Debug)]
pub(crate) struct Sender<T = RawRecord> {
    queue: Arc<Queue<T>>,
    producer: Producer<T>,
    capacity: usize,
    /// Records sent since the writer was last woken.
    until_wake: usize,
}

impl<T> Sender<T> {
    /// Stores `record`, or counts it as dropped. Never waits.
    #[inline]
    pub fn send(&mut self, record: T) -> Sent {
        match self.producer.push(record) {
            Ok(()) => {
                self.until_wake += 1;
                if self.until_wake * 2 > self.capacity {
                    self.until_wake = 0;
                    return Sent::StoredWakeWriter;
                }
                Sent::Stored
            }
            Err(rtrb::PushError::Full(record)) => self.send_to_larger_ring(record),
        }
    }

    /// The full ring keeps its share of the budget until the writer has emptied it, which it does before
    /// it looks at the new one.
    #[cold]
    fn send_to_larger_ring(&mut self, record: T) -> Sent {
        let granted = self.queue.take_budget(self.capacity * 2);
        if granted < self.queue.first_ring {
            self.queue.budget.fetch_add(granted, Ordering::Relaxed);
            self.queue.dropped.fetch_add(1, Ordering::Relaxed);
            return Sent::Dropped;
        }
        let (mut producer, consumer) = RingBuffer::new(granted);
        // A new ring has room.
        let _ = producer.push(record);
        self.queue.announce(Ring { records: consumer, granted });
        self.producer = producer;
        self.capacity = granted;
        self.until_wake = 0;
        Sent::StoredWakeWriter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::SpanFields;

    fn record(number: u64) -> RawRecord {
        let words = SpanWords::pack(&SpanFields::new(0));
        RawRecord { words, start: number, end: number, thread: 0, device: 0 }
    }

    fn drain(rings: &mut Vec<Ring>, queue: &Queue) -> Vec<u64> {
        rings.extend(queue.take_new_rings());
        let mut seen = Vec::new();
        for ring in rings.iter_mut() {
            while let Ok(record) = ring.records.pop() {
                seen.push(record.start);
            }
        }
        queue.retire(rings);
        seen
    }

    #[test]
    fn grows_within_the_budget_and_counts_the_rest() {
        let queue = Arc::new(Queue::new(1024));
        let mut sender = queue.sender();
        let stored = (0..10_000).filter(|&number| sender.send(record(number)) != Sent::Dropped).count();
        assert_eq!(stored as u64 + queue.dropped.load(Ordering::Relaxed), 10_000);
        assert_eq!(stored, 1024);
        let mut rings = Vec::new();
        assert_eq!(drain(&mut rings, &queue), (0..1024).collect::<Vec<_>>());
    }

    #[test]
    fn a_drained_queue_takes_more() {
        let queue = Arc::new(Queue::new(16));
        let mut sender = queue.sender();
        let mut rings = Vec::new();
        let mut seen = 0;
        for number in 0..1_000 {
            sender.send(record(number));
            if number % 10 == 0 {
                seen += drain(&mut rings, &queue).len();
            }
        }
        seen += drain(&mut rings, &queue).len();
        assert_eq!(seen, 1_000);
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_finished_thread_returns_its_share() {
        let queue = Arc::new(Queue::new(512));
        let mut rings = Vec::new();
        for _ in 0..100 {
            let mut sender = queue.sender();
            for number in 0..512 {
                assert_ne!(sender.send(record(number)), Sent::Dropped);
            }
            assert_eq!(sender.send(record(512)), Sent::Dropped);
            drop(sender);
            assert_eq!(drain(&mut rings, &queue).len(), 512);
        }
        assert!(rings.is_empty());
        assert_eq!(queue.budget.load(Ordering::Relaxed), 512);
    }
}
