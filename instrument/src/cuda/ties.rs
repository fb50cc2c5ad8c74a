//! Device time to host time.
//!
//! The driver tells only the time between two events, as `f32` milliseconds: 4 s after an event that is
//! exact to 0.25 µs, an hour after it to 0.25 ms. So an event of ours is recorded every few seconds, and
//! the instant at which it happened is looked up on the host clock: it lies between the last query that
//! found it pending and the first that found it done. A span counts from the nearest such event (a
//! base). The clocks' rates differ by some millionths; between two bases that is interpolated, after the
//! last one the rate of the seconds before goes on.

use std::collections::VecDeque;

/// Bases kept. Work that is older than all of them counts from the oldest.
const MAX_BASES: usize = 64;

/// Between bases that are further apart than this, `f32` says too little about the clocks' rate.
const MAX_RATE_MS: f64 = 8_000.0;

/// Least time over which a rate is worth anything: an instant is known to a few microseconds.
const MIN_RATE_MS: f64 = 400.0;

/// Clocks that differ by more than this are not clocks; the estimate is wrong.
const MAX_DRIFT: f64 = 500e-6;

/// Bases that the rate is taken over, at most.
const RATE_BASES: usize = 8;

const NS_PER_MS: f64 = 1e6;

/// When an event happened, as far as the host saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// It had not happened yet, nanoseconds of CLOCK_MONOTONIC.
    pub after_ns: i64,
    /// It had happened.
    pub before_ns: i64,
}

impl Seen {
    fn middle(self) -> i64 {
        self.after_ns + (self.before_ns - self.after_ns) / 2
    }

    /// Length of the bracket.
    pub fn width_ns(self) -> i64 {
        self.before_ns - self.after_ns
    }
}

/// What a new base told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tied {
    /// The instant that it stands for.
    pub host_ns: i64,
    /// How far the middle of the bracket lay from what the bases before let expect; `None` for the
    /// first.
    pub residual_ns: Option<i64>,
}

/// A base with its event of type `E`.
#[derive(Debug)]
struct Base<E> {
    event: E,
    host_ns: i64,
    /// Device time since the base before, if it can be used for a rate.
    since_previous_ms: Option<f64>,
}

/// The bases of one context.
#[derive(Debug)]
pub(crate) struct Ties<E> {
    bases: VecDeque<Base<E>>,
}

impl<E: Copy> Ties<E> {
    pub fn new() -> Self {
        Self { bases: VecDeque::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.bases.is_empty()
    }

    /// The event of the last base.
    pub fn last(&self) -> Option<E> {
        self.bases.back().map(|base| base.event)
    }

    /// The events of all bases.
    pub fn events(&self) -> impl Iterator<Item = E> + '_ {
        self.bases.iter().map(|base| base.event)
    }

    /// Adds a base, `since_last_ms` of device time after the last one. Returns what it told, and the
    /// event of a base that is forgotten.
    ///
    /// Where the bracket is wide because the host was late to look, the place within it that agrees
    /// best with the bases before is taken.
    pub fn push(&mut self, event: E, seen: Seen, since_last_ms: Option<f32>) -> (Tied, Option<E>) {
        let since_ms = since_last_ms.map(f64::from);
        let expected = match (self.bases.back(), since_ms) {
            (Some(last), Some(since)) => Some(last.host_ns + to_ns(since * self.rate_after_last())),
            _ => None,
        };
        let host_ns = expected.map_or(seen.middle(), |expected| {
            expected.clamp(seen.after_ns, seen.before_ns.max(seen.after_ns))
        });
        let residual_ns = expected.map(|expected| seen.middle() - expected);
        let usable = |since: &f64| (0.0..=MAX_RATE_MS).contains(since);
        self.bases.push_back(Base { event, host_ns, since_previous_ms: since_ms.filter(usable) });
        let forgotten = if self.bases.len() > MAX_BASES { self.bases.pop_front() } else { None };
        (Tied { host_ns, residual_ns }, forgotten.map(|base| base.event))
    }

    /// Host time of an event. `elapsed_ms` tells the time from a base's event to it, negative if it came
    /// before. `None` without a base.
    ///
    /// # Errors
    ///
    /// What `elapsed_ms` returned.
    pub fn host_ns<R>(&self, mut elapsed_ms: impl FnMut(E) -> Result<f32, R>) -> Result<Option<i64>, R> {
        let mut nearest = None;
        for (index, base) in self.bases.iter().enumerate().rev() {
            let since = f64::from(elapsed_ms(base.event)?);
            nearest = Some((index, since));
            if since >= 0.0 {
                break;
            }
        }
        let Some((index, since)) = nearest else { return Ok(None) };
        Ok(Some(self.bases[index].host_ns.saturating_add(to_ns(since * self.rate_after(index)))))
    }

    /// Host nanoseconds per device nanosecond now.
    pub fn rate_after_last(&self) -> f64 {
        let (mut device_ms, mut used) = (0.0, 0);
        for base in self.bases.iter().rev().take(RATE_BASES) {
            let Some(since) = base.since_previous_ms else { break };
            device_ms += since;
            used += 1;
        }
        match (self.bases.len().checked_sub(used + 1), self.bases.back()) {
            (Some(first), Some(last)) if used > 0 => {
                rate(last.host_ns - self.bases[first].host_ns, device_ms).unwrap_or(1.0)
            }
            _ => 1.0,
        }
    }

    fn rate_after(&self, index: usize) -> f64 {
        let Some(next) = self.bases.get(index + 1) else { return self.rate_after_last() };
        next.since_previous_ms
            .and_then(|device_ms| rate(next.host_ns - self.bases[index].host_ns, device_ms))
            .unwrap_or(1.0)
    }
}

fn rate(host_ns: i64, device_ms: f64) -> Option<f64> {
    if device_ms < MIN_RATE_MS {
        return None;
    }
    Some((host_ns as f64 / (device_ms * NS_PER_MS)).clamp(1.0 - MAX_DRIFT, 1.0 + MAX_DRIFT))
}

/// Milliseconds as whole nanoseconds.
pub(crate) fn to_ns(milliseconds: f64) -> i64 {
    (milliseconds * NS_PER_MS).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device whose clock runs `drift` faster than the host's; events are device nanoseconds.
    struct Device {
        drift: f64,
    }

    impl Device {
        fn at(&self, host_ns: i64) -> i64 {
            (host_ns as f64 * (1.0 + self.drift)) as i64
        }

        fn elapsed_ms(from: i64, to: i64) -> f32 {
            ((to - from) as f64 / 1e6) as f32
        }
    }

    fn tie(ties: &mut Ties<i64>, device: &Device, host_ns: i64, early: i64, late: i64) -> Tied {
        let event = device.at(host_ns);
        let since = ties.last().map(|last| Device::elapsed_ms(last, event));
        ties.push(event, Seen { after_ns: host_ns - early, before_ns: host_ns + late }, since).0
    }

    fn host(ties: &Ties<i64>, event: i64) -> i64 {
        let result: Result<_, ()> = ties.host_ns(|base| Ok(Device::elapsed_ms(base, event)));
        result.unwrap().unwrap()
    }

    #[test]
    fn an_hour_of_drifting_clocks_stays_within_a_few_microseconds() {
        let device = Device { drift: 40e-6 };
        let mut ties = Ties::new();
        let mut worst = 0;
        for base in 0..1_800_i64 {
            let at = base * 2_000_000_000;
            tie(&mut ties, &device, at, 3_000, 3_000);
            if base < 2 {
                continue;
            }
            // Before and after the base, to as far as the next.
            for offset in [-1_900_000_000, -1_000, 0, 1_000_000, 1_900_000_000] {
                worst = worst.max((host(&ties, device.at(at + offset)) - (at + offset)).abs());
            }
        }
        assert!(worst < 5_000, "{worst} ns");
    }

    #[test]
    fn a_host_that_looked_late_is_corrected_by_the_bases_before() {
        let device = Device { drift: -20e-6 };
        let mut ties = Ties::new();
        for base in 0..4 {
            tie(&mut ties, &device, base * 1_000_000_000, 2_000, 2_000);
        }
        // 20 ms until the host looked: the middle would be 10 ms off.
        let tied = tie(&mut ties, &device, 4_000_000_000, 0, 20_000_000);
        assert!((tied.host_ns - 4_000_000_000).abs() < 10_000, "{tied:?}");
        let residual = tied.residual_ns.unwrap();
        assert!((9_900_000..10_100_000).contains(&residual), "{residual}");
    }

    #[test]
    fn a_base_is_never_put_outside_of_what_the_host_saw() {
        let mut ties = Ties::new();
        ties.push(0, Seen { after_ns: 0, before_ns: 0 }, None);
        // Five milliseconds of device time, of which the host knows better.
        let (tied, _) = ties.push(1, Seen { after_ns: 7_000_000, before_ns: 7_010_000 }, Some(5.0));
        assert_eq!(tied.host_ns, 7_000_000);
    }

    #[test]
    fn what_happened_before_the_first_base_has_a_time_too() {
        let device = Device { drift: 0.0 };
        let mut ties = Ties::new();
        tie(&mut ties, &device, 5_000_000, 0, 0);
        assert_eq!(host(&ties, device.at(4_000_000)), 4_000_000);
        let none: Result<_, ()> = Ties::<i64>::new().host_ns(|_| Ok(0.0));
        assert_eq!(none, Ok(None));
    }

    #[test]
    fn old_bases_are_forgotten_and_handed_back() {
        let mut ties = Ties::new();
        let mut returned = Vec::new();
        for base in 0..MAX_BASES as i64 + 10 {
            let at = base * 1_000_000_000;
            let seen = Seen { after_ns: at, before_ns: at };
            returned.extend(ties.push(base, seen, (base > 0).then_some(1_000.0)).1);
        }
        assert_eq!(returned, (0..10).collect::<Vec<_>>());
        assert_eq!(ties.events().count(), MAX_BASES);
    }

    #[test]
    fn within_four_seconds_single_precision_costs_a_quarter_of_a_microsecond() {
        for start_ns in (0..4_000_000_000_i64).step_by(7_654_321) {
            let ms = Device::elapsed_ms(0, start_ns);
            assert!((to_ns(ms.into()) - start_ns).abs() <= 250, "{start_ns}");
        }
    }
}
