//! Tables from the handles that callers hold to the objects behind them.
//!
//! A handle is a number in the shape of a pointer: kind, place and generation. One that is stale or of
//! another kind is found out, never followed.

use std::sync::{Arc, PoisonError, RwLock};

/// What C sees: an opaque pointer.
pub type Handle = usize;

struct Slot<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

/// All objects of one kind.
pub struct Table<T> {
    kind: u8,
    slots: RwLock<Slots<T>>,
}

const PLACE_BITS: u32 = 24;

impl<T> Table<T> {
    /// A table whose handles carry `kind`, which is not 0, so that none is a special stream's handle.
    pub const fn new(kind: u8) -> Self {
        Table { kind, slots: RwLock::new(Slots { slots: Vec::new(), free: Vec::new() }) }
    }

    /// Adds the object made for its own handle. `None` when 16 million of them live.
    pub fn insert_with(&self, make: impl FnOnce(Handle) -> Arc<T>) -> Option<(Handle, Arc<T>)> {
        let mut table = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let place = match table.free.pop() {
            Some(place) => place,
            None if table.slots.len() < 1 << PLACE_BITS => {
                table.slots.push(Slot { generation: 1, object: None });
                (table.slots.len() - 1) as u32
            }
            None => return None,
        };
        let slot = table.slots.get_mut(place as usize)?;
        // `(generation, place, kind)`, below the sign bit.
        let handle = (slot.generation as usize & 0x7fff_ffff) << (PLACE_BITS + 8)
            | (place as usize) << 8
            | usize::from(self.kind);
        let object = make(handle);
        slot.object = Some(object.clone());
        Some((handle, object))
    }

    /// Adds an object.
    pub fn insert(&self, object: Arc<T>) -> Option<Handle> {
        self.insert_with(|_| object).map(|(handle, _)| handle)
    }

    fn split(&self, handle: Handle) -> Option<(usize, u32)> {
        (handle & 0xff == usize::from(self.kind))
            .then_some((handle >> 8 & ((1 << PLACE_BITS) - 1), (handle >> (PLACE_BITS + 8)) as u32))
    }

    /// The object behind a handle, if it is still there.
    pub fn get(&self, handle: Handle) -> Option<Arc<T>> {
        let (place, generation) = self.split(handle)?;
        let table = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let slot = table.slots.get(place).filter(|slot| slot.generation == generation)?;
        slot.object.clone()
    }

    /// Takes the object behind a handle out of the table; the handle is stale from then on.
    pub fn remove(&self, handle: Handle) -> Option<Arc<T>> {
        let (place, generation) = self.split(handle)?;
        let mut table = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = table.slots.get_mut(place).filter(|slot| slot.generation == generation)?;
        let object = slot.object.take()?;
        slot.generation = if generation == 0x7fff_ffff { 1 } else { generation + 1 };
        table.free.push(place as u32);
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_handle_finds_its_object_until_it_is_removed_and_never_another(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..200)
        ) {
            let table: Table<u32> = Table::new(0x21);
            let other: Table<u32> = Table::new(0x22);
            let mut live: Vec<(Handle, u32)> = Vec::new();
            let mut stale: Vec<Handle> = Vec::new();
            for (number, (adds, at)) in (0..).zip(steps) {
                if adds || live.is_empty() {
                    live.push((table.insert(Arc::new(number)).unwrap(), number));
                } else {
                    let (handle, object) = live.swap_remove(at.index(live.len()));
                    prop_assert_eq!(table.remove(handle).map(|it| *it), Some(object));
                    stale.push(handle);
                }
                for (handle, object) in &live {
                    prop_assert_eq!(table.get(*handle).map(|it| *it), Some(*object));
                    prop_assert!(other.get(*handle).is_none());
                }
                for handle in &stale {
                    prop_assert!(table.get(*handle).is_none() && table.remove(*handle).is_none());
                }
            }
        }

        #[test]
        fn no_number_is_a_handle_by_chance(number in any::<usize>()) {
            let table: Table<u32> = Table::new(0x21);
            let handle = table.insert(Arc::new(1)).unwrap();
            prop_assert!(number == handle || table.get(number).is_none());
            prop_assert!(handle > 2, "streams have special handles");
        }
    }
}
