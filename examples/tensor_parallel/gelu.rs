//! GELU, in the approximation by the hyperbolic tangent (Hendrycks and Gimpel, Gaussian Error Linear Units, 2016).
//!
//! Its slope has no jump. ReLU's has one: where another order of summation moves an input across 0, the split model's
//! gradients would differ from the unsplit model's by the share of a whole sample.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// The square root of 2/π.
const SCALE: f32 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
const CUBIC: f32 = 0.044715;

fn tangent(x: f32) -> f32 {
    (SCALE * (x + CUBIC * x * x * x)).tanh()
}

pub fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + tangent(x))
}

/// The derivative of [`gelu`].
pub fn gelu_slope(x: f32) -> f32 {
    let tangent = tangent(x);
    0.5 * (1.0 + tangent) + 0.5 * x * (1.0 - tangent * tangent) * SCALE * (1.0 + 3.0 * CUBIC * x * x)
}
