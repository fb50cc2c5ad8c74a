//! The `commtrace` command.
fn main() {}
