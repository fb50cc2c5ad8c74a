//! The gradients of the tensor-parallel example's model against differences of its loss. That the split model
//! trains as the unsplit one, the example checks by itself; both could be wrong alike.
#![allow(dead_code, reason = "a part of the example is used")]

#[path = "../examples/tensor_parallel/args.rs"]
mod args;
#[path = "../examples/common/mod.rs"]
mod common;
#[path = "../examples/tensor_parallel/device.rs"]
mod device;
#[path = "../examples/tensor_parallel/gelu.rs"]
mod gelu;
#[path = "../examples/tensor_parallel/host.rs"]
mod host;
#[path = "../examples/tensor_parallel/linear.rs"]
mod linear;
#[path = "../examples/tensor_parallel/model.rs"]
mod model;
#[path = "../examples/tensor_parallel/parameters.rs"]
mod parameters;

use common::data::{Samples, load};
use common::loss::cross_entropy;
use common::options::Overlap;
use commtrace::prelude::*;
use host::Host;
use model::{Activations, Mlp, Shape};
use ndarray::Array2;

const ROWS: usize = 32;

type Model = Mlp<Array2<f32>>;
type Values = Activations<Host<LocalComm>>;

/// The mean loss; leaves the gradient of the logits in `values`.
fn loss(comm: &LocalComm, model: &Model, values: &mut Values, samples: &Samples) -> f64 {
    model.forward(&Host::new(), comm, values, samples.features.clone()).unwrap();
    f64::from(cross_entropy(&mut values.logits, &samples.labels).loss_sum) / ROWS as f64
}

/// Along its own gradient, the loss changes by the gradient's length: by every parameter on every rank.
fn gradients_are_slopes(comm: &LocalComm, samples: &Samples, classes: usize) {
    let device = Host::new();
    let shape = Shape { features: samples.features.ncols(), hidden: 12, layers: 2, classes };
    let mut model = Mlp::new(&device, comm, shape, 7).unwrap();
    let mut values = Activations::new(&device, comm, shape, ROWS).unwrap();
    // Biases begin with 0, where an error in their use would not show.
    for (index, parameter) in model.parameters().into_iter().skip(1).step_by(2).enumerate() {
        parameter.value += 0.1 * (index + 1) as f32;
    }
    loss(comm, &model, &mut values, samples);
    model.backward(&device, comm, &mut values, Overlap::Off).unwrap();
    let gradients: Vec<Array2<f32>> =
        model.parameters().iter().map(|parameter| parameter.gradient.clone()).collect();
    for (index, gradient) in gradients.iter().enumerate() {
        let shard = model.parameters()[index].shard;
        // Of the whole parameter: each rank moves its part of the same vector.
        let whole = shard.gather(comm, gradient.clone()).unwrap();
        let length = whole.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        let distance = 0.02;
        let mut at = |factor: f64| {
            model.parameters()[index].value.scaled_add((factor / length) as f32, gradient);
            let loss = loss(comm, &model, &mut values, samples);
            model.parameters()[index].value.scaled_add((-factor / length) as f32, gradient);
            loss
        };
        let slope = (at(distance) - at(-distance)) / (2.0 * distance);
        assert!(length > 1e-3, "parameter {index} ({shard:?}) has a gradient");
        assert!(
            (slope - length).abs() < 0.01 * length,
            "parameter {index} ({shard:?}): the loss changes by {slope}, the gradient says {length}"
        );
    }
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    let data = load();
    let samples = data.train.select(&(0..ROWS).collect::<Vec<_>>());
    for ranks in [1, 2, 3] {
        LocalComm::run(ranks, |comm| gradients_are_slopes(&comm, &samples, data.classes));
    }
}

#[test]
fn the_slope_of_gelu_is_its_derivative() {
    for step in -400..=400 {
        let (x, distance) = (step as f32 * 0.01, 0.01);
        let slope = (gelu::gelu(x + distance) - gelu::gelu(x - distance)) / (2.0 * distance);
        assert!((slope - gelu::gelu_slope(x)).abs() < 1e-4, "at {x}: {slope}, {}", gelu::gelu_slope(x));
    }
    // Known values: x times the normal distribution's function, 0.8413 at 1, within the approximation's 1e-3.
    assert!((gelu::gelu(1.0) - 0.8413).abs() < 1e-3 && (gelu::gelu(-1.0) + 0.1587).abs() < 1e-3);
}
