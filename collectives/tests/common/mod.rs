//! Values and a slow, obvious reduction to compare with.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use commtrace_collectives::{Element, ReduceOp};
use half::{bf16, f16};

pub mod capture;
pub mod operations;
pub mod under_mpirun;

pub const REDUCTIONS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod];

pub trait Sample: Element {
    /// Some value that depends on both numbers.
    fn sample(rank: usize, index: usize) -> Self;

    /// The reduction of one element, one value per rank.
    fn reduced(op: ReduceOp, values: &[Self]) -> Self;

    /// The value as a real number.
    fn real(self) -> f64;
}

fn noise(rank: usize, index: usize) -> u64 {
    let mut x = (rank as u64) << 40 ^ (index as u64) << 1 ^ 0x9E37_79B9_7F4A_7C15;
    for _ in 0..3 {
        x ^= x >> 30;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 27;
    }
    x
}

/// Between -2 and 2, so that products of 8 stay finite in every type.
fn real(rank: usize, index: usize) -> f64 {
    (noise(rank, index) >> 11) as f64 / (1_u64 << 51) as f64 - 2.0
}

macro_rules! float {
    ($type:ty, $wide:ty, $narrow:expr, $widen:expr) => {
        impl Sample for $type {
            fn sample(rank: usize, index: usize) -> Self {
                $narrow(real(rank, index) as $wide)
            }

            fn reduced(op: ReduceOp, values: &[Self]) -> Self {
                let mut result: $wide = $widen(values[0]);
                for &value in &values[1..] {
                    let value: $wide = $widen(value);
                    result = match op {
                        ReduceOp::Sum | ReduceOp::Avg => result + value,
                        ReduceOp::Prod => result * value,
                        ReduceOp::Min => result.min(value),
                        ReduceOp::Max => result.max(value),
                    };
                }
                if op == ReduceOp::Avg {
                    result /= values.len() as $wide;
                }
                $narrow(result)
            }

            fn real(self) -> f64 {
                f64::from(self)
            }
        }
    };
}

float!(f32, f32, |x| x, |x| x);
float!(f64, f64, |x| x, |x| x);
float!(f16, f32, f16::from_f32, f16::to_f32);
float!(bf16, f32, bf16::from_f32, bf16::to_f32);

macro_rules! integer {
    ($type:ty) => {
        impl Sample for $type {
            fn sample(rank: usize, index: usize) -> Self {
                noise(rank, index) as $type
            }

            fn reduced(op: ReduceOp, values: &[Self]) -> Self {
                let sum = values.iter().fold(0, |sum: $type, &value| sum.wrapping_add(value));
                match op {
                    ReduceOp::Sum => sum,
                    ReduceOp::Avg => (i128::from(sum) / values.len() as i128) as $type,
                    ReduceOp::Prod => values.iter().fold(1, |prod: $type, &value| prod.wrapping_mul(value)),
                    ReduceOp::Min => values.iter().copied().min().unwrap(),
                    ReduceOp::Max => values.iter().copied().max().unwrap(),
                }
            }

            fn real(self) -> f64 {
                self as f64
            }
        }
    };
}

integer!(i32);
integer!(i64);
integer!(u8);

/// What `rank` puts into a call.
pub fn values<T: Sample>(rank: usize, len: usize) -> Vec<T> {
    (0..len).map(|index| T::sample(rank, index)).collect()
}

/// The reduction of [`values`] over `ranks` ranks.
pub fn reduced<T: Sample>(op: ReduceOp, ranks: usize, len: usize) -> Vec<T> {
    (0..len)
        .map(|index| {
            let column: Vec<T> = (0..ranks).map(|rank| T::sample(rank, index)).collect();
            T::reduced(op, &column)
        })
        .collect()
}
