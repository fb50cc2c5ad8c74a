//! The latency–bandwidth cost model.

/// Why a cost cannot be estimated.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum CostModelError {
    /// The startup latency is negative, NaN or infinite.
    #[error("startup latency is {0} s: give a finite number of seconds, 0 or more")]
    Latency(f64),
    /// The bandwidth is zero, negative, NaN or infinite.
    #[error("bandwidth is {0} bytes/s: give a finite number of bytes per second above 0")]
    Bandwidth(f64),
    /// The estimate exceeds what a number can hold.
    #[error("the estimate is not a finite number of seconds: bandwidth {0} bytes/s is too small")]
    Overflow(f64),
}

/// Seconds that `sync_count` collectives of `payload_bytes` each take:
/// `sync_count * (startup_latency_s + payload_bytes / bandwidth_bytes_per_s)`.
///
/// The bandwidth is the effective one, contention and topology included. Formula and limits are those
/// of `estimate_collective_time` in "Communication Profiling with NCCL".
///
/// # Errors
///
/// A latency or bandwidth that is not finite, a negative latency, and a bandwidth of 0 or less.
///
/// ```
/// use commtrace_report::analyze::estimate_collective_time;
///
/// let seconds = estimate_collective_time(100, 0.1, 1000.0, 3)?;
/// assert!((seconds - 0.6).abs() < 1e-12);
/// # Ok::<(), commtrace_report::analyze::CostModelError>(())
/// ```
pub fn estimate_collective_time(
    payload_bytes: u64,
    startup_latency_s: f64,
    bandwidth_bytes_per_s: f64,
    sync_count: u64,
) -> Result<f64, CostModelError> {
    if !startup_latency_s.is_finite() || startup_latency_s < 0.0 {
        return Err(CostModelError::Latency(startup_latency_s));
    }
    if !bandwidth_bytes_per_s.is_finite() || bandwidth_bytes_per_s <= 0.0 {
        return Err(CostModelError::Bandwidth(bandwidth_bytes_per_s));
    }
    if sync_count == 0 {
        return Ok(0.0);
    }
    let single = startup_latency_s + payload_bytes as f64 / bandwidth_bytes_per_s;
    let total = sync_count as f64 * single;
    if total.is_finite() { Ok(total) } else { Err(CostModelError::Overflow(bandwidth_bytes_per_s)) }
}
