//! `--backend nccl`: compute in a stream. Each method enqueues; the host waits for the router's choices, without
//! which it does not know how many tokens go where, and for a step's output.

use crate::args::Args;
use crate::common::gpu::memory::{Block, Pool, download, enqueue, upload};
use crate::common::gpu::products::{Matrix, Products};
use crate::common::gpu::{Error, Streams};
use crate::compute::{Compute, add_weighted};
use crate::model::{Choice, Expert, Model, choose};
use crate::routing::{Arrivals, Routing};
use crate::run::{self, Outcome};
use commtrace::nccl::NcclBuffer;
use commtrace::prelude::*;
use cudarc::driver::{CudaSlice, CudaStream};
use ndarray::{Array2, Axis};
use std::sync::Arc;

/// What one rank does.
pub fn run(comm: &NcclComm, streams: &Streams, args: &Args) -> Result<Outcome, Error> {
    let model = Model::new(comm.size(), args);
    let compute = StreamCompute::new(&streams.compute, &model, comm.rank(), args.tokens)?;
    run::run(comm, compute, &model, args)
}

/// Compute by a GPU, all of it in one stream, in whose order the blocks are used.
struct StreamCompute {
    stream: Arc<CudaStream>,
    products: Products,
    model: Model,
    /// The number of this rank's first expert.
    first: usize,
    router: Block,
    shared: Weights,
    experts: Vec<Weights>,
    batches: [Batch; 2],
    /// Products of tokens and router.
    logits: Block,
    /// Tokens on their way out, and results on their way in.
    permuted: Block,
    /// Tokens that arrived, those of one expert, what is between its layers, and its results; those of all
    /// experts.
    arrived: Block,
    of_expert: Block,
    inner: Block,
    result: Block,
    results: Block,
    _pool: Pool,
}

#[derive(Clone, Copy)]
struct Batch {
    tokens: Block,
    output: Block,
    count: usize,
}

#[derive(Clone, Copy)]
struct Weights {
    up: Block,
    down: Block,
    width: usize,
}

impl Weights {
    fn new(pool: &mut Pool, expert: &Expert) -> Result<Self, Error> {
        let (up, down) = (block_of(pool, &expert.up)?, block_of(pool, &expert.down)?);
        Ok(Self { up, down, width: expert.up.ncols() })
    }
}

/// A block with a matrix in it.
fn block_of(pool: &mut Pool, matrix: &Array2<f32>) -> Result<Block, Error> {
    let block = pool.block(matrix.len())?;
    // SAFETY: nothing that uses the block is enqueued yet.
    unsafe { block.values_mut() }.iter_mut().zip(matrix).for_each(|(to, from)| *to = *from);
    Ok(block)
}

impl StreamCompute {
    /// For batches of up to `tokens` tokens.
    fn new(stream: &Arc<CudaStream>, model: &Model, rank: usize, tokens: usize) -> Result<Self, Error> {
        let mut pool = Pool::new(stream);
        let (hidden, first) = (model.hidden, rank * model.experts_per_rank);
        let of_rank = first..first + model.experts_per_rank;
        let experts: Vec<Weights> =
            of_rank.map(|number| Weights::new(&mut pool, &model.expert(number))).collect::<Result<_, _>>()?;
        let shared = Weights::new(&mut pool, &model.shared)?;
        let widest = experts.iter().chain([&shared]).map(|weights| weights.width).max().unwrap_or(1);
        // All tokens of all ranks may be for this rank's experts.
        let most = tokens * model.ranks;
        let mut batch = || -> Result<Batch, Error> {
            Ok(Batch { tokens: pool.block(tokens * hidden)?, output: pool.block(tokens * hidden)?, count: 0 })
        };
        Ok(Self {
            stream: Arc::clone(stream),
            products: Products::new(stream)?,
            first,
            shared,
            experts,
            batches: [batch()?, batch()?],
            router: block_of(&mut pool, &model.router)?,
            logits: pool.block(tokens * model.experts())?,
            permuted: pool.block(tokens * hidden)?,
            arrived: pool.block(most * hidden)?,
            of_expert: pool.block(most * hidden)?,
            inner: pool.block(most * widest)?,
            result: pool.block(most * hidden)?,
            results: pool.block(most * hidden)?,
            model: model.clone(),
            _pool: pool,
        })
    }

    /// Enqueues `to = expert(tokens)`, for `rows` tokens from the beginning of the blocks.
    fn forward(&self, weights: Weights, tokens: Block, to: Block, rows: usize) -> Result<(), Error> {
        if rows == 0 {
            return Ok(());
        }
        let Weights { up, down, width } = weights;
        let hidden = self.model.hidden;
        let inner = Matrix::new(self.inner, rows, width);
        self.products.enqueue(Matrix::new(tokens, rows, hidden), Matrix::new(up, hidden, width), inner)?;
        enqueue(&self.stream, move || {
            // SAFETY: in the stream's order, to which all uses of the blocks belong.
            unsafe { inner.view_mut() }.mapv_inplace(|value| value.max(0.0));
        })?;
        self.products.enqueue(inner, Matrix::new(down, width, hidden), Matrix::new(to, rows, hidden))
    }

    /// Enqueues an expert for the tokens at `places` of the `arrived` ones.
    fn expert(&self, weights: Weights, places: &[usize], arrived: usize) -> Result<(), Error> {
        let matrix = |block: Block, rows: usize| Matrix::new(block, rows, self.model.hidden);
        let (tokens, of_expert) = (matrix(self.arrived, arrived), matrix(self.of_expert, places.len()));
        let (result, results) = (matrix(self.result, places.len()), matrix(self.results, arrived));
        let (there, back) = (places.to_vec(), places.to_vec());
        enqueue(&self.stream, move || {
            // SAFETY: as in `forward`.
            let (tokens, mut of_expert) = unsafe { (tokens.view(), of_expert.view_mut()) };
            of_expert.assign(&tokens.select(Axis(0), &there));
        })?;
        self.forward(weights, self.of_expert, self.result, places.len())?;
        enqueue(&self.stream, move || {
            // SAFETY: as in `forward`.
            let (result, mut results) = unsafe { (result.view(), results.view_mut()) };
            for (&place, result) in back.iter().zip(result.outer_iter()) {
                results.row_mut(place).assign(&result);
            }
        })
    }
}

impl Compute<NcclComm> for StreamCompute {
    type Error = Error;

    fn route(&mut self, batch: usize, tokens: Array2<f32>) -> Result<Vec<Choice>, Error> {
        let (rows, hidden) = tokens.dim();
        self.batches[batch].count = rows;
        let logits = Matrix::new(self.logits, rows, self.model.experts());
        if rows > 0 {
            let _router = compute_span!("router", stream = &self.stream).entered();
            let of_batch = Matrix::new(self.batches[batch].tokens, rows, hidden);
            enqueue(&self.stream, move || {
                // SAFETY: as in `forward`.
                unsafe { of_batch.view_mut() }.assign(&tokens);
            })?;
            let router = Matrix::new(self.router, self.model.experts(), hidden);
            self.products.enqueue(of_batch, router.transposed(), logits)?;
        }
        self.stream.synchronize()?;
        // SAFETY: nothing is enqueued.
        Ok(choose(unsafe { logits.view() }, self.model.temperature()))
    }

    fn permute(&mut self, batch: usize, routing: &Routing) -> Result<NcclBuffer<f32>, Error> {
        let hidden = self.model.hidden;
        let mut send = self.buffer(routing.order.len())?;
        {
            let _permute = compute_span!("permute", stream = &self.stream).entered();
            let Batch { tokens, count, .. } = self.batches[batch];
            let (tokens, permuted) =
                (Matrix::new(tokens, count, hidden), Matrix::new(self.permuted, count, hidden));
            let order = routing.order.clone();
            enqueue(&self.stream, move || {
                // SAFETY: as in `forward`.
                let (tokens, mut permuted) = unsafe { (tokens.view(), permuted.view_mut()) };
                permuted.assign(&tokens.select(Axis(0), &order));
            })?;
        }
        upload(&self.stream, self.permuted.part(0, send.len()), &mut send)?;
        Ok(send)
    }

    fn buffer(&mut self, tokens: usize) -> Result<NcclBuffer<f32>, Error> {
        // The driver has no memory of no length.
        Ok(self.stream.alloc_zeros((tokens * self.model.hidden).max(1))?.into())
    }

    fn shared_expert(&mut self, batch: usize) -> Result<(), Error> {
        let _shared = compute_span!("shared_expert", stream = &self.stream).entered();
        let Batch { tokens, output, count } = self.batches[batch];
        self.forward(self.shared, tokens, output, count)
    }

    fn experts(&mut self, tokens: &CudaSlice<f32>, arrivals: &Arrivals) -> Result<NcclBuffer<f32>, Error> {
        download(&self.stream, tokens, self.arrived.part(0, tokens.len()))?;
        for (number, weights) in self.experts.iter().enumerate() {
            let label = self.first + number;
            let _expert = compute_span!("expert", stream = &self.stream, label = label).entered();
            self.expert(*weights, &arrivals.places(number), arrivals.tokens())?;
        }
        let mut results = self.buffer(arrivals.tokens())?;
        upload(&self.stream, self.results.part(0, results.len()), &mut results)?;
        Ok(results)
    }

    fn unpermute(&mut self, batch: usize, results: &CudaSlice<f32>, routing: &Routing) -> Result<(), Error> {
        download(&self.stream, results, self.permuted.part(0, results.len()))?;
        let _unpermute = compute_span!("unpermute", stream = &self.stream).entered();
        let Batch { output, count, .. } = self.batches[batch];
        let (output, results, routing) = (
            Matrix::new(output, count, self.model.hidden),
            Matrix::new(self.permuted, count, self.model.hidden),
            routing.clone(),
        );
        enqueue(&self.stream, move || {
            // SAFETY: as in `forward`.
            let (output, results) = unsafe { (output.view_mut(), results.view()) };
            add_weighted(output, results, &routing);
        })
    }

    fn output(&mut self, batch: usize) -> Result<Array2<f32>, Error> {
        self.stream.synchronize()?;
        let Batch { output, count, .. } = self.batches[batch];
        // SAFETY: nothing is enqueued.
        Ok(unsafe { Matrix::new(output, count, self.model.hidden).view() }.to_owned())
    }
}
