//! The product itself: column after column, in double precision, rounded once.

use half::{bf16, f16};
use std::ffi::{c_int, c_void};

/// `cudaDataType_t`, those that are modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    F32,
    F64,
    F16,
    Bf16,
}

impl Type {
    pub fn of(code: c_int) -> Option<Type> {
        match code {
            0 => Some(Type::F32),
            1 => Some(Type::F64),
            2 => Some(Type::F16),
            14 => Some(Type::Bf16),
            _ => None,
        }
    }

    /// Whether `cublasComputeType_t` is the one that goes with it: 64F for f64, else 32F.
    pub fn computes_in(self, code: c_int) -> bool {
        code == if self == Type::F64 { 70 } else { 68 }
    }

    /// # Safety
    ///
    /// `value` points to an f64 if this is f64, else to an f32.
    pub unsafe fn scalar(self, value: *const c_void) -> f64 {
        match self {
            // SAFETY: the caller says so.
            Type::F64 => unsafe { value.cast::<f64>().read_unaligned() },
            // SAFETY: as above.
            _ => f64::from(unsafe { value.cast::<f32>().read_unaligned() }),
        }
    }

    /// # Safety
    ///
    /// `array` points to more than `at` elements.
    unsafe fn load(self, array: usize, at: usize) -> f64 {
        // SAFETY: the caller says so.
        unsafe {
            match self {
                Type::F32 => f64::from((array as *const f32).add(at).read()),
                Type::F64 => (array as *const f64).add(at).read(),
                Type::F16 => (array as *const f16).add(at).read().to_f64(),
                Type::Bf16 => (array as *const bf16).add(at).read().to_f64(),
            }
        }
    }

    /// # Safety
    ///
    /// As for `load`.
    unsafe fn store(self, array: usize, at: usize, value: f64) {
        // SAFETY: the caller says so.
        unsafe {
            match self {
                Type::F32 => (array as *mut f32).add(at).write(value as f32),
                Type::F64 => (array as *mut f64).add(at).write(value),
                Type::F16 => (array as *mut f16).add(at).write(f16::from_f64(value)),
                Type::Bf16 => (array as *mut bf16).add(at).write(bf16::from_f64(value)),
            }
        }
    }
}

/// C = A B, with A of `m` rows and `k` columns, B of `k` and `n`, all stored column after column.
#[derive(Debug)]
pub struct Gemm {
    pub element: Type,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: usize,
    pub lda: usize,
    pub b: usize,
    pub ldb: usize,
    pub c: usize,
    pub ldc: usize,
}

impl Gemm {
    /// # Safety
    ///
    /// The matrices lie at `a`, `b` and `c`, and nothing else writes them.
    pub unsafe fn run(&self) {
        let Gemm { element, m, n, k, a, lda, b, ldb, c, ldc } = *self;
        let mut column = vec![0.0; m];
        for j in 0..n {
            column.fill(0.0);
            for l in 0..k {
                // SAFETY: within the matrices' sizes, here and below.
                let factor = unsafe { element.load(b, j * ldb + l) };
                for (i, sum) in column.iter_mut().enumerate() {
                    *sum += unsafe { element.load(a, l * lda + i) } * factor;
                }
            }
            for (i, sum) in column.iter().enumerate() {
                unsafe { element.store(c, j * ldc + i, *sum) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_stored_one_after_the_other() {
        // [1 3; 2 4] [5 7; 6 8] = [23 31; 34 46]
        let (a, b, mut c) = ([1.0_f32, 2.0, 3.0, 4.0], [5.0_f32, 6.0, 7.0, 8.0], [0.0_f32; 4]);
        let [a, b] = [&a, &b].map(|matrix| matrix.as_ptr() as usize);
        let c_address = c.as_mut_ptr() as usize;
        let (m, n, k) = (2, 2, 2);
        let gemm = Gemm { element: Type::F32, m, n, k, a, lda: 2, b, ldb: 2, c: c_address, ldc: 2 };
        // SAFETY: three arrays of four.
        unsafe { gemm.run() };
        assert_eq!(c, [23.0, 34.0, 31.0, 46.0]);
    }
}
