//! NCCL's data types, encoded the slow and obvious way.

use half::{bf16, f16};

/// A data type, numbered as NCCL does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
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
    E4m3,
    E5m2,
}

use Type::*;

impl Type {
    pub const ALL: [Type; 12] = [I8, U8, I32, U32, I64, U64, F16, F32, F64, Bf16, E4m3, E5m2];

    pub fn code(self) -> u32 {
        self as u32
    }

    /// The bytes of a small number that is not negative.
    pub fn encode(self, x: f64) -> Vec<u8> {
        match self {
            I8 => (x as i8).to_ne_bytes().to_vec(),
            U8 => (x as u8).to_ne_bytes().to_vec(),
            I32 => (x as i32).to_ne_bytes().to_vec(),
            U32 => (x as u32).to_ne_bytes().to_vec(),
            I64 => (x as i64).to_ne_bytes().to_vec(),
            U64 => (x as u64).to_ne_bytes().to_vec(),
            F16 => f16::from_f32(x as f32).to_ne_bytes().to_vec(),
            F32 => (x as f32).to_ne_bytes().to_vec(),
            F64 => x.to_ne_bytes().to_vec(),
            Bf16 => bf16::from_f32(x as f32).to_ne_bytes().to_vec(),
            E4m3 => vec![nearest(x, 0x7e, e4m3)],
            E5m2 => vec![nearest(x, 0x7b, e5m2)],
        }
    }
}

/// Four bits of exponent, biased by 7, and three of mantissa.
fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3), f64::from(code & 7));
    if exponent == 0 { mantissa / 8.0 / 64.0 } else { (1.0 + mantissa / 8.0) * 2_f64.powi(exponent - 7) }
}

/// The upper half of an f16.
fn e5m2(code: u8) -> f64 {
    f16::from_bits(u16::from(code) << 8).to_f64()
}

/// The code whose value is nearest; of two that are equally near, the even one.
fn nearest(x: f64, largest: u8, value: fn(u8) -> f64) -> u8 {
    let codes = 0..=largest;
    let distance = |code: &u8| ((value(*code) - x).abs(), code % 2);
    codes.min_by(|a, b| distance(a).partial_cmp(&distance(b)).unwrap()).unwrap()
}

/// Numbers of all magnitudes that sums round, the same for the same seed.
pub fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mut state = seed as u64 + 1;
    let mut next = || {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count).map(|_| (next() as i32 as f32) * 2_f32.powi((next() % 40) as i32 - 50)).collect()
}
