//! Which tokens go where, and which come from where.

use crate::model::Choice;
use commtrace::collectives::Result;
use commtrace::prelude::*;

/// How this rank's tokens of a (half) batch are spread over the experts.
#[derive(Debug, Clone)]
pub struct Routing {
    /// Tokens in the order in which they are sent: by expert, and so by rank.
    pub order: Vec<usize>,
    /// The gate of each token, in the batch's order.
    pub gates: Vec<f32>,
    /// Tokens for each expert of all ranks.
    pub per_expert: Vec<usize>,
}

impl Routing {
    pub fn new(choices: &[Choice], experts: usize) -> Self {
        let mut order: Vec<usize> = (0..choices.len()).collect();
        order.sort_by_key(|&token| choices[token].expert);
        let mut per_expert = vec![0; experts];
        choices.iter().for_each(|choice| per_expert[choice.expert] += 1);
        Self { order, gates: choices.iter().map(|choice| choice.gate).collect(), per_expert }
    }

    /// Tokens for each rank.
    pub fn per_rank(&self, experts_per_rank: usize) -> Vec<usize> {
        self.per_expert.chunks(experts_per_rank).map(|of_rank| of_rank.iter().sum()).collect()
    }
}

/// What this rank's experts get of a (half) batch.
#[derive(Debug)]
pub struct Arrivals {
    /// Per rank that sends and expert of this rank: tokens. They arrive in this order.
    counts: Vec<Vec<usize>>,
}

impl Arrivals {
    /// Tokens from all ranks.
    pub fn tokens(&self) -> usize {
        self.counts.iter().flatten().sum()
    }

    /// Tokens from each rank.
    pub fn per_rank(&self) -> Vec<usize> {
        self.counts.iter().map(|of_rank| of_rank.iter().sum()).collect()
    }

    /// Tokens for each expert of this rank.
    pub fn per_expert(&self) -> Vec<usize> {
        let experts = self.counts.first().map_or(0, Vec::len);
        (0..experts).map(|expert| self.counts.iter().map(|of_rank| of_rank[expert]).sum()).collect()
    }

    /// Where the tokens of expert `expert` are among those that arrived.
    pub fn places(&self, expert: usize) -> Vec<usize> {
        let mut next = 0;
        let mut places = Vec::new();
        for of_rank in &self.counts {
            for (number, &tokens) in of_rank.iter().enumerate() {
                if number == expert {
                    places.extend(next..next + tokens);
                }
                next += tokens;
            }
        }
        places
    }
}

/// Tells every rank how many tokens its experts will get, for all of `routings` at once.
pub fn exchange_counts<C: Communicator>(
    comm: &C,
    routings: &[Routing],
    experts_per_rank: usize,
) -> Result<Vec<Arrivals>> {
    let mut counts = Vec::new();
    for rank in 0..comm.size() {
        let of_rank = rank * experts_per_rank..(rank + 1) * experts_per_rank;
        for routing in routings {
            counts.extend(routing.per_expert[of_rank.clone()].iter().map(|&tokens| tokens as i64));
        }
    }
    let send = comm.alloc_from(&counts)?;
    let mut recv = comm.alloc_zeros(counts.len())?;
    comm.all_to_all(&send, &mut recv)?;
    let received = comm.to_vec::<i64>(&recv)?;
    let of_routing = |number: usize| {
        let parts = received.chunks(experts_per_rank).skip(number).step_by(routings.len());
        let tokens = |part: &[i64]| part.iter().map(|&tokens| tokens as usize).collect();
        Arrivals { counts: parts.map(tokens).collect() }
    };
    Ok((0..routings.len()).map(of_routing).collect())
}
