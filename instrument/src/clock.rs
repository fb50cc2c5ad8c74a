//! The host clock: cheap ticks on the hot path, nanoseconds of CLOCK_MONOTONIC later.
//!
//! Where the kernel itself runs on the time stamp counter (`clocksource` is `tsc`, so the counter is
//! invariant and equal on all cores), a tick is one `rdtsc`; elsewhere it is a nanosecond of
//! CLOCK_MONOTONIC. The writer thread takes an [`Anchor`] (the same instant on both clocks) at every
//! flush and [`Calibration`] interpolates between neighbours, so that the error stays that of one
//! anchor (tens of nanoseconds) however long the run is and however the kernel slews its clock.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const UNKNOWN: u8 = 0;
const TSC: u8 = 1;
const MONOTONIC: u8 = 2;

static SOURCE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The current instant in ticks of the chosen source. Never 0 or 1, which mean "none" and "now being
/// taken" in the tables of open spans.
#[inline]
pub(crate) fn ticks() -> u64 {
    let ticks = match SOURCE.load(Ordering::Relaxed) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has the instruction; it only reads a counter.
        TSC => unsafe { core::arch::x86_64::_rdtsc() },
        UNKNOWN => choose_source(),
        _ => monotonic_ns() as u64,
    };
    ticks.max(2)
}

/// What the ticks are: `tsc` or `monotonic`.
pub(crate) fn source_name() -> &'static str {
    ticks();
    if SOURCE.load(Ordering::Relaxed) == TSC { "tsc" } else { "monotonic" }
}

#[cold]
fn choose_source() -> u64 {
    let tsc = cfg!(target_arch = "x86_64")
        && std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .is_ok_and(|name| name.trim() == "tsc");
    SOURCE.store(if tsc { TSC } else { MONOTONIC }, Ordering::Relaxed);
    ticks()
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[cfg(unix)]
pub(crate) fn monotonic_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; the call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    // The fields are narrower than 64 bits on some targets.
    #[allow(clippy::unnecessary_cast)]
    let (seconds, nanoseconds) = (time.tv_sec as i64, time.tv_nsec as i64);
    seconds * 1_000_000_000 + nanoseconds
}

/// Nanoseconds since the first call, where the system has no CLOCK_MONOTONIC.
#[cfg(not(unix))]
pub(crate) fn monotonic_ns() -> i64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as i64 + 2
}

/// Nanoseconds since the Unix epoch.
pub(crate) fn unix_ns() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub ticks: u64,
    pub mono_ns: i64,
}

impl Anchor {
    /// Reads both clocks, several times, and keeps the reading that took the fewest ticks.
    pub fn now() -> Self {
        let mut best: Option<(u64, Self)> = None;
        for _ in 0..5 {
            let before = ticks();
            let mono_ns = monotonic_ns();
            let took = ticks().saturating_sub(before);
            if best.is_none_or(|(shortest, _)| took < shortest) {
                best = Some((took, Self { ticks: before + took / 2, mono_ns }));
            }
        }
        best.map_or(Self { ticks: 0, mono_ns: 0 }, |(_, anchor)| anchor)
    }
}

/// Converts ticks to CLOCK_MONOTONIC by interpolation between anchors.
#[derive(Debug)]
pub(crate) struct Calibration {
    anchors: Vec<Anchor>,
}

/// Anchors kept; beyond that every second of the older half is forgotten.
const MAX_ANCHORS: usize = 4096;

impl Calibration {
    pub fn new(first: Anchor) -> Self {
        Self { anchors: vec![first] }
    }

    /// Whether the clocks' rate is still unknown.
    pub fn is_single(&self) -> bool {
        self.anchors.len() < 2
    }

    /// Adds an anchor later than all before; one that is not is ignored.
    pub fn push(&mut self, anchor: Anchor) {
        let later = self
            .anchors
            .last()
            .is_none_or(|last| anchor.ticks > last.ticks && anchor.mono_ns >= last.mono_ns);
        if !later {
            return;
        }
        if self.anchors.len() >= MAX_ANCHORS {
            let half = MAX_ANCHORS / 2;
            let mut index = 0;
            self.anchors.retain(|_| {
                index += 1;
                index > half || index % 2 == 1
            });
        }
        self.anchors.push(anchor);
    }

    /// CLOCK_MONOTONIC at `ticks`, in nanoseconds. Outside the anchors the nearest pair is extended.
    pub fn to_ns(&self, ticks: u64) -> i64 {
        let (from, to) = match self.anchors.as_slice() {
            [] => return 0,
            // One anchor says nothing of the rate; ticks of the monotonic source are nanoseconds.
            [only] => return only.mono_ns.saturating_add_unsigned(ticks).saturating_sub_unsigned(only.ticks),
            [.., before, last] if ticks >= before.ticks => (*before, *last),
            anchors => {
                let after = anchors.partition_point(|anchor| anchor.ticks <= ticks).max(1);
                (anchors[after - 1], anchors[after])
            }
        };
        let rate = (to.mono_ns - from.mono_ns) as f64 / (to.ticks - from.ticks) as f64;
        let offset = (i128::from(ticks) - i128::from(from.ticks)) as f64 * rate;
        from.mono_ns.saturating_add(offset.round() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_between_neighbours_and_extends_at_both_ends() {
        let mut calibration = Calibration::new(Anchor { ticks: 1_000, mono_ns: 0 });
        calibration.push(Anchor { ticks: 3_000, mono_ns: 1_000 });
        // The kernel slews its clock: the second second has fewer nanoseconds per tick.
        calibration.push(Anchor { ticks: 5_000, mono_ns: 1_900 });
        assert_eq!(calibration.to_ns(2_000), 500);
        assert_eq!(calibration.to_ns(4_000), 1_450);
        assert_eq!(calibration.to_ns(0), -500);
        assert_eq!(calibration.to_ns(7_000), 2_800);
        assert_eq!(calibration.to_ns(3_000), 1_000);
    }

    #[test]
    fn an_anchor_that_goes_back_is_ignored() {
        let mut calibration = Calibration::new(Anchor { ticks: 10, mono_ns: 10 });
        calibration.push(Anchor { ticks: 20, mono_ns: 20 });
        calibration.push(Anchor { ticks: 20, mono_ns: 30 });
        calibration.push(Anchor { ticks: 30, mono_ns: 5 });
        assert_eq!(calibration.to_ns(30), 30);
    }

    #[test]
    fn forgetting_old_anchors_keeps_the_conversion_monotone_and_bounded() {
        let mut calibration = Calibration::new(Anchor { ticks: 2, mono_ns: 0 });
        for second in 1..20_000_u64 {
            calibration.push(Anchor { ticks: 2 + second * 3_000, mono_ns: (second * 1_000) as i64 });
        }
        assert!(calibration.anchors.len() <= MAX_ANCHORS);
        let mut last = i64::MIN;
        for step in 0..10_000_u64 {
            let ns = calibration.to_ns(2 + step * 5_999);
            assert!(ns >= last);
            last = ns;
        }
    }

    #[test]
    fn ticks_convert_to_the_monotonic_clock() {
        let mut calibration = Calibration::new(Anchor::now());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (before, ticks, after) = (monotonic_ns(), ticks(), monotonic_ns());
        calibration.push(Anchor::now());
        let ns = calibration.to_ns(ticks);
        // 50 us: a thread may be preempted inside an anchor.
        assert!(ns >= before - 50_000 && ns <= after + 50_000, "{before} {ns} {after}");
    }
}
