//! The limits that the advice is decided by.

/// Limits of the advice. The defaults are the chapter's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Above this share of a collective's time lost to the same ranks being late, ranks are
    /// rebalanced first. Default 0.20.
    pub imbalance: f64,
    /// Below this overlap ratio, an op with exposed time is to be overlapped or delayed. Default 0.30.
    pub overlap: f64,
    /// Up to this exposed time (milliseconds) of the worst op, the run is accepted. Default 5.0.
    pub accept_exposed_ms: f64,
    /// From this many steps on, imbalance is judged by its lower 95 % bound instead of the ratio
    /// itself: a handful of late arrivals is what scheduling noise alone makes. Default 5.
    pub min_steps_for_bound: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { imbalance: 0.20, overlap: 0.30, accept_exposed_ms: 5.0, min_steps_for_bound: 5 }
    }
}
