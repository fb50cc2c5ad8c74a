//! What the layer, the application's threads and the writer thread share.

use crate::clock;
use crate::config::Config;
use crate::intern::Interner;
use crate::queue::Queue;
use crate::routing::{self, ExchangeRecord};
use crate::spans::{NO_STEP, SpanCell, SpanTable};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Locks even if a thread panicked while holding the lock: what these locks guard is consistent after
/// every single operation, and the library must not panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts of a recorder, taken from what the writer has seen.
///
/// After the guard's end `recorded + untimed + dropped` is the number of intervals whose span was entered and
/// exited while recording was on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Intervals that reached the writer.
    pub recorded: u64,
    /// Intervals lost because `COMMTRACE_QUEUE` records were waiting for the writer.
    pub dropped: u64,
    /// Intervals without a time, for example because their stream was being captured into a graph; not
    /// among `recorded`.
    pub untimed: u64,
    /// Spans not followed: too many were alive at once, or they were made inside the formatting of
    /// another span's field or while their thread was being torn down.
    pub untracked_spans: u64,
}

/// The step that is current for one rank.
#[derive(Debug)]
pub(crate) struct RankState {
    pub step: AtomicI64,
    /// The entered steps with the number of their span, in order of entry. They need not nest: a rank's
    /// threads and tasks may enter and exit steps in any order.
    entered: Mutex<Vec<(u64, i64)>>,
}

impl RankState {
    fn new() -> Self {
        Self { step: AtomicI64::new(NO_STEP), entered: Mutex::default() }
    }

    /// The step of the span numbered `span` was entered.
    pub fn enter(&self, span: u64, step: i64) {
        let mut entered = lock(&self.entered);
        // Leaked entries must not grow without bound.
        if entered.len() < MAX_ENTERED_STEPS {
            entered.push((span, step));
        }
        self.step.store(step, Ordering::Relaxed);
    }

    /// It was exited: the latest step that is still entered is current again.
    pub fn exit(&self, span: u64) {
        let mut entered = lock(&self.entered);
        if let Some(index) = entered.iter().rposition(|(other, _)| *other == span) {
            entered.remove(index);
        }
        self.step.store(entered.last().map_or(NO_STEP, |(_, step)| *step), Ordering::Relaxed);
    }
}

const MAX_ENTERED_STEPS: usize = 1024;

/// New threads after which their halves are looked at, whatever the flush interval.
const MANY_THREADS: usize = 64;

/// The state shared by all parties of one recorder.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// The process that created it; a forked child must not wait for a writer that it does not have.
    pub pid: u32,
    /// Spans are recorded. Cleared when the run is finished.
    pub active: AtomicBool,
    pub interner: Interner,
    pub queue: Arc<Queue>,
    /// How calls spread over ranks.
    pub exchanges: Arc<Queue<ExchangeRecord>>,
    pub tables: RwLock<Vec<Arc<SpanTable>>>,
    /// How many tables the last pruning left.
    tables_after_prune: AtomicUsize,
    pub overflow: Overflow,
    pub recorded: AtomicU64,
    pub untimed: AtomicU64,
    /// Spans on GPU streams.
    #[cfg(feature = "cuda")]
    pub gpu: crate::cuda::Gpu,
    pub wanted_steps: Option<Range<i64>>,
    pub wanted_ranks: Option<Vec<u32>>,
    ranks: Mutex<HashMap<u32, Arc<RankState>>>,
    next_thread: AtomicU32,
    communicators: Mutex<Vec<RegisteredCommunicator>>,
    writer: OnceLock<Thread>,
    control: Mutex<Control>,
    changed: Condvar,
}

/// A communicator that waits to be written.
#[derive(Debug, Clone)]
pub(crate) struct RegisteredCommunicator {
    pub rank: u32,
    pub name: String,
    pub ranks: Vec<u32>,
    pub comm_rank: u32,
}

/// Requests to the writer and its answers.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Number of flushes asked for, and the last one done.
    pub flush_wanted: u64,
    pub flush_done: u64,
    pub finish: bool,
    /// The run never began: no report.
    pub discard: bool,
    pub done: bool,
    /// The writer ended by a fault.
    pub failed: bool,
    /// Leave the report to the caller, who gathers what the other processes recorded.
    pub gather: bool,
    /// The finished run, for that caller.
    pub ended: Option<Box<crate::shutdown::Ended>>,
    /// What the finished run amounts to, for a caller that asks for it.
    pub report: Option<commtrace_report::analyze::Report>,
}

impl Recorder {
    pub fn new(config: &Config) -> Arc<Self> {
        Arc::new(Self {
            pid: std::process::id(),
            active: AtomicBool::new(true),
            interner: Interner::new(),
            queue: Arc::new(Queue::new(config.queue)),
            exchanges: Arc::new(Queue::new(config.queue.min(routing::MAX_WAITING))),
            tables: RwLock::default(),
            tables_after_prune: AtomicUsize::new(0),
            overflow: Overflow::default(),
            recorded: AtomicU64::new(0),
            untimed: AtomicU64::new(0),
            #[cfg(feature = "cuda")]
            gpu: crate::cuda::Gpu::new(config.queue, config.events),
            wanted_steps: config.steps.clone(),
            wanted_ranks: config.ranks.clone(),
            ranks: Mutex::default(),
            next_thread: AtomicU32::new(0),
            communicators: Mutex::new(crate::rank::take_early_communicators()),
            writer: OnceLock::new(),
            control: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    pub fn rank_state(&self, rank: u32) -> Arc<RankState> {
        let mut ranks = lock(&self.ranks);
        Arc::clone(ranks.entry(rank).or_insert_with(|| Arc::new(RankState::new())))
    }

    /// Registers the table of a new thread.
    pub fn new_table(&self) -> Arc<SpanTable> {
        let table = Arc::new(SpanTable::new(self.next_thread.fetch_add(1, Ordering::Relaxed)));
        let tables = {
            let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
            tables.push(Arc::clone(&table));
            tables.len()
        };
        if tables >= self.tables_after_prune.load(Ordering::Relaxed) + MANY_THREADS {
            self.wake_writer();
        }
        table
    }

    /// Forgets the tables of threads that have ended and whose spans are closed.
    pub fn prune_tables(&self) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|table| Arc::strong_count(table) > 1 || !table.is_empty());
        self.tables_after_prune.store(tables.len(), Ordering::Relaxed);
    }

    /// Prunes between flushes in programs that start many short threads.
    pub fn prune_tables_if_many(&self) {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner).len();
        if tables >= self.tables_after_prune.load(Ordering::Relaxed) + MANY_THREADS {
            self.prune_tables();
        }
    }

    /// Forgets a span that is closed on a thread whose own half is already torn down.
    pub fn forget(&self, id: u64) {
        self.overflow.remove(id);
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((table, index)) = tables.iter().find_map(|table| Some((table, table.find(id)?))) {
            table.remove(index);
        }
    }

    pub fn register(&self, communicator: RegisteredCommunicator) {
        lock(&self.communicators).push(communicator);
    }

    pub fn take_communicators(&self) -> Vec<RegisteredCommunicator> {
        std::mem::take(&mut *lock(&self.communicators))
    }

    pub fn stats(&self) -> Stats {
        Stats {
            recorded: self.recorded.load(Ordering::Relaxed),
            untimed: self.untimed.load(Ordering::Relaxed),
            dropped: self.dropped(),
            untracked_spans: self.overflow.refused.load(Ordering::Relaxed),
        }
    }

    fn dropped(&self) -> u64 {
        let dropped = self.queue.dropped.load(Ordering::Relaxed);
        #[cfg(feature = "cuda")]
        let dropped = dropped + self.gpu.queue.dropped.load(Ordering::Relaxed);
        dropped
    }

    /// Ticks before which no span was entered that has not been exited and sent, `None` if a thread is
    /// just reading the clock for one.
    pub fn entered_until(&self) -> Option<u64> {
        let now = clock::ticks();
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let open = tables.iter().map(|table| table.open_since.load(Ordering::Acquire));
        let until = open.filter(|&since| since != 0).try_fold(now, |earliest, since| {
            // 1: just reading.
            (since != 1).then_some(earliest.min(since))
        })?;
        #[cfg(feature = "cuda")]
        let until = lock(&self.gpu.groups.open).values().fold(until, |until, &since| until.min(since));
        Some(until)
    }

    pub fn set_writer(&self, thread: Thread) {
        let _ = self.writer.set(thread);
    }

    pub fn wake_writer(&self) {
        if let Some(thread) = self.writer.get() {
            thread.unpark();
        }
    }

    pub fn control(&self) -> MutexGuard<'_, Control> {
        lock(&self.control)
    }

    /// Tells those who wait in [`Recorder::wait`] that something changed.
    pub fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits until `until` holds, at most for `timeout`. Returns whether it holds.
    pub fn wait(&self, timeout: Duration, until: impl Fn(&Control) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        let mut control = self.control();
        loop {
            if until(&control) {
                return true;
            }
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            control =
                self.changed.wait_timeout(control, deadline - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks the writer to write what was recorded so far and waits for it.
    pub fn flush(&self, timeout: Duration) -> bool {
        if std::process::id() != self.pid {
            return false;
        }
        let wanted = {
            let mut control = self.control();
            control.flush_wanted += 1;
            control.flush_wanted
        };
        self.wake_writer();
        self.wait(timeout, |control| control.flush_done >= wanted || control.done) && !self.control().failed
    }

    /// Ends recording, lets the writer close the files and write the reports, and waits for it.
    pub fn finish(&self, timeout: Duration) -> bool {
        if std::process::id() != self.pid {
            return false;
        }
        self.active.store(false, Ordering::SeqCst);
        self.control().finish = true;
        self.wake_writer();
        self.wait(timeout, |control| control.done)
    }
}

/// Spans that found no place in their thread's table: many alive at once, or leaked.
#[derive(Debug)]
pub(crate) struct Overflow {
    shards: [Mutex<HashMap<u64, Arc<SpanCell>>>; OVERFLOW_SHARDS],
    len: AtomicUsize,
    pub refused: AtomicU64,
}

const OVERFLOW_SHARDS: usize = 16;

/// Spans kept here; leaking spans must not grow memory without bound.
const MAX_OVERFLOW: usize = 65_536;

impl Default for Overflow {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            len: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

impl Overflow {
    fn shard(&self, id: u64) -> MutexGuard<'_, HashMap<u64, Arc<SpanCell>>> {
        lock(&self.shards[id as usize % OVERFLOW_SHARDS])
    }

    pub fn insert(&self, id: u64, cell: SpanCell) {
        if self.len.load(Ordering::Relaxed) >= MAX_OVERFLOW {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.shard(id).insert(id, Arc::new(cell)).is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn find(&self, id: u64) -> Option<Arc<SpanCell>> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.shard(id).get(&id).cloned()
    }

    pub fn remove(&self, id: u64) {
        if self.len.load(Ordering::Relaxed) != 0 && self.shard(id).remove(&id).is_some() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Calls `visit` with every cell.
    pub fn for_each(&self, mut visit: impl FnMut(&SpanCell)) {
        if self.len.load(Ordering::Relaxed) == 0 {
            return;
        }
        for shard in &self.shards {
            lock(shard).values().for_each(|cell| visit(cell));
        }
    }
}
