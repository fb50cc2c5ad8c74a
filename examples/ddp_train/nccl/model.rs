//! The network of `crate::model` with its work in a stream: each method enqueues, none waits.

use crate::common::data::Samples;
use crate::common::gpu::Error;
use crate::common::gpu::memory::{Block, Pool, enqueue};
use crate::common::gpu::products::{Matrix, Products};
use crate::common::loss::{Score, cross_entropy};
use crate::model::{MOMENTUM, Mlp};
use cudarc::driver::CudaStream;
use ndarray::{ArrayView1, Axis, Zip};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Scores of samples, added up by the stream's work.
pub type Tally = Arc<Mutex<Score>>;

pub struct StreamMlp {
    stream: Arc<CudaStream>,
    products: Products,
    layers: Vec<Layer>,
    /// What each layer gets as its input, and at the end the logits, of up to `max_rows` samples.
    values: Vec<Block>,
    /// The gradient of a layer's output, and that of its input.
    gradients: [Block; 2],
    pool: Pool,
}

#[derive(Clone, Copy)]
struct Layer {
    inputs: usize,
    outputs: usize,
    /// Weights, then biases.
    parameters: Block,
    velocity: Block,
}

impl Layer {
    fn weights(&self, parameters: Block) -> Matrix {
        Matrix::new(parameters, self.inputs, self.outputs)
    }

    fn bias(&self, parameters: Block) -> Block {
        parameters.part(self.inputs * self.outputs, self.outputs)
    }
}

impl StreamMlp {
    /// A copy of `model`, of layers between `sizes`, for up to `max_rows` samples at a time.
    pub fn new(
        stream: &Arc<CudaStream>,
        model: &Mlp,
        sizes: &[usize],
        max_rows: usize,
    ) -> Result<Self, Error> {
        let mut pool = Pool::new(stream);
        let mut layers = Vec::new();
        for (size, layer) in sizes.windows(2).zip(&model.layers) {
            let (parameters, velocity) = (pool.block(layer.len())?, pool.block(layer.len())?);
            // SAFETY: nothing is enqueued yet.
            let values = unsafe { parameters.values_mut() };
            values.iter_mut().zip(layer.parameters()).for_each(|(to, from)| *to = from);
            layers.push(Layer { inputs: size[0], outputs: size[1], parameters, velocity });
        }
        let widest = sizes.iter().max().copied().unwrap_or(1);
        let values = sizes.iter().map(|size| pool.block(max_rows * size)).collect::<Result<_, _>>()?;
        let gradients = [pool.block(max_rows * widest)?, pool.block(max_rows * widest)?];
        let products = Products::new(stream)?;
        Ok(Self { stream: Arc::clone(stream), products, layers, values, gradients, pool })
    }

    /// Another block for this stream's work.
    pub fn block(&mut self, len: usize) -> Result<Block, Error> {
        self.pool.block(len)
    }

    /// From samples to the gradient of their logits, and their score to `tally`.
    pub fn forward(&self, samples: Samples, tally: &Tally) -> Result<(), Error> {
        let (rows, features) = (samples.len(), samples.features);
        let input = Matrix::new(self.values[0], rows, features.ncols());
        enqueue(&self.stream, move || {
            // SAFETY: here and below: in the stream's order, to which all uses of the blocks belong.
            unsafe { input.view_mut() }.assign(&features);
        })?;
        for (index, layer) in self.layers.iter().enumerate() {
            let input = Matrix::new(self.values[index], rows, layer.inputs);
            let output = Matrix::new(self.values[index + 1], rows, layer.outputs);
            self.products.enqueue(input, layer.weights(layer.parameters), output)?;
            let (bias, last) = (layer.bias(layer.parameters), index + 1 == self.layers.len());
            enqueue(&self.stream, move || {
                // SAFETY: see above.
                let (mut output, bias) = unsafe { (output.view_mut(), ArrayView1::from(bias.values())) };
                output += &bias;
                if !last {
                    output.mapv_inplace(|value| value.max(0.0));
                }
            })?;
        }
        let classes = self.layers.last().map_or(0, |layer| layer.outputs);
        let logits = Matrix::new(self.values[self.layers.len()], rows, classes);
        let (labels, tally) = (samples.labels, Arc::clone(tally));
        enqueue(&self.stream, move || {
            // SAFETY: see above.
            let score = cross_entropy(&mut unsafe { logits.view_mut() }, &labels);
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.loss_sum += score.loss_sum;
            tally.correct += score.correct;
        })
    }

    /// From the gradient of layer `index`'s output to those of its parameters, written to `to`, and of its
    /// input. Goes from the last layer to the first.
    pub fn backward(&self, index: usize, rows: usize, to: Block) -> Result<(), Error> {
        let layer = self.layers[index];
        let last = index + 1 == self.layers.len();
        let of_output = if last { self.values[index + 1] } else { self.gradients[index % 2] };
        let of_output = Matrix::new(of_output, rows, layer.outputs);
        let input = Matrix::new(self.values[index], rows, layer.inputs);
        self.products.enqueue(input.transposed(), of_output, layer.weights(to))?;
        let of_bias = layer.bias(to);
        enqueue(&self.stream, move || {
            // SAFETY: as in `forward`.
            let (of_output, of_bias) = unsafe { (of_output.view(), of_bias.values_mut()) };
            of_bias.iter_mut().zip(of_output.sum_axis(Axis(0))).for_each(|(to, from)| *to = from);
        })?;
        if index == 0 {
            return Ok(());
        }
        let of_input = Matrix::new(self.gradients[(index - 1) % 2], rows, layer.inputs);
        self.products.enqueue(of_output, layer.weights(layer.parameters).transposed(), of_input)?;
        enqueue(&self.stream, move || {
            // SAFETY: as in `forward`.
            let (mut of_input, input) = unsafe { (of_input.view_mut(), input.view()) };
            // The input is the output of a ReLU: where that is 0, nothing flows back.
            Zip::from(&mut of_input).and(&input).for_each(|gradient, &value| {
                if value <= 0.0 {
                    *gradient = 0.0;
                }
            });
        })
    }

    /// A step of SGD with momentum; `gradients` as [`backward`](Self::backward) writes them.
    pub fn update(&self, index: usize, gradients: Block, learning_rate: f32) -> Result<(), Error> {
        let Layer { parameters, velocity, .. } = self.layers[index];
        enqueue(&self.stream, move || {
            // SAFETY: as in `forward`.
            let (parameters, velocity, gradients) =
                unsafe { (parameters.values_mut(), velocity.values_mut(), gradients.values()) };
            for ((parameter, velocity), gradient) in parameters.iter_mut().zip(velocity).zip(gradients) {
                *velocity = MOMENTUM * *velocity + gradient;
                *parameter -= learning_rate * *velocity;
            }
        })
    }

    /// Keeps the stream busy without using a core.
    pub fn sleep(&self, time: Duration) -> Result<(), Error> {
        enqueue(&self.stream, move || std::thread::sleep(time))
    }

    /// A hash of all weights' bits. Waits for the stream.
    pub fn hash(&self) -> Result<u64, Error> {
        self.stream.synchronize()?;
        let mut hasher = DefaultHasher::new();
        for layer in &self.layers {
            // SAFETY: nothing is enqueued.
            unsafe { layer.parameters.values() }.iter().for_each(|value| value.to_bits().hash(&mut hasher));
        }
        Ok(hasher.finish())
    }

    /// What the stream's work has added to `tally`, which begins anew. Waits for the stream.
    pub fn take(&self, tally: &Tally) -> Result<Score, Error> {
        self.stream.synchronize()?;
        Ok(std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
