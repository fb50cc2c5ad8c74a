//! Matrices whose product is known, and the comparison with it.

use super::Real;

/// Square matrices of this dimension, stored row after row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    dim: usize,
}

/// Rows and columns that are checked at most: their crossings are the checked entries.
const CHECKED: usize = 24;

impl Sizes {
    /// Of dimension `dim`.
    ///
    /// # Errors
    ///
    /// It is 0, or so large that not even half-precision matrices could be stored or the sums be told apart.
    pub fn new(dim: u32) -> Result<Self, String> {
        match dim {
            1..=16_384 => Ok(Self { dim: dim as usize }),
            _ => Err(format!("matrices of dimension {dim}: expected 1 to 16384")),
        }
    }

    /// Rows, and columns.
    pub fn dim(self) -> usize {
        self.dim
    }

    /// Entries of a matrix.
    pub fn entries(self) -> usize {
        self.dim * self.dim
    }

    /// The left matrix. Entries of both are eighths from 4/8 to 12/8: exact in all types, and positive, so that what is
    /// missing in a sum shows in it.
    pub fn left<T: Real>(self) -> Vec<T> {
        (0..self.entries()).map(|at| T::from_f64(entry(at / self.dim, at % self.dim, 1))).collect()
    }

    /// The right matrix.
    pub fn right<T: Real>(self) -> Vec<T> {
        (0..self.entries()).map(|at| T::from_f64(entry(at / self.dim, at % self.dim, 2))).collect()
    }

    /// How many of the checked entries of `result` are wrong: spread over all rows and columns, the last of both
    /// among them, and computed one by one in `f64`.
    ///
    /// What is allowed is two roundings of the element type: of the result, and of what a library may keep in
    /// between; the sums themselves are exact.
    pub fn wrong_entries<T: Real>(self, result: &[T]) -> u64 {
        let places: Vec<usize> = (0..self.dim.min(CHECKED)).map(|nth| self.place(nth)).collect();
        let mut wrong = 0;
        for &row in &places {
            for &column in &places {
                let expected: f64 =
                    (0..self.dim).map(|inner| entry(row, inner, 1) * entry(inner, column, 2)).sum();
                let got = result.get(row * self.dim + column).map_or(f64::NAN, |got| got.to_f64());
                let close = (got - expected).abs() <= 2.0 * T::EPSILON * expected;
                wrong += u64::from(!close);
            }
        }
        wrong
    }

    fn place(self, nth: usize) -> usize {
        let last = self.dim - 1;
        match self.dim.min(CHECKED) - 1 {
            0 => 0,
            steps => nth * last / steps,
        }
    }
}

/// An entry, without a pattern that a wrong order of rows and columns would leave alike.
fn entry(row: usize, column: usize, matrix: usize) -> f64 {
    let mixed = (row * 31 + column * 17 + row * column * 7 + matrix * 5) % 9;
    (4 + mixed) as f64 / 8.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    fn slow<T: Real>(sizes: Sizes) -> Vec<T> {
        let (dim, left, right) = (sizes.dim(), sizes.left::<T>(), sizes.right::<T>());
        let at = |at: usize| {
            let (row, column) = (at / dim, at % dim);
            (0..dim).map(|k| left[row * dim + k].to_f64() * right[k * dim + column].to_f64()).sum()
        };
        (0..sizes.entries()).map(|place| T::from_f64(at(place))).collect()
    }

    #[test]
    fn right_and_wrong_products() {
        for dim in [1, 2, 7, 24, 61] {
            let sizes = Sizes::new(dim).unwrap();
            let mut result = slow::<bf16>(sizes);
            assert_eq!(sizes.wrong_entries(&result), 0, "{dim}");
            *result.last_mut().unwrap() = bf16::from_f64(0.0);
            assert_eq!(sizes.wrong_entries(&result), 1, "{dim}");
            let checked = u64::from(dim.min(24)).pow(2);
            assert_eq!(sizes.wrong_entries(&vec![bf16::NAN; sizes.entries()]), checked);
            assert_eq!(sizes.wrong_entries::<bf16>(&[]), checked);
        }
        assert!(Sizes::new(0).is_err() && Sizes::new(20_000).is_err());
    }

    #[test]
    fn a_transposed_product_is_wrong() {
        let sizes = Sizes::new(31).unwrap();
        let result = slow::<f32>(sizes);
        let transposed: Vec<f32> = (0..31 * 31).map(|at| result[at % 31 * 31 + at / 31]).collect();
        assert!(sizes.wrong_entries(&transposed) > 24);
    }
}
