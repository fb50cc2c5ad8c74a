//! A CUDA context that spans are timed in.

use super::driver::{Driver, Handle};
use super::pool::{EventPool, Slot};
use super::reason::Reason;
use crate::recorder::lock;
use cudarc::driver::CudaContext;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

/// The events of one span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub start: Slot,
    pub end: Slot,
}

/// A CUDA context that spans are timed in, with its pool of events.
#[derive(Debug)]
pub(crate) struct GpuContext {
    pub handle: Handle,
    /// Ordinal of its device.
    pub device: u32,
    owners: Mutex<Owners>,
    pub pool: EventPool,
    /// The packed [`Reason`] for which the context is of no use any more.
    failed: AtomicU64,
    closed: AtomicBool,
}

/// Who keeps the context alive.
#[derive(Debug, Default)]
struct Owners {
    /// Objects of cudarc, kept while spans have to be resolved. Several may stand for one primary context.
    cudarc: Vec<Arc<CudaContext>>,
    /// Raw streams were seen, whose context the caller keeps alive until recording ends.
    caller: bool,
}

/// The context has not failed.
const USABLE: u64 = u64::MAX;

impl GpuContext {
    pub fn new(handle: Handle, device: u32, events: usize) -> Self {
        Self {
            handle,
            device,
            owners: Mutex::default(),
            pool: EventPool::new(events),
            failed: AtomicU64::new(USABLE),
            closed: AtomicBool::new(false),
        }
    }

    /// Why the context is of no use any more.
    pub fn failed(&self) -> Option<Reason> {
        Some(self.failed.load(Ordering::Relaxed)).filter(|&packed| packed != USABLE).map(Reason::unpack)
    }

    /// Notes `reason`, and gives up the context if that says it is broken.
    pub fn note(&self, reason: Reason) {
        if reason.is_sticky() {
            self.failed.store(reason.pack(), Ordering::Relaxed);
        }
    }

    /// Whether it was given up because nothing of the application uses it.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A stream of `owner`, or of the caller of an `unsafe` constructor, is to be timed. `false` if the
    /// context was given up before.
    pub fn join(&self, owner: Option<Arc<CudaContext>>) -> bool {
        let mut owners = lock(&self.owners);
        if self.is_closed() {
            return false;
        }
        match owner {
            None => owners.caller = true,
            Some(owner) if owners.cudarc.iter().any(|known| Arc::ptr_eq(known, &owner)) => {}
            Some(owner) => owners.cudarc.push(owner),
        }
        true
    }

    /// Gives the context up if we alone keep it alive, and says so. Nobody can enter a span then, and the last ones
    /// are sent: a span holds its stream until then, and a stream its context.
    pub fn give_up_if_abandoned(&self) -> bool {
        let owners = lock(&self.owners);
        let abandoned = !owners.caller && !owners.cudarc.is_empty() && owners.cudarc.iter().all(is_ours);
        if abandoned {
            // What was done before the other holders let go is seen after this.
            fence(Ordering::Acquire);
            self.closed.store(true, Ordering::Release);
        }
        abandoned
    }

    /// Takes back that it was given up: there is something to resolve.
    pub fn take_up(&self) {
        self.closed.store(false, Ordering::Release);
    }

    /// Lets go of the objects that we alone keep, if others keep the context alive.
    pub fn release_spare(&self) {
        let spare: Vec<_> = {
            let mut owners = lock(&self.owners);
            if !owners.caller && owners.cudarc.iter().all(is_ours) {
                return;
            }
            owners.cudarc.extract_if(.., |context| is_ours(context)).collect()
        };
        // Outside of the lock: it calls the driver.
        drop(spare);
    }

    /// Takes two events and records the first on `stream`.
    ///
    /// # Errors
    ///
    /// Why the span will have no time.
    pub fn record_start(&self, driver: &Driver, stream: Handle) -> Result<Pair, Reason> {
        if let Some(reason) = self.failed() {
            return Err(reason);
        }
        let recorded = driver.with_context(self.handle, || {
            if driver.is_capturing(stream).map_err(Reason::of_code)? {
                return Err(Reason::Captured);
            }
            let start = self.pool.take(|| driver.create_event())?;
            let end = match self.pool.take(|| driver.create_event()) {
                Ok(end) => end,
                Err(reason) => {
                    self.pool.give(start);
                    return Err(reason);
                }
            };
            let pair = Pair { start, end };
            self.record(driver, start, stream).map(|()| pair).inspect_err(|_| self.give(pair))
        });
        recorded.map_err(Reason::of_code).and_then(|inner| inner).inspect_err(|&reason| self.note(reason))
    }

    /// Records the second event of `pair` on `stream`.
    ///
    /// # Errors
    ///
    /// Why the span has no time. The events are back in the pool.
    pub fn record_end(&self, driver: &Driver, pair: Pair, stream: Handle) -> Result<(), Reason> {
        let recorded = match self.failed() {
            Some(reason) => Err(reason),
            None => driver
                .with_context(self.handle, || {
                    if driver.is_capturing(stream).map_err(Reason::of_code)? {
                        return Err(Reason::Captured);
                    }
                    self.record(driver, pair.end, stream)
                })
                .map_err(Reason::of_code)
                .and_then(|inner| inner),
        };
        recorded.inspect_err(|&reason| {
            self.note(reason);
            self.give(pair);
        })
    }

    fn record(&self, driver: &Driver, slot: Slot, stream: Handle) -> Result<(), Reason> {
        match driver.record(self.pool.event(slot), stream) {
            super::driver::SUCCESS => Ok(()),
            code => Err(Reason::of_code(code)),
        }
    }

    /// Gives the events of a span back.
    pub fn give(&self, pair: Pair) {
        self.pool.give(pair.start);
        self.pool.give(pair.end);
    }

    /// Destroys the free events and lets go of the context.
    ///
    /// Events that a thread holds at this moment stay: it may be recording one.
    pub fn close(&self, driver: &Driver) {
        self.closed.store(true, Ordering::Release);
        if self.failed().is_none() {
            // If the context cannot be made current, its events are gone with it.
            let _ = driver.with_context(self.handle, || self.pool.close(driver));
        }
        // Outside of the lock: this may destroy the context.
        let owners = std::mem::take(&mut lock(&self.owners).cudarc);
        drop(owners);
    }
}

/// Whether only we hold the object.
fn is_ours(context: &Arc<CudaContext>) -> bool {
    Arc::strong_count(context) == 1
}
