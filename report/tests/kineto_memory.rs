//! Memory follows what is kept of a trace, not the file. Alone in its process, since it counts every
//! allocation there.

use commtrace_report::read::{ReadOptions, read};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const EVENTS: usize = 60_000;
const KERNELS: usize = 1_000;

/// A trace of mostly Python functions and operators under a few kernels: about 25 MB.
fn write(path: &std::path::Path) -> usize {
    let mut out = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    let mut length = 0;
    let mut put = |text: &str| {
        length += text.len();
        out.write_all(text.as_bytes()).unwrap();
    };
    put(r#"{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": ["#);
    for index in 0..EVENTS {
        let comma = if index > 0 { "," } else { "" };
        if index % (EVENTS / KERNELS) == 0 {
            put(&format!(
                r#"{comma}{{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{index},"dur":1,"args":{{"device":0,"stream":7,"correlation":{index}}}}}"#
            ));
        } else {
            put(&format!(
                r#"{comma}{{"ph":"X","cat":"python_function","name":"{}(forward): torch/nn/modules/module.py","pid":5,"tid":5,"ts":{index},"dur":1,"args":{{"Python id":{index},"Python parent id":1,"Ev Idx":{index},"padding":"{}"}}}}"#,
                index,
                "x".repeat(250)
            ));
        }
    }
    put("]}");
    out.finish().unwrap();
    length
}

#[test]
fn what_is_not_kept_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank0.json.gz");
    let length = write(&path);
    assert!(length > 20 << 20, "{length}");
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let timeline = read(&[path], &ReadOptions::default()).unwrap();
    let used = PEAK.load(Ordering::Relaxed) - before;
    assert_eq!(timeline.tracks[0].compute.len(), KERNELS);
    // Buffers for the file, for the decompressor and for the content are most of it.
    assert!(used < 2 << 20, "{used} bytes for {length} of content");
}
