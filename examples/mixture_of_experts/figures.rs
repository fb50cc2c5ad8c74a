//! The run's own figures of its routing, counted beside those that the report works out from the records.

use crate::layer::Traffic;
use commtrace::collectives::Result;
use commtrace::prelude::*;
use std::time::Duration;

/// What one rank counts.
#[derive(Debug)]
pub struct Counts {
    /// Tokens that this rank routed.
    tokens: usize,
    /// Those of them whose expert is on another rank.
    crossing: usize,
    /// Tokens that each of this rank's experts computed.
    per_expert: Vec<usize>,
}

/// Of all ranks and steps.
#[derive(Debug)]
pub struct Figures {
    /// Bytes of the tokens that were dispatched, those that stayed on their rank included.
    pub dispatch_payload_bytes: usize,
    /// Tokens whose expert is on another rank / all tokens.
    pub cross_rank_token_ratio: f64,
    /// Tokens of the rank with the most / the mean of all ranks.
    pub expert_load_skew: f64,
    /// Routed tokens of all ranks / time from the first step to the end of the slowest rank's last.
    pub throughput_tokens_per_s: f64,
    /// Tokens that each expert computed.
    pub per_expert: Vec<usize>,
}

impl Counts {
    pub fn new(experts_per_rank: usize) -> Self {
        Self { tokens: 0, crossing: 0, per_expert: vec![0; experts_per_rank] }
    }

    /// Adds a step of rank `rank`.
    pub fn add(&mut self, rank: usize, traffic: &Traffic) {
        for (routing, arrivals) in traffic.routings.iter().zip(&traffic.arrivals) {
            let tokens = routing.order.len();
            self.tokens += tokens;
            self.crossing += tokens - routing.per_rank(self.per_expert.len())[rank];
            self.per_expert.iter_mut().zip(arrivals.per_expert()).for_each(|(sum, tokens)| *sum += tokens);
        }
    }

    /// The figures of all ranks, whose steps took this one `time`; a token has `token_bytes` bytes.
    pub fn gather<C: Communicator>(&self, comm: &C, time: Duration, token_bytes: usize) -> Result<Figures> {
        let experts = self.per_expert.len();
        let numbers = [self.tokens, self.crossing].into_iter().chain(self.per_expert.iter().copied());
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let mine: Vec<i64> = numbers.map(|number| number as i64).chain([nanoseconds]).collect();
        let mut all = comm.alloc_zeros(mine.len() * comm.size())?;
        comm.all_gather(&*comm.alloc_from(&mine)?, &mut all)?;
        let all = comm.to_vec::<i64>(&all)?;

        let ranks: Vec<&[i64]> = all.chunks(mine.len()).collect();
        let sum = |place: usize| ranks.iter().map(|rank| rank[place]).sum::<i64>();
        let tokens = sum(0);
        let seconds = ranks.iter().map(|rank| rank[2 + experts]).max().unwrap_or(0) as f64 / 1e9;
        let per_expert: Vec<usize> =
            ranks.iter().flat_map(|rank| &rank[2..2 + experts]).map(|&tokens| tokens as usize).collect();
        let busiest = per_expert.chunks(experts).map(|of_rank| of_rank.iter().sum::<usize>()).max();
        Ok(Figures {
            dispatch_payload_bytes: tokens as usize * token_bytes,
            cross_rank_token_ratio: sum(1) as f64 / tokens as f64,
            expert_load_skew: busiest.unwrap_or(0) as f64 * comm.size() as f64 / tokens as f64,
            throughput_tokens_per_s: tokens as f64 / seconds,
            per_expert,
        })
    }
}
