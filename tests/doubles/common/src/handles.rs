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
