//! Work on many files at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The results of `read` in the order of `files`, at most as many at once as there are processors.
pub(super) fn in_parallel<F: Sync, T: Send>(files: &[F], read: impl Fn(&F) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(files.len());
    if threads < 2 {
        return files.iter().map(read).collect();
    }
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<T>>> = files.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((file, slot)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    files.get(index).zip(slots.get(index))
                } {
                    let result = read(file);
                    *slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(result);
                }
            });
        }
    });
    let taken =
        slots.into_iter().map(|slot| slot.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()));
    taken.flatten().collect()
}
