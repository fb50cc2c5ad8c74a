//! Which host this is and since when it runs.

use std::fs;

/// The host's name, `unknown` if the system does not tell.
pub(crate) fn name() -> String {
    read("/proc/sys/kernel/hostname")
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "unknown".to_owned())
}

/// The id of the host's current boot: equal for all processes whose CLOCK_MONOTONIC is the same clock.
/// Containers on one host share it. Where the system has none, the host's name stands in.
pub(crate) fn boot_id() -> String {
    read("/proc/sys/kernel/random/boot_id").unwrap_or_else(name)
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
