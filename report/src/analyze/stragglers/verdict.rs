//! From sums to stragglers.

use super::blocks::{Blocks, cell};
use super::judge::{BATCHES, Claim, LEAST_STEPS, judge, median};
use super::ledger::{Axis, Ledger, Sums};
use super::{Pattern, RankWaits, SpanTimes, Straggler};
use crate::timeline::Names;
use std::collections::BTreeSet;

/// Late steps that are listed.
const LISTED: usize = 32;
/// Without steps, a run is judged in this many stretches of time.
const STRETCHES: u32 = 20;
/// Ranks that a straggler's spans are compared with, at most.
const MOST_OTHERS: usize = 64;

/// What the sums tell, before spans are looked at.
#[derive(Debug, Default)]
pub(crate) struct Found {
    ranks: Vec<RankWaits>,
    stragglers: Vec<Late>,
    by_step: bool,
}

#[derive(Debug)]
struct Late {
    straggler: Straggler,
    /// Other ranks of the communicator in which it is late most.
    others: Vec<u32>,
    late_ns: f64,
    /// Steps that its figures per step are over.
    counted_steps: f64,
}

impl Found {
    /// The ranks whose spans are to be looked at: stragglers, and those they are compared with.
    pub(crate) fn ranks_to_explain(&self) -> BTreeSet<u32> {
        let ranks = |late: &Late| [late.straggler.rank].into_iter().chain(late.others.clone());
        self.stragglers.iter().flat_map(ranks).collect()
    }

    /// The stragglers, worst first, and the sums of every rank, by ascending rank. `spans` tells what they were
    /// late with; its names are those of `names`.
    pub(crate) fn explain(self, spans: SpanTimes, names: &Names) -> (Vec<Straggler>, Vec<RankWaits>) {
        let spans = if self.by_step { spans } else { spans.stretched(STRETCHES) };
        let mut stragglers: Vec<Straggler> =
            self.stragglers.into_iter().map(|late| late.explain(&spans, names)).collect();
        stragglers.sort_by(|a, b| b.caused_wait_ms.total_cmp(&a.caused_wait_ms).then(a.rank.cmp(&b.rank)));
        (stragglers, self.ranks)
    }
}

impl Late {
    fn explain(self, spans: &SpanTimes, names: &Names) -> Straggler {
        let mut straggler = self.straggler;
        if let Some(span) = spans.explain(straggler.rank, &self.others, self.late_ns) {
            let excess_ms = span.excess_ns / self.counted_steps / 1e6;
            straggler.span = Some(names.get(span.name).to_owned());
            straggler.span_label = span.label.map(|label| names.get(label).to_owned());
            straggler.span_excess_ms = Some(excess_ms);
            straggler.outside_span_ms = (straggler.late_ms - excess_ms).max(0.0);
        }
        straggler
    }
}

impl Ledger {
    /// Whether collectives belong to steps; if any does, those that do not are left out of the judgement.
    pub(crate) fn knows_steps(&self) -> bool {
        !self.by_step.late.is_empty()
    }

    /// Who is a straggler.
    pub(crate) fn judge(mut self) -> Found {
        let by_step = self.knows_steps();
        let mut axis = std::mem::take(if by_step { &mut self.by_step } else { &mut self.by_time });
        if let Some(number) = axis.first_unjudged.filter(|_| by_step) {
            axis.late.leave_out_first(number);
        }
        if !by_step {
            axis.late = axis.late.stretched(STRETCHES);
            axis.busy = axis.busy.stretched(STRETCHES);
        }
        let lateness = self.lateness(&axis.late);
        let scores = scores(&axis.busy, self.ranks.len());
        let stragglers = judge(&lateness, axis.elapsed_ns())
            .into_iter()
            .filter_map(|claim| {
                self.late(&claim, lateness.get(claim.rank)?, &axis, by_step, scores.get(claim.rank)?)
            })
            .collect();
        let ranks = self.ranks.iter().zip(&scores).map(|((&rank, sums), score)| score.of(rank, sums));
        let mut ranks: Vec<RankWaits> = ranks.collect();
        ranks.sort_by_key(|rank| rank.rank);
        Found { ranks, stragglers, by_step }
    }

    /// Lateness per rank and block: in the communicator that felt it most, since the same lateness shows in each
    /// communicator of the rank.
    fn lateness(&self, late: &Blocks) -> Vec<Vec<f64>> {
        let mut lateness = vec![vec![0.0; late.len()]; self.ranks.len()];
        for (block, (_, row)) in late.rows().enumerate() {
            for (&value, &(_, rank)) in row.iter().zip(&self.columns) {
                if let Some(most) = lateness.get_mut(rank).and_then(|blocks| blocks.get_mut(block)) {
                    *most = value.max(*most);
                }
            }
        }
        lateness
    }

    fn late(
        &self,
        claim: &Claim,
        lateness: &[f64],
        axis: &Axis,
        by_step: bool,
        scores: &Scores,
    ) -> Option<Late> {
        let (&rank, sums) = self.ranks.get_index(claim.rank)?;
        let whole_ns: f64 = lateness.iter().sum();
        // Per late step where there are others, else per step.
        let (sum_ns, blocks) = match claim.pattern {
            Pattern::SomeSteps => {
                (claim.late.iter().filter_map(|&place| lateness.get(place)).sum(), claim.late.len())
            }
            Pattern::Throughout | Pattern::Drifting => (whole_ns, lateness.len()),
        };
        // A block is one step, unless there are very many.
        let stride = if by_step { axis.late.stride() } else { 1 };
        let counted_steps = blocks.max(1) as f64 * stride as f64;
        let listed = by_step && stride == 1 && claim.pattern == Pattern::SomeSteps;
        let late_step_numbers = axis
            .late
            .rows()
            .enumerate()
            .filter(|(place, _)| listed && claim.late.binary_search(place).is_ok())
            .map(|(_, (step, _))| step)
            .take(LISTED)
            .collect();
        let late_ms = sum_ns / counted_steps / 1e6;
        let straggler = Straggler {
            rank,
            arrived_last: sums.arrived_last,
            collectives: sums.collectives,
            caused_wait_ms: sums.caused_ns / 1e6,
            suffered_wait_ms: sums.suffered_ns / 1e6,
            span: None,
            span_label: None,
            span_excess_ms: None,
            late_ms,
            outside_span_ms: late_ms,
            lost_share: whole_ns / axis.elapsed_ns(),
            pattern: claim.pattern,
            by_step,
            steps: lateness.len() as u64,
            late_steps: claim.late.len() as u64,
            late_step_numbers,
            excess_to_noise: claim.excess_to_noise,
            relative_score: scores.relative,
            individual_score: scores.individual,
        };
        Some(Late {
            straggler,
            others: self.others(claim.rank, &axis.late),
            late_ns: whole_ns,
            counted_steps,
        })
    }

    /// The other ranks of the communicator in which a rank is late most.
    fn others(&self, rank: usize, late: &Blocks) -> Vec<u32> {
        let of_rank = self.columns.iter().enumerate().filter(|(_, (_, other))| *other == rank);
        let sums = of_rank
            .map(|(column, &(comm, _))| (comm, late.rows().map(|(_, row)| cell(row, column)).sum::<f64>()));
        let Some((comm, _)) = sums.max_by(|a, b| a.1.total_cmp(&b.1)) else { return Vec::new() };
        let others = self.columns.iter().filter(|&&(of, other)| of == comm && other != rank);
        let others: Vec<u32> =
            others.filter_map(|&(_, other)| self.ranks.get_index(other).map(|(&rank, _)| rank)).collect();
        let apart = others.len().div_ceil(MOST_OTHERS).max(1);
        others.into_iter().step_by(apart).collect()
    }
}

/// How fast a rank is.
#[derive(Debug, Clone, Copy, Default)]
struct Scores {
    relative: Option<f64>,
    individual: Option<f64>,
}

impl Scores {
    fn of(self, rank: u32, sums: &Sums) -> RankWaits {
        RankWaits {
            rank,
            collectives: sums.collectives,
            arrived_last: sums.arrived_last,
            caused_wait_ms: sums.caused_ns / 1e6,
            suffered_wait_ms: sums.suffered_ns / 1e6,
            relative_score: self.relative,
            individual_score: self.individual,
        }
    }
}

/// Each rank's own time per block next to that of the rank that needs least, and next to its own best.
fn scores(busy: &Blocks, ranks: usize) -> Vec<Scores> {
    if busy.len() < LEAST_STEPS {
        return vec![Scores::default(); ranks];
    }
    let usual: Vec<f64> = (0..ranks)
        .map(|rank| median(&busy.rows().map(|(_, row)| cell(row, rank)).collect::<Vec<_>>()))
        .collect();
    let best = usual.iter().copied().filter(|&time| time > 0.0).fold(f64::INFINITY, f64::min);
    (0..ranks)
        .zip(&usual)
        .map(|(rank, &usual)| {
            let times: Vec<f64> = busy.rows().map(|(_, row)| cell(row, rank)).collect();
            let tenths = times.chunks(times.len().div_ceil(BATCHES));
            let tenths: Vec<f64> = tenths.map(median).filter(|&time| time > 0.0).collect();
            let fastest = tenths.iter().copied().fold(f64::INFINITY, f64::min);
            let score = |best: f64, own: f64| (own > 0.0 && best.is_finite()).then(|| best / own);
            Scores {
                relative: score(best, usual),
                individual: tenths.last().and_then(|&last| score(fastest, last)),
            }
        })
        .collect()
}
