//! Where a rank computes: what the layer does between two exchanges.

use crate::model::{Choice, Expert, Model, choose};
use crate::routing::{Arrivals, Routing};
use commtrace::collectives;
use commtrace::prelude::*;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis};

/// A rank's compute. Batches of a step are told apart by their number.
pub trait Compute<C: Communicator> {
    type Error: From<collectives::Error>;

    /// Takes a batch, and returns the expert of each token.
    fn route(&mut self, batch: usize, tokens: Array2<f32>) -> Result<Vec<Choice>, Self::Error>;

    /// The batch's tokens in the order in which they are sent.
    fn permute(&mut self, batch: usize, routing: &Routing) -> Result<C::Owned<f32>, Self::Error>;

    /// Room for what is received.
    fn buffer(&mut self, tokens: usize) -> Result<C::Owned<f32>, Self::Error>;

    /// The shared expert, for the batch's tokens.
    fn shared_expert(&mut self, batch: usize) -> Result<(), Self::Error>;

    /// This rank's experts, each for the tokens that arrived for it. The results are where the tokens were.
    fn experts(&mut self, tokens: &C::Buffer<f32>, arrivals: &Arrivals)
    -> Result<C::Owned<f32>, Self::Error>;

    /// Adds the experts' results, weighted by the gates, to those of the shared expert.
    fn unpermute(
        &mut self,
        batch: usize,
        results: &C::Buffer<f32>,
        routing: &Routing,
    ) -> Result<(), Self::Error>;

    /// What the layer made of the batch's tokens.
    fn output(&mut self, batch: usize) -> Result<Array2<f32>, Self::Error>;
}

/// Compute by this process's processors.
pub struct HostCompute {
    model: Model,
    /// The number of this rank's first expert.
    first: usize,
    experts: Vec<Expert>,
    batches: [Batch; 2],
}

#[derive(Default)]
struct Batch {
    tokens: Array2<f32>,
    output: Array2<f32>,
}

impl HostCompute {
    pub fn new(model: &Model, rank: usize) -> Self {
        let first = rank * model.experts_per_rank;
        let experts = (0..model.experts_per_rank).map(|number| model.expert(first + number)).collect();
        Self { model: model.clone(), first, experts, batches: Default::default() }
    }
}

impl<C: Communicator<Buffer<f32> = [f32], Owned<f32> = Vec<f32>>> Compute<C> for HostCompute {
    type Error = collectives::Error;

    fn route(&mut self, batch: usize, tokens: Array2<f32>) -> collectives::Result<Vec<Choice>> {
        let _router = compute_span!("router").entered();
        let choices = choose(tokens.dot(&self.model.router.t()).view(), self.model.temperature());
        self.batches[batch].tokens = tokens;
        Ok(choices)
    }

    fn permute(&mut self, batch: usize, routing: &Routing) -> collectives::Result<Vec<f32>> {
        let _permute = compute_span!("permute").entered();
        Ok(self.batches[batch].tokens.select(Axis(0), &routing.order).into_raw_vec_and_offset().0)
    }

    fn buffer(&mut self, tokens: usize) -> collectives::Result<Vec<f32>> {
        Ok(vec![0.0; tokens * self.model.hidden])
    }

    fn shared_expert(&mut self, batch: usize) -> collectives::Result<()> {
        let _shared = compute_span!("shared_expert").entered();
        let Batch { tokens, output } = &mut self.batches[batch];
        *output = self.model.shared.forward(tokens.view());
        Ok(())
    }

    fn experts(&mut self, tokens: &[f32], arrivals: &Arrivals) -> collectives::Result<Vec<f32>> {
        let tokens = rows(tokens, self.model.hidden);
        let mut results = Array2::zeros(tokens.dim());
        for (number, expert) in self.experts.iter().enumerate() {
            let _expert = compute_span!("expert", label = self.first + number).entered();
            let places = arrivals.places(number);
            let of_expert = expert.forward(tokens.select(Axis(0), &places).view());
            for (&place, result) in places.iter().zip(of_expert.outer_iter()) {
                results.row_mut(place).assign(&result);
            }
        }
        Ok(results.into_raw_vec_and_offset().0)
    }

    fn unpermute(&mut self, batch: usize, results: &[f32], routing: &Routing) -> collectives::Result<()> {
        let _unpermute = compute_span!("unpermute").entered();
        let results = rows(results, self.model.hidden);
        add_weighted(self.batches[batch].output.view_mut(), results, routing);
        Ok(())
    }

    fn output(&mut self, batch: usize) -> collectives::Result<Array2<f32>> {
        Ok(std::mem::take(&mut self.batches[batch].output))
    }
}

/// Adds rows in the order in which tokens were sent, weighted by the tokens' gates, to the tokens' outputs.
pub fn add_weighted(mut output: ArrayViewMut2<'_, f32>, results: ArrayView2<'_, f32>, routing: &Routing) {
    for (&token, result) in routing.order.iter().zip(results.outer_iter()) {
        output.row_mut(token).scaled_add(routing.gates[token], &result);
    }
}

fn rows(values: &[f32], hidden: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((values.len() / hidden, hidden), values).expect("whole rows")
}
