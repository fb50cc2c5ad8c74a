//! The spans that are alive: their fields, found by span id without a lock.
//!
//! Each thread owns a small open-addressed table. Only the owner inserts; any thread may read a span
//! that it holds, and close it, because a span's id is never reused while a reference to it exists.
//! Fields are written before the id is published and change afterwards only through `Span::record`,
//! so everything is a plain atomic and nothing here is `unsafe`.

use crate::intern::{NO_SYM, Sym};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const NO_U64: u64 = u64::MAX;
pub(crate) const NO_U32: u32 = u32::MAX;
pub(crate) const NO_STEP: i64 = i64::MIN;

/// The start of a record without a time, whose end is the reason.
#[cfg(feature = "cuda")]
pub(crate) const UNTIMED: u64 = u64::MAX;

/// What a span is recorded as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// No kind, an unknown kind, or a rank or step that is not to be recorded.
    Ignored = 0,
    Compute = 1,
    Comm = 2,
    Step = 3,
    /// A step that is not to be recorded but still is the current step of what runs in it.
    UnrecordedStep = 4,
    /// Compute timed on a GPU stream: the span's `stream` is the stream's number.
    #[cfg(feature = "cuda")]
    GpuCompute = 5,
    /// Communication timed on a GPU stream.
    #[cfg(feature = "cuda")]
    GpuComm = 6,
}

impl Kind {
    fn from_bits(bits: u32) -> Self {
        match bits {
            1 => Self::Compute,
            2 => Self::Comm,
            3 => Self::Step,
            4 => Self::UnrecordedStep,
            #[cfg(feature = "cuda")]
            5 => Self::GpuCompute,
            #[cfg(feature = "cuda")]
            6 => Self::GpuComm,
            _ => Self::Ignored,
        }
    }

    pub fn is_step(self) -> bool {
        matches!(self, Self::Step | Self::UnrecordedStep)
    }

    pub fn is_recorded(self) -> bool {
        matches!(self, Self::Compute | Self::Comm | Self::Step) || self.is_gpu()
    }

    /// Whether its time is that of a GPU stream.
    #[inline]
    pub fn is_gpu(self) -> bool {
        #[cfg(feature = "cuda")]
        return matches!(self, Self::GpuCompute | Self::GpuComm);
        #[cfg(not(feature = "cuda"))]
        false
    }

    /// Whether it is communication, whoever times it.
    pub fn is_comm(self) -> bool {
        #[cfg(feature = "cuda")]
        if self == Self::GpuComm {
            return true;
        }
        self == Self::Comm
    }
}

/// The fields of a span that a record needs. In the order of [`SpanWords`], so that packing is a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct SpanFields {
    pub rank: u32,
    pub kind: Kind,
    pub step: i64,
    pub bytes: u64,
    pub seq: u64,
    /// Number of the span in this process.
    pub span: u64,
    pub label: Sym,
    pub name: Sym,
    pub stream: Sym,
    pub comm: Sym,
    pub comm_size: u32,
    pub dtype: Sym,
    pub peer: u32,
    pub comm_rank: u32,
}

impl SpanFields {
    pub fn new(name: Sym) -> Self {
        Self {
            kind: Kind::Ignored,
            rank: NO_U32,
            step: NO_STEP,
            bytes: NO_U64,
            seq: NO_U64,
            span: NO_U64,
            name,
            label: NO_SYM,
            comm: NO_SYM,
            stream: NO_SYM,
            dtype: NO_SYM,
            comm_size: NO_U32,
            comm_rank: NO_U32,
            peer: NO_U32,
        }
    }
}

/// Words of [`SpanFields`] in packed form.
const WORDS: usize = 9;

/// [`SpanFields`] as it is stored and queued: moved word by word, taken apart only by the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanWords([u64; WORDS]);

fn pack(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn unpack(both: u64) -> (u32, u32) {
    ((both >> 32) as u32, both as u32)
}

impl SpanWords {
    #[inline]
    pub fn pack(fields: &SpanFields) -> Self {
        Self([
            pack(fields.kind as u32, fields.rank),
            fields.step as u64,
            fields.bytes,
            fields.seq,
            fields.span,
            pack(fields.name, fields.label),
            pack(fields.comm, fields.stream),
            pack(fields.dtype, fields.comm_size),
            pack(fields.comm_rank, fields.peer),
        ])
    }

    pub fn unpack(&self) -> SpanFields {
        let words = &self.0;
        let (kind, rank) = unpack(words[0]);
        let (name, label) = unpack(words[5]);
        let (comm, stream) = unpack(words[6]);
        let (dtype, comm_size) = unpack(words[7]);
        let (comm_rank, peer) = unpack(words[8]);
        SpanFields {
            kind: Kind::from_bits(kind),
            rank,
            step: words[1] as i64,
            bytes: words[2],
            seq: words[3],
            span: words[4],
            name,
            label,
            comm,
            stream,
            dtype,
            comm_size,
            comm_rank,
            peer,
        }
    }

    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::from_bits((self.0[0] >> 32) as u32)
    }
}

/// What GPU timing needs of packed fields.
#[cfg(feature = "cuda")]
impl SpanWords {
    pub fn rank(&self) -> u32 {
        self.0[0] as u32
    }

    pub fn bytes(&self) -> u64 {
        self.0[2]
    }

    pub fn span(&self) -> u64 {
        self.0[4]
    }

    pub fn stream(&self) -> u32 {
        self.0[6] as u32
    }

    #[must_use]
    pub fn with_stream(mut self, stream: u32) -> Self {
        self.0[6] = pack(unpack(self.0[6]).0, stream);
        self
    }

    /// With `label`, unless it has one.
    #[must_use]
    pub fn labelled(mut self, label: Sym) -> Self {
        let (name, own) = unpack(self.0[5]);
        self.0[5] = pack(name, if own == NO_SYM { label } else { own });
        self
    }
}

/// [`SpanWords`] that several threads may see.
#[derive(Debug, Default)]
pub(crate) struct SpanCell {
    words: [AtomicU64; WORDS],
    /// Ticks at the latest entry, 0 while not entered: lets the writer see collectives that hang.
    entered: AtomicU64,
}

impl SpanCell {
    #[inline]
    pub fn store(&self, words: &SpanWords) {
        for (cell, word) in self.words.iter().zip(words.0) {
            cell.store(word, Ordering::Relaxed);
        }
    }

    #[inline]
    pub fn load(&self) -> SpanWords {
        SpanWords(std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed)))
    }

    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::from_bits((self.words[0].load(Ordering::Relaxed) >> 32) as u32)
    }

    #[inline]
    pub fn set_entered(&self, ticks: u64) {
        self.entered.store(ticks, Ordering::Release);
    }

    /// Ticks since when the span is entered, if it is.
    pub fn entered(&self) -> Option<u64> {
        Some(self.entered.load(Ordering::Acquire)).filter(|&ticks| ticks != 0)
    }
}

/// Home positions in a table, a power of two.
const SLOTS: usize = 128;
/// A span sits at most this far behind its home position.
const WINDOW: usize = 8;

/// The spans that one thread created and that are still alive.
#[derive(Debug)]
pub(crate) struct SpanTable {
    /// Span ids, 0 where free. Apart from the cells, so that a probe reads one or two cache lines.
    ids: Box<[AtomicU64]>,
    cells: Box<[SpanCell]>,
    /// Ticks since when the owning thread is inside a compute or comm span; 0 if it is not, 1 while
    /// it is just reading the clock.
    pub open_since: AtomicU64,
    /// Number of the owning thread.
    pub thread: u32,
}

impl SpanTable {
    pub fn new(thread: u32) -> Self {
        Self {
            ids: (0..SLOTS + WINDOW).map(|_| AtomicU64::new(0)).collect(),
            cells: (0..SLOTS + WINDOW).map(|_| SpanCell::default()).collect(),
            open_since: AtomicU64::new(0),
            thread,
        }
    }

    #[inline]
    fn home(id: u64) -> usize {
        // Fibonacci hashing; registry ids are small and dense, or differ in high bits only.
        (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57) as usize % SLOTS
    }

    /// The cell index of the span `id`, if it is in this table.
    #[inline]
    pub fn find(&self, id: u64) -> Option<usize> {
        let home = Self::home(id);
        let window = &self.ids[home..home + WINDOW];
        let offset = window.iter().position(|slot| slot.load(Ordering::Acquire) == id)?;
        Some(home + offset)
    }

    /// Inserts a span, only on the owning thread. `false` if its window is full.
    #[inline]
    pub fn insert(&self, id: u64, words: &SpanWords) -> bool {
        let home = Self::home(id);
        let window = &self.ids[home..home + WINDOW];
        let Some(offset) = window.iter().position(|slot| slot.load(Ordering::Acquire) == 0) else {
            return false;
        };
        let cell = &self.cells[home + offset];
        cell.store(words);
        cell.set_entered(0);
        self.ids[home + offset].store(id, Ordering::Release);
        true
    }

    #[inline]
    pub fn cell(&self, index: usize) -> &SpanCell {
        &self.cells[index]
    }

    /// Frees the position of a closed span.
    #[inline]
    pub fn remove(&self, index: usize) {
        self.ids[index].store(0, Ordering::Release);
    }

    /// Whether no span of this table is alive.
    pub fn is_empty(&self) -> bool {
        self.ids.iter().all(|slot| slot.load(Ordering::Acquire) == 0)
    }

    /// The cells of the spans that are alive.
    pub fn live(&self) -> impl Iterator<Item = &SpanCell> {
        self.ids
            .iter()
            .zip(self.cells.iter())
            .filter(|(id, _)| id.load(Ordering::Acquire) != 0)
            .map(|(_, cell)| cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_the_packing() {
        let fields = SpanFields {
            kind: Kind::Comm,
            rank: 7,
            step: -3,
            bytes: 1 << 40,
            seq: 0,
            span: 99,
            name: 1,
            label: NO_SYM,
            comm: 2,
            stream: 3,
            dtype: NO_SYM,
            comm_size: 8,
            comm_rank: NO_U32,
            peer: 0,
        };
        let cell = SpanCell::default();
        cell.store(&SpanWords::pack(&fields));
        assert_eq!(cell.load().unpack(), fields);
        assert_eq!(cell.load().kind(), Kind::Comm);
        assert_eq!(cell.kind(), Kind::Comm);
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_group_labels_the_calls_that_have_no_label_and_changes_nothing_else() {
        let fields = SpanFields { kind: Kind::GpuComm, rank: 3, bytes: 5, stream: 9, ..SpanFields::new(1) };
        let words = SpanWords::pack(&fields);
        assert_eq!((words.rank(), words.bytes(), words.stream()), (3, 5, 9));
        assert_eq!(words.labelled(7).unpack(), SpanFields { label: 7, ..fields });
        assert_eq!(words.labelled(7).labelled(8).unpack().label, 7);
        assert_eq!(words.with_stream(2).unpack(), SpanFields { stream: 2, ..fields });
    }

    fn named(name: Sym) -> SpanWords {
        SpanWords::pack(&SpanFields::new(name))
    }

    #[test]
    fn a_full_window_refuses_and_a_removed_span_makes_room() {
        let table = SpanTable::new(0);
        let same_home: Vec<u64> =
            (1..).filter(|&id| SpanTable::home(id) == SpanTable::home(1)).take(WINDOW + 1).collect();
        for &id in &same_home[..WINDOW] {
            assert!(table.insert(id, &named(id as u32)));
        }
        assert!(!table.insert(same_home[WINDOW], &named(0)));
        let third = table.find(same_home[3]).unwrap();
        assert_eq!(table.cell(third).load().unpack().name, same_home[3] as u32);
        table.remove(third);
        assert_eq!(table.find(same_home[3]), None);
        assert!(table.insert(same_home[WINDOW], &named(0)));
        assert!(!table.is_empty());
        assert_eq!(table.live().count(), WINDOW);
    }
}
