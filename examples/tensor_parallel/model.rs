//! A residual MLP whose layers are divided among ranks as in Megatron-LM (Shoeybi et al., 2019).
//!
//! A layer is `x + gelu(x A + a) B + b`. Each rank has some columns of A and the same rows of B, so that it can
//! compute its part of the inside by itself; its product with B is then one of the terms of a sum over ranks:
//! one all_reduce in forward. In backward it is A's product that gives a term of the gradient of `x`: one
//! all_reduce again. All else is done by every rank alike.

use crate::args::EXPANSION;
use crate::common::options::Overlap;
use crate::device::{Device, Result, plain};
use crate::gelu::{gelu, gelu_slope};
use crate::linear::{Linear, Plan};
use crate::parameters::{Parameter, Shard};
use commtrace::prelude::*;
use fastrand::Rng;
use ndarray::Array2;

/// Of the whole model.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub features: usize,
    pub hidden: usize,
    pub layers: usize,
    pub classes: usize,
}

/// This rank's part of the model.
pub struct Mlp<M> {
    input: Linear<M>,
    layers: Vec<Layer<M>>,
    head: Linear<M>,
}

struct Layer<M> {
    column_parallel: Linear<M>,
    row_parallel: Linear<M>,
}

/// What passes between the layers, for a fixed number of samples.
pub struct Activations<D: Device> {
    features: D::Matrix,
    /// What each layer gets as its input, and at the end what the head gets.
    values: Vec<D::Matrix>,
    inside: Vec<Inside<D::Matrix>>,
    /// After [`Mlp::forward`]. [`Mlp::backward`] takes their gradient here.
    pub logits: D::Matrix,
    /// Of what the layers pass on.
    gradient: D::Matrix,
    inside_gradient: D::Matrix,
    /// This rank's term of the gradient of a layer's input.
    term: D::Matrix,
    reduction: D::Reduction,
}

/// This rank's part of what is between a layer's products.
struct Inside<M> {
    before_gelu: M,
    after_gelu: M,
}

impl<D: Device> Activations<D> {
    pub fn new(device: &D, tensor: &D::Comm, shape: Shape, rows: usize) -> Result<Self> {
        let Shape { features, hidden, layers, classes } = shape;
        let inner = EXPANSION * hidden / tensor.size();
        let inside = |_| -> Result<_> {
            Ok(Inside { before_gelu: device.zeros(rows, inner)?, after_gelu: device.zeros(rows, inner)? })
        };
        Ok(Self {
            features: device.zeros(rows, features)?,
            values: (0..=layers).map(|_| device.zeros(rows, hidden)).collect::<Result<_>>()?,
            inside: (0..layers).map(inside).collect::<Result<_>>()?,
            logits: device.zeros(rows, classes)?,
            gradient: device.zeros(rows, hidden)?,
            inside_gradient: device.zeros(rows, inner)?,
            term: device.zeros(rows, hidden)?,
            reduction: device.reduction(tensor, rows * hidden)?,
        })
    }
}

impl<M> Mlp<M> {
    pub fn new<D: Device<Matrix = M>>(device: &D, tensor: &D::Comm, shape: Shape, seed: u64) -> Result<Self> {
        let Shape { features, hidden, layers, classes } = shape;
        let inner = EXPANSION * hidden;
        let mut rng = Rng::with_seed(seed);
        let mut linear = |inputs, outputs, gain, weights, bias| {
            Linear::new(device, tensor, &mut rng, &Plan { inputs, outputs, gain, weights, bias })
        };
        let input = linear(features, hidden, 1.0, Shard::Replicated, Shard::Replicated)?;
        let layer = |_| -> Result<_> {
            Ok(Layer {
                // As for ReLU, which GELU is close to: He et al., Delving Deep into Rectifiers, 2015.
                column_parallel: linear(hidden, inner, 2.0, Shard::Columns, Shard::Columns)?,
                // So that the sum of all layers does not grow with their number.
                row_parallel: linear(inner, hidden, 1.0 / layers as f32, Shard::Rows, Shard::Replicated)?,
            })
        };
        let layers = (0..layers).map(layer).collect::<Result<_>>()?;
        Ok(Self { input, layers, head: linear(hidden, classes, 1.0, Shard::Replicated, Shard::Replicated)? })
    }

    /// From features to logits.
    pub fn forward<D: Device<Matrix = M>>(
        &self,
        device: &D,
        tensor: &D::Comm,
        activations: &mut Activations<D>,
        features: Array2<f32>,
    ) -> Result<()> {
        let Activations { values, inside, reduction, logits, .. } = activations;
        let stream = device.stream();
        let span = compute_span!("input_forward", stream = stream).entered();
        device.work(&mut activations.features, [], move |mut to, []| to.assign(&features))?;
        self.input.forward(device, &activations.features, &mut values[0])?;
        drop(span);
        for (index, (layer, inside)) in self.layers.iter().zip(inside).enumerate() {
            let (before, after) = values.split_at_mut(index + 1);
            let (input, output) = (&before[index], &mut after[0]);
            let Linear { weights, bias } = &layer.row_parallel;

            let span = compute_span!("column_parallel_forward", stream = stream, label = index).entered();
            layer.column_parallel.forward(device, input, &mut inside.before_gelu)?;
            device.work(&mut inside.after_gelu, [&inside.before_gelu], |mut after, [before]| {
                after.zip_mut_with(&before, |after, before| *after = gelu(*before));
            })?;
            drop(span);

            compute_span!("row_parallel_forward", stream = stream, label = index)
                .in_scope(|| device.multiply(plain(&inside.after_gelu), plain(&weights.value), output))?;
            device.all_reduce(tensor, reduction, output, &ReduceOp::Sum)?;

            let _span = compute_span!("residual_forward", stream = stream, label = index).entered();
            device.work(output, [&bias.value, input], |mut output, [bias, input]| {
                output += &bias;
                output += &input;
            })?;
        }
        let _span = compute_span!("head_forward", stream = stream).entered();
        self.head.forward(device, &values[self.layers.len()], logits)
    }

    /// From the gradient of the logits to those of the parameters.
    pub fn backward<D: Device<Matrix = M>>(
        &mut self,
        device: &D,
        tensor: &D::Comm,
        activations: &mut Activations<D>,
        overlap: Overlap,
    ) -> Result<()> {
        let Activations { values, gradient, inside_gradient, term, reduction, logits, .. } = activations;
        let stream = device.stream();
        let span = compute_span!("head_backward", stream = stream).entered();
        self.head.parameter_gradients(device, &values[self.layers.len()], logits)?;
        self.head.input_gradient(device, logits, gradient)?;
        drop(span);
        for (index, layer) in self.layers.iter_mut().enumerate().rev() {
            let (input, inside) = (&values[index], &activations.inside[index]);

            let span = compute_span!("row_parallel_backward", stream = stream, label = index).entered();
            layer.row_parallel.parameter_gradients(device, &inside.after_gelu, gradient)?;
            layer.row_parallel.input_gradient(device, gradient, inside_gradient)?;
            device.work(inside_gradient, [&inside.before_gelu], |mut gradient, [before]| {
                gradient.zip_mut_with(&before, |gradient, before| *gradient *= gelu_slope(*before));
            })?;
            drop(span);

            compute_span!("column_parallel_backward", stream = stream, label = index)
                .in_scope(|| layer.column_parallel.input_gradient(device, inside_gradient, term))?;
            device.start_all_reduce(tensor, reduction, term, &ReduceOp::Sum, overlap)?;
            // It needs no other rank: it can go on beside the all_reduce.
            compute_span!("column_parallel_weights", stream = stream, label = index)
                .in_scope(|| layer.column_parallel.parameter_gradients(device, input, inside_gradient))?;
            device.finish_all_reduce(tensor, reduction, term)?;

            let _span = compute_span!("residual_backward", stream = stream, label = index).entered();
            device.work(gradient, [term], |mut gradient, [term]| gradient += &term)?;
        }
        let _span = compute_span!("input_backward", stream = stream).entered();
        self.input.parameter_gradients(device, &activations.features, gradient)
    }

    /// All of them, in the same order on all ranks.
    pub fn parameters(&mut self) -> Vec<&mut Parameter<M>> {
        let layers = self.layers.iter_mut();
        let layers = layers.flat_map(|layer| {
            layer.column_parallel.parameters().into_iter().chain(layer.row_parallel.parameters())
        });
        self.input.parameters().into_iter().chain(layers).chain(self.head.parameters()).collect()
    }
}
