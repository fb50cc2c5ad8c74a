//! The product on a processor.

use super::{Product, Real, Sizes};
use commtrace_collectives::Result;

/// Arithmetic that `matrixmultiply` has.
pub(crate) trait Multiply: Real {
    /// `result = left right` of square matrices, row after row.
    ///
    /// # Safety
    ///
    /// Each slice has `dim` times `dim` entries.
    unsafe fn multiply(dim: usize, left: &[Self], right: &[Self], result: &mut [Self]);
}

macro_rules! multiply {
    ($type:ty, $gemm:path) => {
        impl Multiply for $type {
            unsafe fn multiply(dim: usize, left: &[Self], right: &[Self], result: &mut [Self]) {
                let rows = dim as isize;
                let (left, right, result) = (left.as_ptr(), right.as_ptr(), result.as_mut_ptr());
                // SAFETY: three matrices of `dim` rows of `dim` entries each, as the caller says; the result is
                // borrowed alone.
                unsafe { $gemm(dim, dim, dim, 1.0, left, rows, 1, right, rows, 1, 0.0, result, rows, 1) }
            }
        }
    };
}

multiply!(f32, matrixmultiply::sgemm);
multiply!(f64, matrixmultiply::dgemm);

/// Matrices in the host's memory, multiplied on the calling thread.
pub(crate) struct HostProduct<T: Real> {
    sizes: Sizes,
    left: Vec<T::Wide>,
    right: Vec<T::Wide>,
    result: Vec<T::Wide>,
}

impl<T: Real> HostProduct<T> {
    /// Matrices of these sizes.
    pub fn new(sizes: Sizes) -> Self {
        let wide =
            |matrix: Vec<T>| matrix.into_iter().map(|entry| T::Wide::from_f64(entry.to_f64())).collect();
        let result = vec![T::Wide::default(); sizes.entries()];
        Self { sizes, left: wide(sizes.left()), right: wide(sizes.right()), result }
    }
}

impl<T: Real> Product for HostProduct<T> {
    fn run(&mut self) -> Result<()> {
        // SAFETY: `new` made all three of this dimension.
        unsafe { T::Wide::multiply(self.sizes.dim(), &self.left, &self.right, &mut self.result) };
        Ok(())
    }

    fn clear(&mut self) -> Result<()> {
        self.result.fill(T::Wide::default());
        Ok(())
    }

    fn wrong_entries(&mut self) -> Result<u64> {
        Ok(self.sizes.wrong_entries(&self.result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn check<T: Real>() {
        for dim in [1, 3, 64, 100] {
            let mut product = HostProduct::<T>::new(Sizes::new(dim).unwrap());
            assert!(product.wrong_entries().unwrap() > 0, "nothing was computed yet");
            product.run().unwrap();
            assert_eq!(product.wrong_entries(), Ok(0), "{dim} {}", T::DTYPE);
            product.clear().unwrap();
            assert!(product.wrong_entries().unwrap() > 0);
        }
    }

    #[test]
    fn products_of_all_types() {
        check::<f32>();
        check::<f64>();
        check::<f16>();
        check::<bf16>();
    }
}
