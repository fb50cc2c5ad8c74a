//! The layer on one rank: its exchanges, and what is computed beside them.

use crate::compute::Compute;
use crate::model::joined;
use crate::routing::{Arrivals, Routing, exchange_counts};
use commtrace::prelude::*;
use ndarray::Array2;

/// What was sent and received in a step.
#[derive(Debug, Default)]
pub struct Traffic {
    pub routings: Vec<Routing>,
    pub arrivals: Vec<Arrivals>,
}

/// The layer for a rank's part in a job.
pub struct Layer<'a, C: Communicator, K: Compute<C>> {
    pub comm: &'a C,
    pub compute: K,
    pub experts_per_rank: usize,
    pub hidden: usize,
}

type Exchange<C> = Pending<(<C as Communicator>::Owned<f32>, <C as Communicator>::Owned<f32>)>;

impl<C: Communicator, K: Compute<C>> Layer<'_, C, K> {
    /// One exchange after the other, each waited for at once.
    pub fn blocking(&mut self, halves: [Array2<f32>; 2]) -> Result<(Array2<f32>, Traffic), K::Error> {
        let traffic = self.route([joined(&halves)])?;
        let (routing, arrivals) = (&traffic.routings[0], &traffic.arrivals[0]);
        let (sent, received) = self.counts(routing, arrivals);

        let tokens = self.compute.permute(0, routing)?;
        let mut arrived = self.compute.buffer(arrivals.tokens())?;
        {
            let _dispatch = dispatch_scope(self.hidden);
            self.comm.all_to_all_v(&tokens, &sent, &mut arrived, &received)?;
        }
        let results = self.compute.experts(&arrived, arrivals)?;
        let mut returned = self.compute.buffer(routing.order.len())?;
        {
            let _combine = combine_scope(self.hidden);
            self.comm.all_to_all_v(&results, &received, &mut returned, &sent)?;
        }
        self.compute.shared_expert(0)?;
        self.compute.unpermute(0, &returned, routing)?;
        Ok((self.compute.output(0)?, traffic))
    }

    /// Dispatches beside the shared expert, and the exchanges of one half beside the experts of the other. Only the
    /// last combine has nothing beside it: a rank that had would be ahead and wait again in the next exchange.
    pub fn overlapped(&mut self, halves: [Array2<f32>; 2]) -> Result<(Array2<f32>, Traffic), K::Error> {
        let traffic = self.route(halves)?;
        let dispatches = [self.dispatch(0, &traffic)?, self.dispatch(1, &traffic)?];
        self.compute.shared_expert(0)?;
        self.compute.shared_expert(1)?;
        let mut combines = Vec::new();
        for (batch, dispatch) in dispatches.into_iter().enumerate() {
            let (_, arrived) = dispatch.wait()?;
            let results = self.compute.experts(&arrived, &traffic.arrivals[batch])?;
            combines.push(self.combine(batch, results, &traffic)?);
        }
        let returned: Vec<_> = combines.into_iter().map(Pending::wait).collect::<Result<_, _>>()?;
        for (batch, (_, returned)) in returned.iter().enumerate() {
            self.compute.unpermute(batch, returned, &traffic.routings[batch])?;
        }
        Ok((joined(&[self.compute.output(0)?, self.compute.output(1)?]), traffic))
    }

    /// Where the tokens of each batch go.
    fn route<const N: usize>(&mut self, batches: [Array2<f32>; N]) -> Result<Traffic, K::Error> {
        let experts = self.comm.size() * self.experts_per_rank;
        let mut routings = Vec::new();
        for (batch, tokens) in batches.into_iter().enumerate() {
            routings.push(Routing::new(&self.compute.route(batch, tokens)?, experts));
        }
        let arrivals = exchange_counts(self.comm, &routings, self.experts_per_rank)?;
        Ok(Traffic { routings, arrivals })
    }

    fn dispatch(&mut self, batch: usize, traffic: &Traffic) -> Result<Exchange<C>, K::Error> {
        let (routing, arrivals) = (&traffic.routings[batch], &traffic.arrivals[batch]);
        let (sent, received) = self.counts(routing, arrivals);
        let tokens = self.compute.permute(batch, routing)?;
        let arrived = self.compute.buffer(arrivals.tokens())?;
        let _dispatch = dispatch_scope(self.hidden);
        Ok(self.comm.all_to_all_v_async(tokens, &sent, arrived, &received))
    }

    fn combine(
        &mut self,
        batch: usize,
        results: C::Owned<f32>,
        traffic: &Traffic,
    ) -> Result<Exchange<C>, K::Error> {
        let (routing, arrivals) = (&traffic.routings[batch], &traffic.arrivals[batch]);
        let (sent, received) = self.counts(routing, arrivals);
        let returned = self.compute.buffer(routing.order.len())?;
        let _combine = combine_scope(self.hidden);
        // Back the way that they came.
        Ok(self.comm.all_to_all_v_async(results, &received, returned, &sent))
    }

    /// Elements that dispatch sends to each rank, and receives from each.
    fn counts(&self, routing: &Routing, arrivals: &Arrivals) -> (Vec<usize>, Vec<usize>) {
        let elements = |tokens: Vec<usize>| tokens.into_iter().map(|tokens| tokens * self.hidden).collect();
        (elements(routing.per_rank(self.experts_per_rank)), elements(arrivals.per_rank()))
    }
}
