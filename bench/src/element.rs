//! Element types by name, and the small whole numbers that all of them hold exactly.

use commtrace_collectives::{DType, Element};
use half::{bf16, f16};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// All element types.
pub const DTYPES: [DType; 7] = [
    DType::Float32,
    DType::Float64,
    DType::Float16,
    DType::BFloat16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
];

/// The element type of this name.
///
/// # Errors
///
/// There is none; the message names those that there are.
pub fn parse_dtype(name: &str) -> Result<DType, String> {
    DTYPES.into_iter().find(|dtype| dtype.as_str() == name).ok_or_else(|| {
        format!("no element type {name:?}: expected one of {}", DTYPES.map(DType::as_str).join(", "))
    })
}

/// An element type in JSON, by its name.
pub(crate) mod dtype_name {
    use super::*;

    pub fn serialize<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
        dtype.as_str().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
        parse_dtype(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// An element type that can be measured.
pub trait Number: Element {
    /// The number, exactly: 8 bits are what `bfloat16` has for whole numbers.
    fn from_u8(number: u8) -> Self;
}

macro_rules! number {
    ($($type:ty),*) => {
        $(impl Number for $type {
            fn from_u8(number: u8) -> Self {
                Self::from(number)
            }
        })*
    };
}

number!(f32, f64, f16, bf16, i32, i64, u8);

/// Something to do for an element type that is known only at run time.
pub trait ForNumber {
    /// What comes of it.
    type Output;

    /// Does it for `T`.
    fn call<T: Number>(self) -> Self::Output;
}

/// Does `what` for `dtype`; `None` if it is a type that is not measured.
pub fn for_dtype<F: ForNumber>(dtype: DType, what: F) -> Option<F::Output> {
    Some(match dtype {
        DType::Float32 => what.call::<f32>(),
        DType::Float64 => what.call::<f64>(),
        DType::Float16 => what.call::<f16>(),
        DType::BFloat16 => what.call::<bf16>(),
        DType::Int32 => what.call::<i32>(),
        DType::Int64 => what.call::<i64>(),
        DType::UInt8 => what.call::<u8>(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_holds_every_byte() {
        struct Distinct;
        impl ForNumber for Distinct {
            type Output = (DType, bool);
            fn call<T: Number>(self) -> (DType, bool) {
                let all: Vec<T> = (0..=u8::MAX).map(T::from_u8).collect();
                let distinct = all.iter().enumerate().all(|(at, value)| !all[at + 1..].contains(value));
                (T::DTYPE, distinct)
            }
        }
        for dtype in DTYPES {
            assert_eq!(parse_dtype(dtype.as_str()), Ok(dtype));
            assert_eq!(for_dtype(dtype, Distinct), Some((dtype, true)));
        }
        assert!(parse_dtype("float8").unwrap_err().contains("bfloat16"));
    }
}
