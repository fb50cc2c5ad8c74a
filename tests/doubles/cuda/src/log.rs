//! The log of when each piece of work ran, for tests to compare measured times with.
//!
//! `DOUBLE_CUDA_LOG=FILE` appends one JSON object a line to FILE: process, device, stream (the handle
//! that the application holds), kind, name, and start and end in nanoseconds of CLOCK_MONOTONIC. A
//! piece starts when its stream has come to it: when the work before it has ended and it had been
//! submitted. Records of events and waits are logged only with `DOUBLE_CUDA_LOG_EVENTS=1`.

use crate::stream::Stream;
use double_common::lock;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, OnceLock};

struct Log {
    file: File,
    text: String,
}

const FLUSH_BYTES: usize = 1 << 16;

fn log() -> Option<&'static Mutex<Log>> {
    static LOG: OnceLock<Option<Mutex<Log>>> = OnceLock::new();
    LOG.get_or_init(|| {
        let path = std::env::var_os("DOUBLE_CUDA_LOG")?;
        match File::options().create(true).append(true).open(&path) {
            Ok(file) => Some(Mutex::new(Log { file, text: String::new() })),
            Err(error) => {
                eprintln!("stand-in CUDA driver: cannot open the log {}: {error}", path.display());
                None
            }
        }
    })
    .as_ref()
}

/// Whether records and waits of events are logged.
pub fn events() -> bool {
    static EVENTS: OnceLock<bool> = OnceLock::new();
    *EVENTS.get_or_init(|| log().is_some() && std::env::var_os("DOUBLE_CUDA_LOG_EVENTS").is_some())
}

/// A piece of work ran. `name` holds nothing that JSON would have to escape.
pub fn piece(stream: &Stream, kind: &str, name: &str, start_ns: i64, end_ns: i64) {
    let Some(log) = log() else { return };
    let mut log = lock(log);
    let _ = writeln!(
        log.text,
        "{{\"pid\":{},\"device\":{},\"stream\":{},\"kind\":\"{kind}\",\"name\":\"{name}\",\"start_ns\":{start_ns},\"end_ns\":{end_ns}}}",
        std::process::id(),
        stream.context.device,
        stream.handle,
    );
    if log.text.len() >= FLUSH_BYTES {
        log.write_out();
    }
}

/// Writes what is buffered: a stream has nothing left to do, or the process ends.
pub fn flush() {
    if let Some(log) = log() {
        lock(log).write_out();
    }
}

impl Log {
    /// Whole lines in one write each time, so that processes can share a file.
    fn write_out(&mut self) {
        if !self.text.is_empty() {
            if let Err(error) = self.file.write_all(self.text.as_bytes()) {
                eprintln!("stand-in CUDA driver: cannot write the log: {error}");
            }
            self.text.clear();
        }
    }
}
