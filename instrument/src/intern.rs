//! Strings on the hot path: a number instead of a text.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// A string of the process's [`Interner`].
pub(crate) type Sym = u32;

/// "No string".
pub(crate) const NO_SYM: Sym = u32::MAX;

/// Distinct strings kept; labels made at run time must not grow memory without bound.
pub(crate) const MAX_STRINGS: usize = 65_536;

/// What stands in the records for strings beyond [`MAX_STRINGS`].
const OVERFLOW: &str = "(too many distinct names)";

/// All strings of one recorder, numbered in order of first appearance.
#[derive(Debug)]
pub(crate) struct Interner {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    index: HashMap<Arc<str>, Sym>,
    strings: Vec<Arc<str>>,
}

impl Interner {
    pub fn new() -> Self {
        let overflow: Arc<str> = OVERFLOW.into();
        let mut inner = Inner::default();
        inner.index.insert(Arc::clone(&overflow), 0);
        inner.strings.push(overflow);
        Self { inner: RwLock::new(inner) }
    }

    /// The number and the stored text of `text`.
    pub fn intern(&self, text: &str) -> (Sym, Arc<str>) {
        {
            let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
            if let Some((stored, &sym)) = inner.index.get_key_value(text) {
                return (sym, Arc::clone(stored));
            }
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((stored, &sym)) = inner.index.get_key_value(text) {
            return (sym, Arc::clone(stored));
        }
        if inner.strings.len() >= MAX_STRINGS {
            return (0, Arc::clone(&inner.strings[0]));
        }
        let stored: Arc<str> = text.into();
        let sym = inner.strings.len() as Sym;
        inner.strings.push(Arc::clone(&stored));
        inner.index.insert(Arc::clone(&stored), sym);
        (sym, stored)
    }

    /// Appends the strings that `copy` does not have yet, so that the writer thread reads without a lock.
    pub fn extend(&self, copy: &mut Vec<Arc<str>>) {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(new) = inner.strings.get(copy.len()..) {
            copy.extend(new.iter().cloned());
        }
    }
}

const CACHE_SLOTS: usize = 64;

/// A thread's memory of the strings it used last, by address; the content is compared, so that a
/// reused address cannot give a wrong name.
#[derive(Debug)]
pub(crate) struct InternCache {
    slots: Box<[CacheSlot; CACHE_SLOTS]>,
}

type CacheSlot = Option<(Arc<str>, Sym)>;

impl InternCache {
    pub fn new() -> Self {
        Self { slots: Box::new([const { None }; CACHE_SLOTS]) }
    }

    #[inline]
    pub fn get(&mut self, interner: &Interner, text: &str) -> Sym {
        let address = text.as_ptr() as usize;
        let slot = (address ^ (address >> 6) ^ text.len()) % CACHE_SLOTS;
        if let Some((stored, sym)) = &self.slots[slot]
            && same(stored.as_bytes(), text.as_bytes())
        {
            return *sym;
        }
        let (sym, stored) = interner.intern(text);
        // The overflow text stands for many strings and must not be mistaken for one of them.
        if *stored == *text {
            self.slots[slot] = Some((stored, sym));
        }
        sym
    }
}

/// Equality without a call for the short texts that names are.
#[inline]
fn same(one: &[u8], other: &[u8]) -> bool {
    fn ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
        one.first_chunk::<N>() == other.first_chunk::<N>() && one.last_chunk::<N>() == other.last_chunk::<N>()
    }
    one.len() == other.len()
        && match one.len() {
            4..=8 => ends::<4>(one, other),
            9..=16 => ends::<8>(one, other),
            _ => one == other,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_never_confuses_two_texts_at_one_address() {
        let interner = Interner::new();
        let mut cache = InternCache::new();
        let mut text = String::from("layer-1");
        let first = cache.get(&interner, &text);
        text.replace_range(6..7, "2");
        let second = cache.get(&interner, &text);
        assert_ne!(first, second);
        text.replace_range(6..7, "1");
        assert_eq!(cache.get(&interner, &text), first);
    }

    #[test]
    fn short_texts_are_compared_to_the_last_byte() {
        for len in 0..40 {
            let one: Vec<u8> = (0..len).collect();
            assert!(same(&one, &one.clone()));
            assert!(!same(&one, &[&one[..], b"x"].concat()));
            for changed in 0..one.len() {
                let mut other = one.clone();
                other[changed] ^= 0x80;
                assert!(!same(&one, &other), "{len} {changed}");
            }
        }
    }

    #[test]
    fn distinct_strings_are_bounded() {
        let interner = Interner::new();
        let mut cache = InternCache::new();
        for number in 0..MAX_STRINGS + 1_000 {
            cache.get(&interner, &format!("label {number}"));
        }
        let mut copy = Vec::new();
        interner.extend(&mut copy);
        assert_eq!(copy.len(), MAX_STRINGS);
        let beyond = cache.get(&interner, "one more");
        assert_eq!(&*copy[beyond as usize], OVERFLOW);
        assert_eq!(cache.get(&interner, "label 0"), 1);
    }
}
