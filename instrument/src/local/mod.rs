//! A thread's half of a recorder: the spans it has entered, its sender and its caches.
//!
//! Everything that a span costs happens here, on the application's thread, without a lock, an
//! allocation or a system call (but for the first span of a thread, a string or callsite seen for the
//! first time, and a ring that must grow).

use crate::clock;
use crate::fields::{Collector, LayoutCache};
use crate::intern::InternCache;
use crate::queue::{RawRecord, Sender, Sent};
use crate::rank;
use crate::recorder::{RankState, Recorder};
use crate::routing::ExchangeRecord;
use crate::spans::{Kind, NO_STEP, NO_U32, SpanCell, SpanFields, SpanTable, SpanWords};
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tracing_core::span;

mod exchange;
#[cfg(feature = "cuda")]
mod gpu;

thread_local! {
    /// One entry per recorder that this thread met; nearly always one.
    static LOCALS: RefCell<Vec<Local>> = const { RefCell::new(Vec::new()) };
}

/// Runs `action` with this thread's half of `recorder`. `None` while the thread is being torn down.
#[inline]
pub(crate) fn with_local<R>(recorder: &Arc<Recorder>, action: impl FnOnce(&mut Local) -> R) -> Option<R> {
    LOCALS
        .try_with(|locals| {
            let mut locals = locals.try_borrow_mut().ok()?;
            if locals.first().is_none_or(|local| !Arc::ptr_eq(&local.recorder, recorder)) {
                bring_to_front(&mut locals, recorder);
            }
            locals.first_mut().map(action)
        })
        .ok()
        .flatten()
}

#[cold]
fn bring_to_front(locals: &mut Vec<Local>, recorder: &Arc<Recorder>) {
    locals.retain(|local| {
        Arc::ptr_eq(&local.recorder, recorder)
            || local.recorder.active.load(Ordering::Relaxed)
            || !local.stack.is_empty()
    });
    if let Some(index) = locals.iter().position(|local| Arc::ptr_eq(&local.recorder, recorder)) {
        locals.swap(0, index);
    } else {
        locals.insert(0, Local::new(Arc::clone(recorder)));
    }
}

/// An entered span.
#[derive(Debug)]
struct Open {
    id: u64,
    /// Ticks at the entry.
    start: u64,
    kind: Kind,
    /// Entries of the same span inside this one: they are part of this interval.
    nested: u32,
    place: Place,
    /// For a step: whose current step it is, and the number of its span.
    step: Option<Box<(Arc<RankState>, u64)>>,
}

/// Where a span's fields are.
#[derive(Debug)]
enum Place {
    /// In the thread's own table.
    Own(usize),
    Elsewhere(Box<Elsewhere>),
}

#[derive(Debug)]
enum Elsewhere {
    Table(Arc<SpanTable>, usize),
    Overflow(Arc<SpanCell>),
}

#[derive(Debug)]
pub(crate) struct Local {
    recorder: Arc<Recorder>,
    table: Arc<SpanTable>,
    sender: Sender,
    /// Of the calls of which it is known how they spread over ranks.
    exchanges: Option<Sender<ExchangeRecord>>,
    strings: InternCache,
    layouts: LayoutCache,
    stack: Vec<Open>,
    next_span: u64,
    rank: u32,
    rank_state: Arc<RankState>,
    /// Only some ranks or steps are wanted.
    filtered: bool,
    #[cfg(feature = "cuda")]
    gpu: crate::cuda::GpuThread,
}

/// How far from the top of a thread's stack an entry is looked for: entries that were leaked must not
/// make every later span slow.
const REACH: usize = 256;

/// Entered spans that a thread keeps.
const MAX_ENTERED: usize = 65_536;

/// Span numbers count within a thread; the thread's number stands above this bit.
const SPAN_BITS: u32 = 40;

impl Local {
    fn new(recorder: Arc<Recorder>) -> Self {
        let table = recorder.new_table();
        let rank = rank::current_rank();
        Self {
            sender: recorder.queue.sender(),
            exchanges: None,
            strings: InternCache::new(),
            layouts: LayoutCache::new(),
            stack: Vec::with_capacity(16),
            next_span: u64::from(table.thread) << SPAN_BITS,
            rank,
            rank_state: recorder.rank_state(rank),
            table,
            filtered: recorder.wanted_ranks.is_some() || recorder.wanted_steps.is_some(),
            #[cfg(feature = "cuda")]
            gpu: Default::default(),
            recorder,
        }
    }

    /// A span was created.
    #[inline]
    pub fn new_span(&mut self, attributes: &span::Attributes<'_>, id: u64) {
        let layout = self.layouts.get(attributes.metadata(), &self.recorder.interner);
        if !layout.has_kind {
            return;
        }
        let mut fields = SpanFields::new(layout.name);
        attributes.record(&mut Collector::new(
            layout,
            &self.recorder.interner,
            &mut self.strings,
            &mut fields,
        ));
        if fields.rank == NO_U32 {
            fields.rank = rank::current_rank();
        }
        if fields.rank != self.rank {
            self.change_rank(fields.rank);
        }
        if !fields.kind.is_step() && fields.step == NO_STEP {
            fields.step = self.rank_state.step.load(Ordering::Relaxed);
        }
        if self.filtered {
            self.apply_filters(&mut fields);
        }
        fields.span = self.next_span;
        self.next_span += 1;
        let words = SpanWords::pack(&fields);
        if !self.table.insert(id, &words) {
            let cell = SpanCell::default();
            cell.store(&words);
            self.recorder.overflow.insert(id, cell);
        }
    }

    #[cold]
    fn change_rank(&mut self, rank: u32) {
        self.rank = rank;
        self.rank_state = self.recorder.rank_state(rank);
    }

    #[cold]
    fn apply_filters(&self, fields: &mut SpanFields) {
        let recorder = &*self.recorder;
        let wanted = recorder.wanted_ranks.as_ref().is_none_or(|ranks| ranks.contains(&fields.rank))
            && recorder.wanted_steps.as_ref().is_none_or(|steps| steps.contains(&fields.step));
        if !wanted {
            fields.kind = if fields.kind.is_step() { Kind::UnrecordedStep } else { Kind::Ignored };
        }
    }

    /// Fields were recorded on a span after its creation.
    pub fn record(
        &mut self,
        metadata: &'static tracing_core::Metadata<'static>,
        id: u64,
        values: &span::Record<'_>,
    ) {
        if !self.layouts.get(metadata, &self.recorder.interner).has_kind {
            return;
        }
        let Some(place) = self.find(id).or_else(|| self.find_elsewhere(id)) else { return };
        let mut fields = self.cell(&place).load().unpack();
        let before = fields;
        let layout = self.layouts.get(metadata, &self.recorder.interner);
        values.record(&mut Collector::new(layout, &self.recorder.interner, &mut self.strings, &mut fields));
        if before.kind.is_gpu() {
            // The stream is one that the span was made with.
            (fields.kind, fields.stream) = (before.kind, before.stream);
        }
        self.apply_filters(&mut fields);
        self.cell(&place).store(&SpanWords::pack(&fields));
    }

    /// Whether a span of this callsite, not found in the thread's own table, may be elsewhere.
    pub fn may_be_elsewhere(&mut self, metadata: &'static tracing_core::Metadata<'static>) -> bool {
        self.layouts.get(metadata, &self.recorder.interner).has_kind
    }

    #[inline]
    fn find(&self, id: u64) -> Option<Place> {
        self.table.find(id).map(Place::Own)
    }

    /// Looks for a span that another thread created, or that found no place in its table.
    #[cold]
    fn find_elsewhere(&self, id: u64) -> Option<Place> {
        if let Some(cell) = self.recorder.overflow.find(id) {
            return Some(Place::Elsewhere(Box::new(Elsewhere::Overflow(cell))));
        }
        let tables = self.recorder.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.iter().find_map(|table| {
            let index = table.find(id)?;
            Some(Place::Elsewhere(Box::new(Elsewhere::Table(Arc::clone(table), index))))
        })
    }

    #[inline]
    fn cell<'a>(&'a self, place: &'a Place) -> &'a SpanCell {
        match place {
            Place::Own(index) => self.table.cell(*index),
            Place::Elsewhere(elsewhere) => match &**elsewhere {
                Elsewhere::Table(table, index) => table.cell(*index),
                Elsewhere::Overflow(cell) => cell,
            },
        }
    }

    /// A span was entered. `false` if it is not in this thread's table and the caller should find out
    /// whether [`Local::enter_elsewhere`] is worth it.
    #[inline]
    pub fn enter(&mut self, id: u64) -> bool {
        match self.find(id) {
            Some(place) => {
                self.open(id, place);
                true
            }
            None => false,
        }
    }

    /// A span that is not in this thread's table was entered.
    pub fn enter_elsewhere(&mut self, id: u64) {
        if let Some(place) = self.find_elsewhere(id) {
            self.open(id, place);
        }
    }

    #[inline]
    fn open(&mut self, id: u64, place: Place) {
        let kind = self.cell(&place).kind();
        if kind == Kind::Ignored {
            return;
        }
        let reachable = self.stack.len().saturating_sub(REACH);
        if let Some(open) = self.stack[reachable..].iter_mut().rfind(|open| open.id == id) {
            open.nested += 1;
            return;
        }
        if self.stack.len() >= MAX_ENTERED {
            self.recorder.overflow.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut step = None;
        let is_first = !kind.is_step() && self.table.open_since.load(Ordering::Relaxed) == 0;
        if kind.is_step() {
            step = Some(Box::new(self.begin_step(&place)));
        } else if is_first {
            // Before the clock is read, so that the writer never takes a later instant for final.
            self.table.open_since.store(1, Ordering::Release);
        }
        let start = clock::ticks();
        if is_first {
            self.table.open_since.store(start, Ordering::Release);
        }
        if kind != Kind::Compute {
            self.cell(&place).set_entered(start);
        }
        #[cfg(feature = "cuda")]
        if kind.is_gpu() {
            // After the clock was read: the GPU's work begins later than `start`.
            let stream = self.cell(&place).load().stream();
            self.gpu.enter(&self.recorder, id, stream, self.table.thread);
        }
        self.stack.push(Open { id, start, kind, place, nested: 0, step });
    }

    fn begin_step(&self, place: &Place) -> (Arc<RankState>, u64) {
        let fields = self.cell(place).load().unpack();
        let state = if fields.rank == self.rank || fields.rank == NO_U32 {
            Arc::clone(&self.rank_state)
        } else {
            self.recorder.rank_state(fields.rank)
        };
        state.enter(fields.span, fields.step);
        (state, fields.span)
    }

    /// A span was exited at `end` ticks.
    #[inline]
    pub fn exit(&mut self, id: u64, end: u64) {
        // Mostly the last one; guards may be dropped in another order.
        let reachable = self.stack.len().saturating_sub(REACH);
        let Some(index) = self.stack[reachable..].iter().rposition(|open| open.id == id) else { return };
        let index = reachable + index;
        if self.stack[index].nested > 0 {
            self.stack[index].nested -= 1;
            return;
        }
        let open =
            if index + 1 == self.stack.len() { self.stack.pop() } else { Some(self.stack.remove(index)) };
        let Some(open) = open else { return };
        let cell = self.cell(&open.place);
        let words = cell.load();
        if open.kind != Kind::Compute {
            cell.set_entered(0);
        }
        if let Some(step) = &open.step {
            step.0.exit(step.1);
        }
        let recorded = words.kind().is_recorded() && self.recorder.active.load(Ordering::Relaxed);
        #[cfg(feature = "cuda")]
        if open.kind.is_gpu() {
            let thread = self.table.thread;
            if recorded && words.kind().is_gpu() {
                self.gpu.exit(&self.recorder, id, words, open.start, thread, &mut self.sender);
            } else {
                self.gpu.abandon(id);
            }
        }
        if recorded && !open.kind.is_gpu() {
            let record =
                RawRecord { words, start: open.start, end, thread: self.table.thread, device: NO_U32 };
            if self.sender.send(record) == Sent::StoredWakeWriter {
                self.recorder.wake_writer();
            }
        }
        if !open.kind.is_step() {
            // Only now: until here the writer had to reckon with this interval.
            let outermost = self.stack.iter().find(|open| !open.kind.is_step()).map_or(0, |open| open.start);
            self.table.open_since.store(outermost, Ordering::Release);
        }
    }

    /// A span was closed. `false` if it is not in this thread's table.
    #[inline]
    pub fn close(&mut self, id: u64) -> bool {
        match self.table.find(id) {
            Some(index) => {
                self.table.remove(index);
                true
            }
            None => false,
        }
    }

    /// A span that is not in this thread's table was closed.
    pub fn close_elsewhere(&mut self, id: u64) {
        if let Some(Place::Elsewhere(elsewhere)) = self.find_elsewhere(id) {
            match *elsewhere {
                Elsewhere::Table(table, index) => table.remove(index),
                Elsewhere::Overflow(_) => self.recorder.overflow.remove(id),
            }
        }
    }
}
