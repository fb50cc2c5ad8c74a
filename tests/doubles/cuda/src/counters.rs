//! How often each function of the driver was called.
//!
//! `double_cuda_counts` gives the counts as JSON at any time; with `DOUBLE_CUDA_COUNTS=FILE` they are
//! appended to FILE, one line a process, when the process ends.

use double_common::lock;
use std::ffi::c_char;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The calls of one function.
pub struct Counter {
    name: &'static str,
    calls: AtomicU64,
}

static CALLED: Mutex<Vec<&'static Counter>> = Mutex::new(Vec::new());

impl Counter {
    pub const fn new(name: &'static str) -> Self {
        Counter { name, calls: AtomicU64::new(0) }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn hit(&'static self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            lock(&CALLED).push(self);
        }
    }
}

/// One JSON object: the process and, by name, every function that was called.
fn json() -> String {
    let mut counts: Vec<_> =
        lock(&CALLED).iter().map(|c| (c.name, c.calls.load(Ordering::Relaxed))).collect();
    counts.sort_unstable();
    let mut text = format!("{{\"pid\":{},\"calls\":{{", std::process::id());
    for (at, (name, calls)) in counts.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(text, "{comma}\"{name}\":{calls}");
    }
    text.push_str("}}");
    text
}

/// Writes the counts where the environment asks, at the end of the process.
pub fn write_at_exit() {
    let Some(path) = std::env::var_os("DOUBLE_CUDA_COUNTS") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all((json() + "\n").as_bytes()));
    if let Err(error) = written {
        eprintln!("stand-in CUDA driver: cannot write the counts to {}: {error}", path.display());
    }
}

/// Writes the counts as JSON into `buffer`, as much as fits, and returns the length of the whole.
#[unsafe(no_mangle)]
extern "C" fn double_cuda_counts(buffer: *mut c_char, size: usize) -> usize {
    let text = std::panic::catch_unwind(json).unwrap_or_default();
    if !buffer.is_null() {
        // SAFETY: the caller gives a buffer of `size` bytes, and no more than that is written.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len().min(size));
        }
    }
    text.len()
}
