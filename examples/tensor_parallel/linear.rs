//! `x W + b`.

use crate::device::{Device, Result, plain, transposed};
use crate::parameters::{Parameter, Shard};
use commtrace::prelude::*;
use fastrand::Rng;
use ndarray::{Array2, Axis};

/// This rank's part of a product and its bias.
pub struct Linear<M> {
    pub weights: Parameter<M>,
    pub bias: Parameter<M>,
}

/// How a product of the whole model is made.
pub struct Plan {
    pub inputs: usize,
    pub outputs: usize,
    /// The variance of the weights is this, divided by the number of inputs.
    pub gain: f32,
    pub weights: Shard,
    pub bias: Shard,
}

impl<M> Linear<M> {
    /// Weights from a uniform distribution. All ranks draw those of the whole model and keep their part, so that the
    /// model is the same however many ranks divide it.
    pub fn new<D: Device<Matrix = M>>(
        device: &D,
        tensor: &D::Comm,
        rng: &mut Rng,
        plan: &Plan,
    ) -> Result<Self> {
        let bound = (3.0 * plan.gain / plan.inputs as f32).sqrt();
        let shape = (plan.inputs, plan.outputs);
        let weights = Array2::from_shape_simple_fn(shape, || (rng.f32() * 2.0 - 1.0) * bound);
        let parameter = |whole: Array2<f32>, shard: Shard| {
            Parameter::new(device, shard.part(whole, tensor.rank(), tensor.size()), shard)
        };
        Ok(Self {
            weights: parameter(weights, plan.weights)?,
            bias: parameter(Array2::zeros((1, plan.outputs)), plan.bias)?,
        })
    }

    pub fn forward<D: Device<Matrix = M>>(&self, device: &D, input: &M, output: &mut M) -> Result<()> {
        device.multiply(plain(input), plain(&self.weights.value), output)?;
        device.work(output, [&self.bias.value], |mut output, [bias]| output += &bias)
    }

    /// The gradients of weights and bias, of that of the output.
    pub fn parameter_gradients<D: Device<Matrix = M>>(
        &mut self,
        device: &D,
        input: &M,
        output_gradient: &M,
    ) -> Result<()> {
        device.multiply(transposed(input), plain(output_gradient), &mut self.weights.gradient)?;
        device.work(&mut self.bias.gradient, [output_gradient], |mut bias, [gradient]| {
            bias.row_mut(0).assign(&gradient.sum_axis(Axis(0)));
        })
    }

    pub fn input_gradient<D: Device<Matrix = M>>(
        &self,
        device: &D,
        output_gradient: &M,
        to: &mut M,
    ) -> Result<()> {
        device.multiply(plain(output_gradient), transposed(&self.weights.value), to)
    }

    pub fn parameters(&mut self) -> [&mut Parameter<M>; 2] {
        [&mut self.weights, &mut self.bias]
    }
}
