//! Which communicators have all their ranks in this process, as threads or one after another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The ranks of one communicator in this process.
#[derive(Debug, Default, Clone, Copy)]
struct Ranks {
    /// Made so far. It stays when some are dropped: their threads may end before the one that asks.
    made: usize,
    alive: usize,
}

static HERE: Mutex<BTreeMap<Arc<str>, Ranks>> = Mutex::new(BTreeMap::new());

/// A rank of the communicator `name` was made.
pub(super) fn add(name: &Arc<str>) {
    let mut here = HERE.lock().unwrap_or_else(PoisonError::into_inner);
    let ranks = here.entry(Arc::clone(name)).or_default();
    ranks.made += 1;
    ranks.alive += 1;
}

/// A rank of the communicator `name` is gone.
pub(super) fn remove(name: &str) {
    let mut here = HERE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(ranks) = here.get_mut(name) {
        ranks.alive -= 1;
        if ranks.alive == 0 {
            here.remove(name);
        }
    }
}

/// Whether all `size` ranks of the communicator `name`, of which the caller has one, are in this process.
pub(super) fn are_all(name: &str, size: usize) -> bool {
    let here = HERE.lock().unwrap_or_else(PoisonError::into_inner);
    here.get(name).is_some_and(|ranks| ranks.made == size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_until_the_last_is_gone() {
        let name: Arc<str> = "ranks here".into();
        assert!(!are_all(&name, 0));
        add(&name);
        assert!(are_all(&name, 1) && !are_all(&name, 2));
        add(&name);
        assert!(are_all(&name, 2));
        // The other rank's thread has ended.
        remove(&name);
        assert!(are_all(&name, 2));
        remove(&name);
        assert!(!are_all(&name, 2));
        // Made again under this name.
        add(&name);
        assert!(are_all(&name, 1));
        remove(&name);
    }
}
