//! Work on many things at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The results of `work` in the order of `items`, at most as many at once as there are processors. Where
/// threads are not to be had, the calling one does it all.
pub(crate) fn in_parallel<F: Sync, T: Send>(items: &[F], work: impl Fn(&F) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<T>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let run = || {
        while let Some((item, slot)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).zip(slots.get(index))
        } {
            let result = work(item);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            if thread::Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    let taken = slots.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
    taken.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..1000).collect();
        let squares = in_parallel(&items, |item| item * item);
        assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
        assert_eq!(squares.len(), 1000);
        assert_eq!(in_parallel(&[], |item: &u64| *item), Vec::<u64>::new());
    }
}
