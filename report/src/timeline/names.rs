//! Interned strings.

use std::collections::HashMap;
use std::sync::Arc;

/// A string of a [`Names`] table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sym(u32);

impl Sym {
    /// The first and the last that a table can have, for ranges of ordered keys.
    pub(crate) const FIRST: Self = Self(0);
    pub(crate) const LAST: Self = Self(u32::MAX);

    /// The position in the table, in order of first appearance.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The raw number, for columns that store "none" as [`u32::MAX`].
    pub(super) fn raw(self) -> u32 {
        self.0
    }

    pub(super) fn from_raw(raw: u32) -> Option<Self> {
        (raw != u32::MAX).then_some(Self(raw))
    }
}

/// Strings in order of first appearance, each stored once.
#[derive(Debug, Clone, Default)]
pub struct Names {
    strings: Vec<Arc<str>>,
    index: HashMap<Arc<str>, u32>,
}

impl Names {
    /// The symbol of `text`, added if it is new.
    ///
    /// The table holds at most `u32::MAX - 1` strings; texts beyond that share the last symbol.
    pub fn intern(&mut self, text: &str) -> Sym {
        if let Some(&raw) = self.index.get(text) {
            return Sym(raw);
        }
        let raw = u32::try_from(self.strings.len()).unwrap_or(u32::MAX).min(u32::MAX - 1);
        if raw as usize == self.strings.len() {
            let text: Arc<str> = text.into();
            self.strings.push(Arc::clone(&text));
            self.index.insert(text, raw);
        }
        Sym(raw)
    }

    /// The symbol of `text`, if it is in the table.
    pub fn find(&self, text: &str) -> Option<Sym> {
        self.index.get(text).copied().map(Sym)
    }

    /// The text of `sym`; empty for a symbol of another table that is out of range here.
    pub fn get(&self, sym: Sym) -> &str {
        self.strings.get(sym.index()).map_or("", |text| text)
    }

    /// All strings, in order of first appearance.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.strings.iter().map(|text| &**text)
    }

    /// Number of distinct strings.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether nothing was interned yet.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
}
