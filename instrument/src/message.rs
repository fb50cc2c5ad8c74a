//! What the library says on stderr.

use std::fmt;
use std::io::{self, Write};

/// Writes one message of ours. Stderr may be closed or full; a message is never worth a panic.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "commtrace: {text}");
}

/// Writes a report as it is.
pub(crate) fn print(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
