//! A context's timing events: made when needed, up to a limit, and used again and again.
//!
//! Events are known by their position. Free ones form a stack that any thread pushes to and pops from
//! without a lock; a count in the upper half of its head makes every change of the head distinct, so
//! that a head which was popped and pushed back meanwhile is not mistaken for an unchanged one.

use super::driver::{Code, Driver, Handle};
use super::reason::Reason;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Position of an event in its pool.
pub(crate) type Slot = u32;

/// No slot.
const NONE: Slot = Slot::MAX;

/// A context's timing events.
#[derive(Debug)]
pub(crate) struct EventPool {
    events: Box<[AtomicUsize]>,
    free: FreeStack,
    /// Events made so far.
    made: AtomicU32,
    /// Most events, no more once the pool is closed.
    limit: AtomicU32,
}

impl EventPool {
    /// A pool of at most `capacity` events.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(NONE as usize - 1);
        Self {
            events: (0..capacity).map(|_| AtomicUsize::new(0)).collect(),
            free: FreeStack::new(capacity),
            made: AtomicU32::new(0),
            limit: AtomicU32::new(capacity as u32),
        }
    }

    /// Takes a free event, or makes one with `make`.
    ///
    /// # Errors
    ///
    /// [`Reason::PoolExhausted`], or why `make` could not make one.
    pub fn take(&self, make: impl FnOnce() -> Result<Handle, Code>) -> Result<Slot, Reason> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let limit = self.limit.load(Ordering::Relaxed);
        let grow = |made| (made < limit).then_some(made + 1);
        let slot = self
            .made
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow)
            .map_err(|_| Reason::PoolExhausted)?;
        match make() {
            Ok(event) => {
                self.events[slot as usize].store(event, Ordering::Release);
                Ok(slot)
            }
            // The position stays without an event: a driver that cannot make one rarely recovers.
            Err(code) => Err(Reason::of_code(code)),
        }
    }

    /// The event at `slot`.
    pub fn event(&self, slot: Slot) -> Handle {
        self.events.get(slot as usize).map_or(0, |event| event.load(Ordering::Acquire))
    }

    /// Gives an event back. It may still be about to happen: recording it again replaces that.
    pub fn give(&self, slot: Slot) {
        self.free.push(slot);
    }

    /// Events made so far.
    #[cfg(test)]
    pub fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Makes no more events, and destroys those that are free. The others stay with who holds them.
    pub fn close(&self, driver: &Driver) {
        self.limit.store(0, Ordering::Relaxed);
        while let Some(slot) = self.free.pop() {
            driver.destroy_event(self.event(slot));
        }
    }
}

/// A stack of slots.
#[derive(Debug)]
struct FreeStack {
    /// A count of changes above, the topmost slot below.
    head: AtomicU64,
    /// What lies under each slot.
    below: Box<[AtomicU32]>,
}

impl FreeStack {
    fn new(capacity: usize) -> Self {
        Self {
            head: AtomicU64::new(u64::from(NONE)),
            below: (0..capacity).map(|_| AtomicU32::new(NONE)).collect(),
        }
    }

    fn replaced(head: u64, top: Slot) -> u64 {
        ((head >> 32).wrapping_add(1)) << 32 | u64::from(top)
    }

    fn push(&self, slot: Slot) {
        let Some(below) = self.below.get(slot as usize) else { return };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            below.store(head as Slot, Ordering::Relaxed);
            let new = Self::replaced(head, slot);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self) -> Option<Slot> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let top = head as Slot;
            let below = self.below.get(top as usize)?.load(Ordering::Relaxed);
            let new = Self::replaced(head, below);
            match self.head.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(top),
                Err(now) => head = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Barrier;

    #[test]
    fn makes_up_to_its_limit_and_uses_again() {
        let pool = EventPool::new(3);
        let slots: Vec<Slot> = (0..3).map(|event| pool.take(|| Ok(event + 100)).unwrap()).collect();
        assert_eq!(slots.iter().map(|&slot| pool.event(slot)).collect::<Vec<_>>(), [100, 101, 102]);
        assert_eq!(pool.take(|| Ok(0)), Err(Reason::PoolExhausted));
        pool.give(slots[1]);
        assert_eq!(pool.take(|| panic!("one is free")), Ok(slots[1]));
        assert_eq!(pool.made(), 3);
    }

    #[test]
    fn a_driver_that_makes_no_event_is_no_exhausted_pool() {
        let pool = EventPool::new(2);
        assert_eq!(pool.take(|| Err(700)), Err(Reason::Driver(700)));
        assert!(pool.take(|| Ok(1)).is_ok());
        assert_eq!(pool.take(|| Ok(1)), Err(Reason::PoolExhausted));
    }

    #[test]
    fn no_event_is_with_two_threads_at_once() {
        const THREADS: usize = 4;
        let pool = EventPool::new(8);
        let owners: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    for round in 0..20_000 {
                        let held: Vec<Slot> =
                            (0..round % 4).filter_map(|_| pool.take(|| Ok(1)).ok()).collect();
                        for &slot in &held {
                            assert_eq!(owners[slot as usize].swap(1, Ordering::SeqCst), 0);
                        }
                        for &slot in &held {
                            owners[slot as usize].store(0, Ordering::SeqCst);
                            pool.give(slot);
                        }
                    }
                });
            }
        });
        let all: HashSet<Slot> = std::iter::from_fn(|| pool.take(|| Ok(1)).ok()).collect();
        assert_eq!(all.len(), 8);
    }
}
