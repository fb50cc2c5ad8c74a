//! Element types and reductions.
//!
//! Reductions fold the ranks' values in rank order, so a result depends on nothing but the values and
//! the number of ranks:
//!
//! - `f16` and `bf16` are summed and multiplied in `f32` and rounded once, at the end.
//! - Integers wrap around in sums and products, as in NCCL. Their average is the (wrapped) sum divided
//!   by the number of ranks, truncated toward zero.
//! - A floating-point average is the sum divided by the number of ranks. (NCCL multiplies every
//!   addend by 1/n instead, so the last bits may differ from it.)
//! - `Min` and `Max` ignore NaN as `fmin` and `fmax` do: the result is NaN only where every rank has NaN. Where
//!   values compare equal (`-0.0` and `0.0`) the lowest rank's is kept.

use std::fmt;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The element type of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// `f32`
    Float32,
    /// `f64`
    Float64,
    /// [`half::f16`]
    Float16,
    /// [`half::bf16`]
    BFloat16,
    /// `i32`
    Int32,
    /// `i64`
    Int64,
    /// `u8`
    UInt8,
}

impl DType {
    /// The name that PyTorch uses (and NCCL, in lower case), for example `float32` or `bfloat16`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::UInt8 => "uint8",
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::UInt8 => 1,
            Self::Float16 | Self::BFloat16 => 2,
            Self::Float32 | Self::Int32 => 4,
            Self::Float64 | Self::Int64 => 8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a reduction combines the ranks' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Largest value.
    Max,
    /// Smallest value.
    Min,
    /// Sum divided by the number of ranks.
    Avg,
}

impl ReduceOp {
    /// The lower-case name, for example `sum`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A type whose values a communicator can move and reduce. Implemented for `f32`, `f64`, [`half::f16`],
/// [`half::bf16`], `i32`, `i64` and `u8`, and for nothing else.
pub trait Element:
    sealed::Arithmetic + sealed::OnDevice + Copy + Default + PartialEq + fmt::Debug + Send + Sync + 'static
{
    /// The type as a value.
    const DTYPE: DType;
}

pub(crate) mod sealed {
    use super::ReduceOp;

    /// What a type needs so that GPU memory can hold it and NCCL can move it.
    #[cfg(feature = "nccl")]
    pub trait OnDevice:
        cudarc::driver::DeviceRepr + cudarc::driver::ValidAsZeroBits + cudarc::nccl::NcclType
    {
    }

    /// Nothing is asked without a backend that uses GPU memory.
    #[cfg(not(feature = "nccl"))]
    pub trait OnDevice {}

    /// The arithmetic of one element type, over slices of equal length. None of it can panic on
    /// slices of equal length; all of it is plain memory and arithmetic.
    pub trait Arithmetic: Sized {
        /// What partial results are held in.
        type Acc: Copy + Default;

        fn load(acc: &mut [Self::Acc], from: &[Self]);
        fn fold(op: ReduceOp, acc: &mut [Self::Acc], from: &[Self]);
        fn finish(op: ReduceOp, ranks: usize, acc: &mut [Self::Acc]);
        fn store(acc: &[Self::Acc], to: &mut [Self]);
    }
}

fn each<A: Copy>(acc: &mut [A], from: &[A], combine: impl Fn(A, A) -> A) {
    for (acc, &value) in acc.iter_mut().zip(from) {
        *acc = combine(*acc, value);
    }
}

macro_rules! element {
    ($type:ty, $dtype:ident) => {
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }

        impl sealed::OnDevice for $type {}
    };
}

macro_rules! float_fold {
    ($op:expr, $acc:expr, $from:expr) => {
        match $op {
            ReduceOp::Sum | ReduceOp::Avg => each($acc, $from, |a, b| a + b),
            ReduceOp::Prod => each($acc, $from, |a, b| a * b),
            ReduceOp::Max => each($acc, $from, |a, b| if b > a || a.is_nan() { b } else { a }),
            ReduceOp::Min => each($acc, $from, |a, b| if b < a || a.is_nan() { b } else { a }),
        }
    };
}

macro_rules! float {
    ($type:ty, $dtype:ident) => {
        element!($type, $dtype);

        impl sealed::Arithmetic for $type {
            type Acc = $type;

            fn load(acc: &mut [$type], from: &[$type]) {
                each(acc, from, |_, value| value);
            }

            fn fold(op: ReduceOp, acc: &mut [$type], from: &[$type]) {
                float_fold!(op, acc, from);
            }

            fn finish(op: ReduceOp, ranks: usize, acc: &mut [$type]) {
                if op == ReduceOp::Avg {
                    acc.iter_mut().for_each(|value| *value /= ranks as $type);
                }
            }

            fn store(acc: &[$type], to: &mut [$type]) {
                each(to, acc, |_, value| value);
            }
        }
    };
}

/// Elements that are converted to `f32` at a time; a stack buffer.
const CONVERT: usize = 512;

macro_rules! half_float {
    ($type:ty, $dtype:ident) => {
        element!($type, $dtype);

        impl sealed::Arithmetic for $type {
            type Acc = f32;

            fn load(acc: &mut [f32], from: &[$type]) {
                from.convert_to_f32_slice(acc);
            }

            fn fold(op: ReduceOp, acc: &mut [f32], from: &[$type]) {
                let mut wide = [0.0_f32; CONVERT];
                for (acc, from) in acc.chunks_mut(CONVERT).zip(from.chunks(CONVERT)) {
                    let (wide, _) = wide.split_at_mut(from.len());
                    from.convert_to_f32_slice(wide);
                    float_fold!(op, acc, wide);
                }
            }

            fn finish(op: ReduceOp, ranks: usize, acc: &mut [f32]) {
                <f32 as sealed::Arithmetic>::finish(op, ranks, acc);
            }

            fn store(acc: &[f32], to: &mut [$type]) {
                to.convert_from_f32_slice(acc);
            }
        }
    };
}

macro_rules! integer {
    ($type:ty, $dtype:ident) => {
        element!($type, $dtype);

        impl sealed::Arithmetic for $type {
            type Acc = $type;

            fn load(acc: &mut [$type], from: &[$type]) {
                each(acc, from, |_, value| value);
            }

            fn fold(op: ReduceOp, acc: &mut [$type], from: &[$type]) {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => each(acc, from, <$type>::wrapping_add),
                    ReduceOp::Prod => each(acc, from, <$type>::wrapping_mul),
                    ReduceOp::Max => each(acc, from, <$type>::max),
                    ReduceOp::Min => each(acc, from, <$type>::min),
                }
            }

            fn finish(op: ReduceOp, ranks: usize, acc: &mut [$type]) {
                // In i64, because the number of ranks need not fit the element type.
                let ranks = i64::try_from(ranks).unwrap_or(i64::MAX).max(1);
                if op == ReduceOp::Avg {
                    acc.iter_mut().for_each(|value| *value = (i64::from(*value) / ranks) as $type);
                }
            }

            fn store(acc: &[$type], to: &mut [$type]) {
                each(to, acc, |_, value| value);
            }
        }
    };
}

float!(f32, Float32);
float!(f64, Float64);
half_float!(f16, Float16);
half_float!(bf16, BFloat16);
integer!(i32, Int32);
integer!(i64, Int64);
integer!(u8, UInt8);

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce<T: Element>(op: ReduceOp, ranks: &[T]) -> T {
        let mut acc = [T::Acc::default()];
        T::load(&mut acc, &ranks[..1]);
        for value in &ranks[1..] {
            T::fold(op, &mut acc, std::slice::from_ref(value));
        }
        T::finish(op, ranks.len(), &mut acc);
        let mut result = [T::default()];
        T::store(&acc, &mut result);
        result[0]
    }

    #[test]
    fn half_precision_rounds_once() {
        // 2048 + 1 is 2048 in f16 (11 bits of precision), so adding 1 twice in f16 would stay at 2048.
        let values = [2048.0, 1.0, 1.0].map(f16::from_f32);
        assert_eq!(reduce(ReduceOp::Sum, &values).to_f32(), 2050.0);
        // The same for bf16, which has 8 bits.
        let values = [256.0, 1.0, 1.0].map(bf16::from_f32);
        assert_eq!(reduce(ReduceOp::Sum, &values).to_f32(), 258.0);
        // 60000 + 60000 overflows f16 (largest finite value 65504), the average does not.
        let values = [60000.0; 2].map(f16::from_f32);
        assert_eq!(reduce(ReduceOp::Avg, &values), f16::from_f32(60000.0));
    }

    #[test]
    fn integers_wrap_and_their_average_truncates() {
        assert_eq!(reduce(ReduceOp::Sum, &[200_u8, 100]), 44);
        assert_eq!(reduce(ReduceOp::Prod, &[i32::MAX, 2]), -2);
        assert_eq!(reduce(ReduceOp::Sum, &[i64::MAX, 1]), i64::MIN);
        assert_eq!(reduce(ReduceOp::Avg, &[-3_i32, -4]), -3);
        assert_eq!(reduce(ReduceOp::Avg, &[3_i64, 4]), 3);
        assert_eq!(reduce(ReduceOp::Avg, &[1_u8; 300]), 0, "300 wraps to 44, and 44 / 300 is 0");
    }

    #[test]
    fn nan_loses_against_numbers() {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            assert_eq!(reduce(op, &[f32::NAN, 1.0]), 1.0);
            assert_eq!(reduce(op, &[1.0, f64::NAN]), 1.0);
            assert_eq!(reduce(op, &[f16::NAN, f16::ONE, f16::NAN]), f16::ONE);
            assert!(reduce(op, &[f32::NAN; 3]).is_nan());
        }
        assert!(reduce(ReduceOp::Sum, &[f32::NAN, 1.0]).is_nan());
    }

    #[test]
    fn equal_zeros_keep_the_lowest_ranks_sign() {
        for op in [ReduceOp::Min, ReduceOp::Max] {
            assert!(reduce(op, &[-0.0_f32, 0.0]).is_sign_negative());
            assert!(reduce(op, &[0.0_f32, -0.0]).is_sign_positive());
        }
    }
}
