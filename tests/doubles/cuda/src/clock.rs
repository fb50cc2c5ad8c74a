//! The host's clock, and the devices' clocks that run beside it.
//!
//! A device's clock starts elsewhere than the host's and drifts against it, so that whoever ties the
//! two must measure and cannot assume. `DOUBLE_CUDA_DRIFT_PPM` sets the drift in parts per million
//! (default 20); devices drift in opposite directions by turns.

use crate::settings;

/// CLOCK_MONOTONIC in nanoseconds.
pub fn host_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The device's clock, in its nanoseconds, at the host's time `host_ns`.
pub fn device_ns(device: i32, host_ns: i64) -> i64 {
    const ORIGIN_NS: i64 = 77_000_000_000;
    let drift_ppm = if device % 2 == 0 { 1.0 } else { -1.0 } * settings::get().drift_ppm;
    let origin = ORIGIN_NS * (i64::from(device) + 1);
    // The drift's share alone goes through floating point: of it 53 bits are plenty.
    origin + host_ns + (host_ns as f64 * drift_ppm * 1e-6) as i64
}
