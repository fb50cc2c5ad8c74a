//! Whether a process that recorded on this host still runs.

use commtrace_report::timeline::Process;
use std::fs;

/// Ticks per second of the times in `/proc/PID/stat`: the kernel's USER_HZ, 100 on every Linux platform
/// that Rust's standard library supports.
const TICKS_PER_S: i64 = 100;

/// A process that was started this much later than the record began is another one with the same id.
const LATER_NS: i64 = 2_000_000_000;

/// The id of this host's boot; `None` where the system does not tell.
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Whether `process` runs; `None` if it is of another host or boot, or cannot be told.
pub fn runs(process: &Process, boot_id: Option<&str>) -> Option<bool> {
    if boot_id.is_none_or(|boot_id| boot_id != process.boot_id) {
        return None;
    }
    // Containers of one host share its boot id and not its process ids.
    let same_namespace =
        fs::read_to_string("/proc/sys/kernel/hostname").is_ok_and(|name| name.trim() == process.host);
    if !same_namespace {
        return None;
    }
    let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", process.pid)) else { return Some(false) };
    let (state, started_ns) = parse(&stat)?;
    // A zombie has ended; nobody has asked how yet.
    Some(!matches!(state, 'Z' | 'X') && started_ns <= process.start_ns.saturating_add(LATER_NS))
}

/// The state and the start, in nanoseconds since boot, in a line of `/proc/PID/stat`.
fn parse(stat: &str) -> Option<(char, i64)> {
    // The name in parentheses may hold anything, parentheses included.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let ticks: i64 = fields.nth(18)?.parse().ok()?;
    Some((state, ticks.checked_mul(1_000_000_000 / TICKS_PER_S)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_one_of_another_boot_is_not_known() {
        let Some(boot_id) = boot_id() else { return };
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let (_, started_ns) = parse(&stat).unwrap();
        let mut process = Process {
            host,
            boot_id: boot_id.clone(),
            pid: std::process::id(),
            start_unix_ns: 0,
            start_ns: started_ns,
        };
        assert_eq!(runs(&process, Some(&boot_id)), Some(true));
        assert_eq!(runs(&process, Some("another boot")), None);
        // The id was given to a process that began later than the record.
        process.start_ns = started_ns - 2 * LATER_NS;
        assert_eq!(runs(&process, Some(&boot_id)), Some(false));
        process.host = "container7".to_owned();
        assert_eq!(runs(&process, Some(&boot_id)), None);
    }

    #[test]
    fn a_name_with_parentheses_is_passed_over() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(parse(stat), Some(('S', 42_420_000_000)));
        assert_eq!(parse("7 (a"), None);
    }
}
