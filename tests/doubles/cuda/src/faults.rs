//! Faults that the settings ask for, and when each strikes.

use crate::context;
use crate::context::Context;
use crate::settings::{self, Trigger};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Calls that a broken context does not concern.
const WITHOUT_CONTEXT: [&str; 6] =
    ["cuInit", "cuDriver", "cuDevice", "cuGet", "cuCtxGetCurrent", "cuCtxSetCurrent"];

/// A call begins. If it is the one that the settings name, the current context fails for good.
pub fn on_call(name: &str) {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let Some((error, Trigger::Call(at))) = settings::get().sticky else { return };
    if WITHOUT_CONTEXT.iter().any(|prefix| name.starts_with(prefix)) {
        return;
    }
    if let Some(context) = context::current_or_none()
        && CALLS.fetch_add(1, Ordering::Relaxed) + 1 == at
    {
        context.fail(error);
    }
}

/// A kernel or host function of `context` is about to run: it may fail the context instead.
pub fn on_launch(context: &Context) {
    static LAUNCHES: AtomicU64 = AtomicU64::new(0);
    if let Some((error, Trigger::Launch(at))) = settings::get().sticky
        && LAUNCHES.fetch_add(1, Ordering::Relaxed) + 1 == at
    {
        context.fail(error);
    }
}

/// How much longer a kernel or host function of this device takes.
pub fn delay(device: i32) -> Option<Duration> {
    settings::get().slow.filter(|(slow, _)| *slow == device).map(|(_, delay)| delay)
}

/// Whether the next record of an event that has timing never completes.
pub fn next_record_sticks() -> bool {
    static RECORDS: AtomicU64 = AtomicU64::new(0);
    let ranges = &settings::get().stuck_events;
    if ranges.is_empty() {
        return false;
    }
    let at = RECORDS.fetch_add(1, Ordering::Relaxed) + 1;
    ranges.iter().any(|(from, to)| (*from..*to).contains(&at))
}
