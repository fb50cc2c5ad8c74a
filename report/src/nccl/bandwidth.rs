//! Bandwidths as nccl-tests defines them.

/// Algorithm bandwidth in GB/s (10^9 bytes a second): payload over time. `None` without a time.
///
/// `bytes` is the payload as nccl-tests counts it. Source: "Performance reported by NCCL tests"
/// (`doc/PERFORMANCE.md` of nccl-tests).
pub fn algbw_gbs(bytes: u64, time_ms: f64) -> Option<f64> {
    (time_ms > 0.0).then(|| bytes as f64 / time_ms / 1e6)
}

/// What algorithm bandwidth is multiplied by to give bus bandwidth, for `op` over `ranks` ranks: the
/// share of the payload that has to cross each rank's link. `None` for operations that have none.
///
/// Source: "Performance reported by NCCL tests" (`doc/PERFORMANCE.md` of nccl-tests).
///
/// ```
/// use commtrace_report::nccl::busbw_factor;
/// assert_eq!(busbw_factor("all_reduce", 4), Some(1.5));
/// assert_eq!(busbw_factor("all_gather", 4), Some(0.75));
/// assert_eq!(busbw_factor("barrier", 4), None);
/// ```
pub fn busbw_factor(op: &str, ranks: u32) -> Option<f64> {
    if ranks == 0 {
        return None;
    }
    let ranks = f64::from(ranks);
    match op {
        "all_reduce" => Some(2.0 * (ranks - 1.0) / ranks),
        "all_gather" | "reduce_scatter" | "all_to_all" | "all_to_all_v" => Some((ranks - 1.0) / ranks),
        "broadcast" | "reduce" | "send" | "recv" | "send_recv" => Some(1.0),
        _ => None,
    }
}
