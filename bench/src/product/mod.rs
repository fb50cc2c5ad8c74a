//! The compute of the overlap experiment: the product of two square matrices.

mod check;
#[cfg(feature = "nccl")]
mod cublas;
mod host;

pub(crate) use check::Sizes;
#[cfg(feature = "nccl")]
pub(crate) use cublas::DeviceProduct;
pub(crate) use host::{HostProduct, Multiply};

use crate::element::Number;
use commtrace_collectives::{DType, Result};
use half::{bf16, f16};

/// An element type that matrices can be of.
pub(crate) trait Real: Number {
    /// The type that products on processors are computed in: half-precision matrices are widened to `f32` once, before they
    /// are multiplied, since processors have no arithmetic for them that is common to all.
    type Wide: Multiply;
    /// One unit in the last place of 1.
    const EPSILON: f64;

    /// Rounded to the type.
    fn from_f64(value: f64) -> Self;
    /// Exactly.
    fn to_f64(self) -> f64;
}

macro_rules! real {
    ($type:ty, $wide:ty, $epsilon:expr, $from:expr, $to:expr) => {
        impl Real for $type {
            type Wide = $wide;
            const EPSILON: f64 = $epsilon;

            fn from_f64(value: f64) -> Self {
                $from(value)
            }

            fn to_f64(self) -> f64 {
                $to(self)
            }
        }
    };
}

real!(f32, f32, f32::EPSILON as f64, |value| value as f32, f64::from);
real!(f64, f64, f64::EPSILON, |value| value, |value| value);
real!(f16, f32, 1.0 / 1024.0, f16::from_f64, f16::to_f64);
real!(bf16, f32, 1.0 / 128.0, bf16::from_f64, bf16::to_f64);

/// Something to do for an element type that matrices can be of.
pub(crate) trait ForReal {
    /// What comes of it.
    type Output;

    /// Does it for `T`.
    fn call<T: Real>(self) -> Self::Output;
}

/// Does `what` for `dtype`; `None` if matrices cannot be of it.
pub(crate) fn for_real<F: ForReal>(dtype: DType, what: F) -> Option<F::Output> {
    Some(match dtype {
        DType::Float32 => what.call::<f32>(),
        DType::Float64 => what.call::<f64>(),
        DType::Float16 => what.call::<f16>(),
        DType::BFloat16 => what.call::<bf16>(),
        _ => return None,
    })
}

/// Whether matrices can be of this element type.
pub fn has_product(dtype: DType) -> bool {
    struct Exists;
    impl ForReal for Exists {
        type Output = ();
        fn call<T: Real>(self) {}
    }
    for_real(dtype, Exists).is_some()
}

/// A product that can be computed over and over.
pub(crate) trait Product {
    /// Computes it: on processors until it is there, on a device by enqueueing it.
    ///
    /// # Errors
    ///
    /// What the library says.
    fn run(&mut self) -> Result<()>;

    /// Empties the result, so that one of an earlier run is not taken for that of a later.
    ///
    /// # Errors
    ///
    /// The device's.
    fn clear(&mut self) -> Result<()>;

    /// How many of the checked entries are wrong. Waits for the result.
    ///
    /// # Errors
    ///
    /// The device's.
    fn wrong_entries(&mut self) -> Result<u64>;
}
