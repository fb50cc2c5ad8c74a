//! Clocks that disagree.

use super::JobSpec;
use super::random::Random;

/// True time of the first event.
pub const RUN_START_NS: i64 = 3_600_000_000_000;

/// A clock that began `offset_ns` from true time at the start of the run and runs `drift` too fast.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Ahead of true time at the start of the run.
    pub offset_ns: i64,
    /// Seconds gained per second.
    pub drift: f64,
}

impl Clock {
    /// What the clock shows at a true time.
    pub fn local_ns(&self, true_ns: i64) -> i64 {
        true_ns + self.offset_ns + (self.drift * (true_ns - RUN_START_NS) as f64).round() as i64
    }
}

/// The clock of each host.
pub fn clocks(spec: &JobSpec) -> Vec<Clock> {
    (0..=spec.host(spec.world_size() - 1))
        .map(|host| {
            let mut random = Random::new(spec.seed, 1 << 32 | u64::from(host));
            Clock {
                offset_ns: (random.signed() * spec.max_offset_ns) as i64,
                drift: random.signed() * spec.max_drift_ppm * 1e-6,
            }
        })
        .collect()
}
