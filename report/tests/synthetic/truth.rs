//! What the simulation knows and the analysis has to find.

use super::JobSpec;
use super::clocks::Clock;
use std::collections::BTreeMap;

/// The truth of a job.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Per rank: its clock minus that of rank 0 at the start of the run.
    pub offset_ns: Vec<i64>,
    /// Per rank: by how much its clock runs faster than that of rank 0.
    pub drift_ppm: Vec<f64>,
    /// Per op that synchronizes its ranks: what the analysis gives, without its errors.
    pub ops: BTreeMap<&'static str, OpTruth>,
    /// Per rank: the wait of others in collectives where it was the last to arrive.
    pub caused_wait_ns: Vec<f64>,
    /// Events of all ranks, those of ranks without a record included.
    pub events: u64,
    /// Ranks that hang at the end.
    pub hanging: Vec<u32>,
}

/// Sums over an op's completed collectives of the mean over ranks.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpTruth {
    /// Completed collectives.
    pub matched: u64,
    /// From a rank's start to the last arrival.
    pub wait_ns: f64,
    /// From then on.
    pub transfer_ns: f64,
}

impl Truth {
    pub(super) fn new(spec: &JobSpec, clocks: &[Clock]) -> Self {
        let first = clocks[0];
        let of_rank = |rank| clocks[spec.host(rank) as usize];
        let ranks = 0..spec.world_size();
        Self {
            offset_ns: ranks.clone().map(|rank| of_rank(rank).offset_ns - first.offset_ns).collect(),
            drift_ppm: ranks
                .clone()
                .map(|rank| ((1.0 + of_rank(rank).drift) / (1.0 + first.drift) - 1.0) * 1e6)
                .collect(),
            caused_wait_ns: vec![0.0; ranks.len()],
            ..Self::default()
        }
    }

    /// Adds a completed collective: `(rank, start, end)` of each member in true time.
    pub(super) fn add(&mut self, op: &'static str, members: &[(u32, i64, i64)]) {
        let Some(&(culprit, last, _)) = members.iter().max_by_key(|member| member.1) else { return };
        let (mut wait, mut transfer) = (0, 0);
        for &(_, start, end) in members {
            wait += end.min(last) - start;
            transfer += end - end.min(last);
        }
        let sums = self.ops.entry(op).or_default();
        sums.matched += 1;
        sums.wait_ns += wait as f64 / members.len() as f64;
        sums.transfer_ns += transfer as f64 / members.len() as f64;
        self.caused_wait_ns[culprit as usize] += wait as f64;
    }
}
