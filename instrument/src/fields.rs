//! From a span's `tracing` fields to [`SpanFields`].
//!
//! Which field of a callsite means what is worked out once per callsite and thread; afterwards a
//! field is recognised by its index, without comparing names.

use crate::intern::{InternCache, Interner, Sym};
use crate::spans::{Kind, SpanFields};
use std::fmt::{self, Write};
use tracing_core::Metadata;
use tracing_core::field::{Field, Visit};

/// The field that makes a span ours.
const KIND_FIELD: &str = "commtrace.kind";

/// Whether spans of this callsite have a kind.
pub(crate) fn has_kind(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.fields().field(KIND_FIELD).is_some()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Unused,
    Kind,
    Op,
    Bytes,
    Comm,
    CommSize,
    CommRank,
    Seq,
    Rank,
    Peer,
    Stream,
    Dtype,
    Label,
    Step,
}

impl Meaning {
    fn of(name: &str) -> Self {
        match name {
            KIND_FIELD => Self::Kind,
            "op" => Self::Op,
            "bytes" => Self::Bytes,
            "comm" => Self::Comm,
            "comm_size" => Self::CommSize,
            "comm_rank" => Self::CommRank,
            "seq" => Self::Seq,
            "rank" => Self::Rank,
            "peer" => Self::Peer,
            "stream" => Self::Stream,
            "dtype" => Self::Dtype,
            "label" => Self::Label,
            "step" => Self::Step,
            _ => Self::Unused,
        }
    }
}

/// More fields than `tracing` allows on one span.
const MAX_FIELDS: usize = 32;

/// What the fields of one callsite mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    callsite: usize,
    /// Whether the spans have a kind at all.
    pub has_kind: bool,
    /// The spans' name.
    pub name: Sym,
    meanings: [Meaning; MAX_FIELDS],
}

const CACHE_SLOTS: usize = 64;

/// The layouts of the callsites that a thread met last.
#[derive(Debug)]
pub(crate) struct LayoutCache {
    slots: Box<[Layout; CACHE_SLOTS]>,
}

impl LayoutCache {
    pub fn new() -> Self {
        let empty = Layout { callsite: 0, has_kind: false, name: 0, meanings: [Meaning::Unused; MAX_FIELDS] };
        Self { slots: Box::new([empty; CACHE_SLOTS]) }
    }

    /// The layout of a callsite; its metadata is static, so its address identifies it.
    #[inline]
    pub fn get(&mut self, metadata: &'static Metadata<'static>, interner: &Interner) -> &Layout {
        let callsite = std::ptr::from_ref(metadata) as usize;
        let slot = &mut self.slots[(callsite >> 4) % CACHE_SLOTS];
        if slot.callsite != callsite {
            *slot = Self::work_out(callsite, metadata, interner);
        }
        slot
    }

    #[cold]
    fn work_out(callsite: usize, metadata: &Metadata<'_>, interner: &Interner) -> Layout {
        let has_kind = has_kind(metadata);
        let mut meanings = [Meaning::Unused; MAX_FIELDS];
        let mut name = 0;
        if has_kind {
            name = interner.intern(metadata.name()).0;
            for (meaning, field) in meanings.iter_mut().zip(metadata.fields().iter()) {
                *meaning = Meaning::of(field.name());
            }
        }
        Layout { callsite, has_kind, name, meanings }
    }
}

/// Collects the fields that a layout gives a meaning.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    layout: &'a Layout,
    interner: &'a Interner,
    strings: &'a mut InternCache,
    fields: &'a mut SpanFields,
}

impl<'a> Collector<'a> {
    /// Collects into `fields`. Its `rank` stays as it is unless the span has such a field.
    pub fn new(
        layout: &'a Layout,
        interner: &'a Interner,
        strings: &'a mut InternCache,
        fields: &'a mut SpanFields,
    ) -> Self {
        Self { layout, interner, strings, fields }
    }

    #[inline]
    fn meaning(&self, field: &Field) -> Meaning {
        self.layout.meanings.get(field.index()).copied().unwrap_or(Meaning::Unused)
    }

    #[inline]
    fn text(&mut self, meaning: Meaning, text: &str) {
        if meaning == Meaning::Unused {
            return;
        }
        let text = shortened(text);
        let fields = &mut *self.fields;
        match meaning {
            Meaning::Kind => {
                fields.kind = match text.as_bytes() {
                    b"compute" => Kind::Compute,
                    b"comm" => Kind::Comm,
                    b"step" => Kind::Step,
                    _ => Kind::Ignored,
                }
            }
            Meaning::Op => fields.name = self.strings.get(self.interner, text),
            Meaning::Comm => fields.comm = self.strings.get(self.interner, text),
            Meaning::Stream => fields.stream = self.strings.get(self.interner, text),
            Meaning::Dtype => fields.dtype = self.strings.get(self.interner, text),
            Meaning::Label => fields.label = self.strings.get(self.interner, text),
            // A number written with `%` or `?` arrives as text.
            _ => {
                if let Ok(number) = text.parse() {
                    self.number(meaning, number);
                }
            }
        }
    }

    /// Values outside a field's range leave it unknown: a wrong figure is worse than none.
    #[inline]
    fn number(&mut self, meaning: Meaning, number: i128) {
        let fields = &mut *self.fields;
        let small = || u32::try_from(number).ok().filter(|&small| small != u32::MAX);
        let large = || u64::try_from(number).ok().filter(|&large| large != u64::MAX);
        match meaning {
            Meaning::Unused => {}
            Meaning::Bytes => fields.bytes = large().unwrap_or(u64::MAX),
            Meaning::Seq => fields.seq = large().unwrap_or(u64::MAX),
            Meaning::CommSize => fields.comm_size = small().unwrap_or(u32::MAX),
            Meaning::CommRank => fields.comm_rank = small().unwrap_or(u32::MAX),
            Meaning::Peer => fields.peer = small().unwrap_or(u32::MAX),
            Meaning::Rank => fields.rank = small().unwrap_or(fields.rank),
            Meaning::Step => fields.step = i64::try_from(number).unwrap_or(i64::MIN),
            Meaning::Kind => fields.kind = Kind::Ignored,
            Meaning::Op | Meaning::Comm | Meaning::Stream | Meaning::Dtype | Meaning::Label => {
                self.display(meaning, &number);
            }
        }
    }

    fn display(&mut self, meaning: Meaning, value: &dyn fmt::Display) {
        let mut text = Short::default();
        // Only the text's length can make this fail; what fits is kept.
        let _ = write!(text, "{value}");
        self.text(meaning, text.as_str());
    }
}

impl Visit for Collector<'_> {
    #[inline]
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(self.meaning(field), value);
    }

    #[inline]
    fn record_u64(&mut self, field: &Field, value: u64) {
        match self.meaning(field) {
            Meaning::Unused => {}
            Meaning::Bytes => self.fields.bytes = value,
            Meaning::Seq => self.fields.seq = value,
            meaning => self.number(meaning, value.into()),
        }
    }

    #[inline]
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(self.meaning(field), value.into());
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.number(self.meaning(field), i128::try_from(value).unwrap_or(i128::MAX));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.number(self.meaning(field), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let meaning = self.meaning(field);
        if meaning != Meaning::Unused {
            self.display(meaning, &value);
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.text(self.meaning(field), if value { "true" } else { "false" });
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let meaning = self.meaning(field);
        if meaning != Meaning::Unused {
            self.display(meaning, &format_args!("{value:?}"));
        }
    }
}

/// Longest text that is kept: as many distinct ones as there may be must fit into memory.
const MAX_TEXT: usize = 256;

/// `text`, cut at a character if it is longer than [`MAX_TEXT`] bytes.
#[inline]
fn shortened(text: &str) -> &str {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let mut end = MAX_TEXT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A text of at most 128 bytes on the stack; what is longer is cut at a character.
#[derive(Debug)]
struct Short {
    bytes: [u8; 128],
    len: usize,
}

impl Default for Short {
    fn default() -> Self {
        Self { bytes: [0; 128], len: 0 }
    }
}

impl Short {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut fits = text.len().min(self.bytes.len() - self.len);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.bytes[self.len..self.len + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let mut short = Short::default();
        assert!(write!(short, "{}éb", "a".repeat(127)).is_err());
        assert_eq!(short.as_str(), "a".repeat(127));
    }
}
