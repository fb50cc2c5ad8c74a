//! Reductions: the parts of all ranks to one result, in the order of ranks.

use crate::element::{Combine, DataType, E4m3, E5m2, Element};
use half::{bf16, f16};

/// A reduction as a call asks for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Reduction {
    Plain(Combine),
    /// The sum over the number of ranks.
    Average,
    /// Each rank's part times its own scalar, given as one element's bytes, then the sum.
    Scaled(Scalar),
}

/// The scalar of a reduction of the application's own.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Bytes(Vec<u8>),
    /// Read when the collective runs.
    OnDevice(usize),
}

impl Reduction {
    /// What ranks must agree on: not the scalar, which each rank has its own of.
    pub fn code(&self) -> u8 {
        match self {
            Reduction::Plain(Combine::Sum) => 0,
            Reduction::Plain(Combine::Prod) => 1,
            Reduction::Plain(Combine::Max) => 2,
            Reduction::Plain(Combine::Min) => 3,
            Reduction::Average => 4,
            Reduction::Scaled(_) => 5,
        }
    }
}

/// Calls a function that is generic over the element with the type of `data_type`.
macro_rules! with_element {
    ($data_type:expr, $function:ident($($argument:expr),*)) => {
        match $data_type {
            DataType::I8 => $function::<i8>($($argument),*),
            DataType::U8 => $function::<u8>($($argument),*),
            DataType::I32 => $function::<i32>($($argument),*),
            DataType::U32 => $function::<u32>($($argument),*),
            DataType::I64 => $function::<i64>($($argument),*),
            DataType::U64 => $function::<u64>($($argument),*),
            DataType::F16 => $function::<f16>($($argument),*),
            DataType::F32 => $function::<f32>($($argument),*),
            DataType::F64 => $function::<f64>($($argument),*),
            DataType::Bf16 => $function::<bf16>($($argument),*),
            DataType::F8E4m3 => $function::<E4m3>($($argument),*),
            DataType::F8E5m2 => $function::<E5m2>($($argument),*),
        }
    };
}

/// Reduces `parts`, which are in the order of ranks and as long as `result`.
pub fn reduce(data_type: DataType, how: &Reduction, parts: &[&[u8]], result: &mut [u8]) {
    with_element!(data_type, reduce_elements(how, parts, result));
}

fn reduce_elements<T: Element>(how: &Reduction, parts: &[&[u8]], result: &mut [u8]) {
    let combine = match how {
        Reduction::Plain(combine) => *combine,
        Reduction::Average | Reduction::Scaled(_) => Combine::Sum,
    };
    let (Some((first, others)), ranks) = (parts.split_first(), parts.len()) else { return };
    let mut sums: Vec<T::Wide> = first.chunks_exact(T::SIZE).map(T::load).collect();
    for part in others {
        for (sum, element) in sums.iter_mut().zip(part.chunks_exact(T::SIZE)) {
            *sum = T::combine(combine, *sum, T::load(element));
        }
    }
    for (sum, element) in sums.into_iter().zip(result.chunks_exact_mut(T::SIZE)) {
        T::store(if *how == Reduction::Average { T::divide(sum, ranks) } else { sum }, element);
    }
}

/// Multiplies each element of a rank's part by its scalar.
pub fn scale(data_type: DataType, scalar: &[u8], part: &mut [u8]) {
    with_element!(data_type, scale_elements(scalar, part));
}

fn scale_elements<T: Element>(scalar: &[u8], part: &mut [u8]) {
    let scalar = T::load(scalar);
    for element in part.chunks_exact_mut(T::SIZE) {
        T::store(T::multiply(T::load(element), scalar), element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(data_type: DataType, how: &Reduction, parts: &[Vec<u8>]) -> Vec<u8> {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut result = vec![0; parts[0].len()];
        reduce(data_type, how, &parts, &mut result);
        result
    }

    #[test]
    fn integers_wrap_and_their_mean_rounds_towards_zero() {
        let bytes = |values: [i8; 2]| values.map(|value| value as u8).to_vec();
        let parts = [bytes([100, -3]), bytes([100, 0])];
        let sum = reduced(DataType::I8, &Reduction::Plain(Combine::Sum), &parts);
        assert_eq!(sum, bytes([-56, -3]));
        assert_eq!(reduced(DataType::I8, &Reduction::Average, &parts), bytes([-28, -1]));
        let parts = [u64::MAX, 3].map(|value| value.to_ne_bytes().to_vec());
        let greatest = reduced(DataType::U64, &Reduction::Plain(Combine::Max), &parts);
        assert_eq!(greatest, u64::MAX.to_ne_bytes());
    }

    #[test]
    fn short_floats_are_summed_in_single_precision_and_rounded_once() {
        // In f16 alone 2048 + 1 is 2048, twice.
        let parts = [2048.0, 1.0, 1.0].map(|value| f16::from_f32(value).to_ne_bytes().to_vec());
        let sum = reduced(DataType::F16, &Reduction::Plain(Combine::Sum), &parts);
        assert_eq!(sum, f16::from_f32(2050.0).to_ne_bytes());
    }

    #[test]
    fn a_scalar_multiplies_each_element() {
        let mut part = [1.5_f32, -2.0].map(f32::to_ne_bytes).concat();
        scale(DataType::F32, &4_f32.to_ne_bytes(), &mut part);
        assert_eq!(part, [6.0_f32, -8.0].map(f32::to_ne_bytes).concat());
    }
}
