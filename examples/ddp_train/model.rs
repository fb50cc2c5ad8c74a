//! A multilayer perceptron whose backward pass goes layer by layer, so that gradients can leave early.

use fastrand::Rng;
use ndarray::{Array1, Array2, Axis, Zip};
use std::hash::{DefaultHasher, Hash, Hasher};

pub const MOMENTUM: f32 = 0.9;

/// Fully connected layers with ReLU between them; the last gives logits.
#[derive(Debug)]
pub struct Mlp {
    pub layers: Vec<Layer>,
}

#[derive(Debug)]
pub struct Layer {
    weights: Array2<f32>,
    bias: Array1<f32>,
    velocity: Vec<f32>,
}

impl Mlp {
    /// He-initialized (He et al., Delving Deep into Rectifiers, 2015).
    pub fn new(sizes: &[usize], seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let layers = sizes
            .windows(2)
            .map(|size| {
                // A uniform distribution of variance 2 / inputs.
                let bound = (6.0 / size[0] as f32).sqrt();
                let weights =
                    Array2::from_shape_simple_fn((size[0], size[1]), || (rng.f32() * 2.0 - 1.0) * bound);
                let velocity = vec![0.0; size[0] * size[1] + size[1]];
                Layer { weights, bias: Array1::zeros(size[1]), velocity }
            })
            .collect();
        Self { layers }
    }

    /// What each layer got as its input, and at the end the logits.
    pub fn forward(&self, features: Array2<f32>) -> Vec<Array2<f32>> {
        let mut values = vec![features];
        for (index, layer) in self.layers.iter().enumerate() {
            let mut output = values[index].dot(&layer.weights) + &layer.bias;
            if index + 1 < self.layers.len() {
                output.mapv_inplace(|value| value.max(0.0));
            }
            values.push(output);
        }
        values
    }

    /// A hash of all weights' bits.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for layer in &self.layers {
            layer.parameters().for_each(|value| value.to_bits().hash(&mut hasher));
        }
        hasher.finish()
    }
}

impl Layer {
    /// Number of weights and biases.
    pub fn len(&self) -> usize {
        self.weights.len() + self.bias.len()
    }

    /// Weights, then biases.
    pub fn parameters(&self) -> impl Iterator<Item = f32> {
        self.weights.iter().chain(&self.bias).copied()
    }

    pub fn set_parameters(&mut self, values: &[f32]) {
        let parameters = self.weights.iter_mut().chain(&mut self.bias);
        parameters.zip(values).for_each(|(parameter, value)| *parameter = *value);
    }

    /// From the gradient of this layer's output to those of its parameters, written to `gradients` in the
    /// order of [`parameters`](Self::parameters), and of its input. `first` has no use for the latter.
    pub fn backward(
        &self,
        input: &Array2<f32>,
        output_gradient: &Array2<f32>,
        gradients: &mut [f32],
        first: bool,
    ) -> Option<Array2<f32>> {
        let weights = input.t().dot(output_gradient);
        let bias = output_gradient.sum_axis(Axis(0));
        gradients.iter_mut().zip(weights.iter().chain(&bias)).for_each(|(to, from)| *to = *from);
        if first {
            return None;
        }
        let mut input_gradient = output_gradient.dot(&self.weights.t());
        // The input is the output of a ReLU: where that is 0, nothing flows back.
        Zip::from(&mut input_gradient).and(input).for_each(|gradient, &value| {
            if value <= 0.0 {
                *gradient = 0.0;
            }
        });
        Some(input_gradient)
    }

    /// A step of SGD with momentum; `gradients` as [`backward`](Self::backward) writes them.
    pub fn update(&mut self, gradients: &[f32], learning_rate: f32) {
        let parameters = self.weights.iter_mut().chain(&mut self.bias);
        for ((parameter, velocity), gradient) in parameters.zip(&mut self.velocity).zip(gradients) {
            *velocity = MOMENTUM * *velocity + gradient;
            *parameter -= learning_rate * *velocity;
        }
    }
}
