//! Data types, and arithmetic on one element of each.

use crate::error::{Error, Result};
use crate::float8::Format;
use half::{bf16, f16};
use std::ffi::c_int;

/// A data type, numbered as `ncclDataType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
    Bf16,
    F8E4m3,
    F8E5m2,
}

impl DataType {
    pub fn from_code(code: c_int) -> Result<DataType> {
        use DataType::*;
        let all = [I8, U8, I32, U32, I64, U64, F16, F32, F64, Bf16, F8E4m3, F8E5m2];
        let known = usize::try_from(code).ok().and_then(|code| all.get(code));
        known.copied().ok_or_else(|| Error::argument(format!("{code} is no data type")))
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        use DataType::*;
        match self {
            I8 | U8 | F8E4m3 | F8E5m2 => 1,
            F16 | Bf16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 => 8,
        }
    }
}

/// How two elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    Sum,
    Prod,
    Max,
    Min,
}

/// A data type's bytes and the type in which it is computed.
pub trait Element {
    /// What partial results are kept in: the type itself, `f32` for shorter floating point types.
    type Wide: Copy;
    const SIZE: usize;

    fn load(bytes: &[u8]) -> Self::Wide;
    fn store(value: Self::Wide, bytes: &mut [u8]);
    fn combine(how: Combine, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn multiply(a: Self::Wide, b: Self::Wide) -> Self::Wide {
        Self::combine(Combine::Prod, a, b)
    }
    /// The mean of `count` elements from their sum; integers round towards zero.
    fn divide(sum: Self::Wide, count: usize) -> Self::Wide;
}

macro_rules! integers {
    ($($type:ty),*) => { $(
        impl Element for $type {
            type Wide = $type;
            const SIZE: usize = size_of::<$type>();

            fn load(bytes: &[u8]) -> $type {
                bytes.try_into().map(<$type>::from_ne_bytes).unwrap_or_default()
            }

            fn store(value: $type, bytes: &mut [u8]) {
                bytes.copy_from_slice(&value.to_ne_bytes());
            }

            fn combine(how: Combine, a: $type, b: $type) -> $type {
                match how {
                    Combine::Sum => a.wrapping_add(b),
                    Combine::Prod => a.wrapping_mul(b),
                    Combine::Max => a.max(b),
                    Combine::Min => a.min(b),
                }
            }

            fn divide(sum: $type, count: usize) -> $type {
                (i128::from(sum) / count.max(1) as i128) as $type
            }
        }
    )* };
}

integers!(i8, u8, i32, u32, i64, u64);

macro_rules! float_arithmetic {
    ($wide:ty) => {
        fn combine(how: Combine, a: $wide, b: $wide) -> $wide {
            match how {
                Combine::Sum => a + b,
                Combine::Prod => a * b,
                Combine::Max => a.max(b),
                Combine::Min => a.min(b),
            }
        }

        fn divide(sum: $wide, count: usize) -> $wide {
            sum / count as $wide
        }
    };
}

macro_rules! floats {
    ($($type:ty => $wide:ty, $widen:expr, $narrow:expr;)*) => { $(
        impl Element for $type {
            type Wide = $wide;
            const SIZE: usize = size_of::<$type>();

            fn load(bytes: &[u8]) -> $wide {
                bytes.try_into().map(|bytes| $widen(<$type>::from_ne_bytes(bytes))).unwrap_or_default()
            }

            fn store(value: $wide, bytes: &mut [u8]) {
                bytes.copy_from_slice(&<$type>::to_ne_bytes($narrow(value)));
            }

            float_arithmetic!($wide);
        }
    )* };
}

floats! {
    f32 => f32, std::convert::identity, std::convert::identity;
    f64 => f64, std::convert::identity, std::convert::identity;
    f16 => f32, f16::to_f32, f16::from_f32;
    bf16 => f32, bf16::to_f32, bf16::from_f32;
}

/// The 8-bit formats as types.
pub struct E4m3;
pub struct E5m2;

macro_rules! floats8 {
    ($($type:ty => $format:expr;)*) => { $(
        impl Element for $type {
            type Wide = f32;
            const SIZE: usize = 1;

            fn load(bytes: &[u8]) -> f32 {
                bytes.first().map_or(0.0, |code| $format.decode(*code))
            }

            fn store(value: f32, bytes: &mut [u8]) {
                bytes.copy_from_slice(&[$format.encode(value)]);
            }

            float_arithmetic!(f32);
        }
    )* };
}

floats8! {
    E4m3 => Format::E4m3;
    E5m2 => Format::E5m2;
}
