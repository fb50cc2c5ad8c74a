//! Matrix products in a stream: by cuBLAS, or by host functions where that is not installed.

use super::Error;
use super::memory::{Block, enqueue};
use cudarc::cublas::{CudaBlas, result::sgemm, sys::cublasOperation_t};
use cudarc::driver::CudaStream;
use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul};
use std::ffi::c_int;
use std::sync::Arc;

/// A matrix stored row after row.
#[derive(Debug, Clone, Copy)]
pub struct Matrix {
    pub block: Block,
    pub rows: usize,
    pub columns: usize,
    /// It is the transpose that is meant.
    pub transposed: bool,
}

impl Matrix {
    /// `rows` rows at the beginning of `block`.
    pub fn new(block: Block, rows: usize, columns: usize) -> Self {
        Self { block: block.part(0, rows * columns), rows, columns, transposed: false }
    }

    pub fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }

    /// Rows and columns of what is meant.
    fn shape(&self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    /// # Safety
    ///
    /// That of [`Block::values`].
    pub unsafe fn view<'a>(self) -> ArrayView2<'a, f32> {
        // SAFETY: the caller says so.
        let values = unsafe { self.block.values() };
        let view = ArrayView2::from_shape((self.rows, self.columns), values);
        let view = view.expect("a block of rows times columns");
        if self.transposed { view.reversed_axes() } else { view }
    }

    /// # Safety
    ///
    /// That of [`Block::values_mut`].
    pub unsafe fn view_mut<'a>(self) -> ArrayViewMut2<'a, f32> {
        // SAFETY: the caller says so.
        let values = unsafe { self.block.values_mut() };
        let view = ArrayViewMut2::from_shape((self.rows, self.columns), values);
        view.expect("a block of rows times columns")
    }
}

/// What multiplies.
pub enum Products {
    CuBlas(CudaBlas),
    HostFunctions(Arc<CudaStream>),
}

impl Products {
    pub fn new(stream: &Arc<CudaStream>) -> Result<Self, Error> {
        // SAFETY: it loads and unloads the library.
        if unsafe { cudarc::cublas::sys::is_culib_present() } {
            let blas = CudaBlas::new(Arc::clone(stream)).map_err(|error| format!("cuBLAS: {error}"))?;
            Ok(Self::CuBlas(blas))
        } else {
            Ok(Self::HostFunctions(Arc::clone(stream)))
        }
    }

    /// Enqueues `to = left · right`.
    pub fn enqueue(&self, left: Matrix, right: Matrix, to: Matrix) -> Result<(), Error> {
        let ((rows, inner), (_, columns)) = (left.shape(), right.shape());
        assert_eq!((rows, inner, columns), (to.rows, right.shape().0, to.columns));
        match self {
            Self::HostFunctions(stream) => enqueue(stream, move || {
                // SAFETY: in the stream's order, to which all uses of the three blocks belong.
                let (left, right, mut to) = unsafe { (left.view(), right.view(), to.view_mut()) };
                general_mat_mul(1.0, &left, &right, 0.0, &mut to);
            }),
            Self::CuBlas(blas) => {
                // Read column after column, which is how cuBLAS reads, each matrix is its transpose; and
                // the transpose of a product is the product of the transposes the other way round.
                let operation = |matrix: Matrix| match matrix.transposed {
                    true => cublasOperation_t::CUBLAS_OP_T,
                    false => cublasOperation_t::CUBLAS_OP_N,
                };
                let size = |number: usize| c_int::try_from(number);
                let pointer = |matrix: Matrix| matrix.block.address() as *const f32;
                // SAFETY: the blocks are as large as the sizes say (`Matrix::new`), and pinned memory,
                // which kernels may use by its address on the host.
                let done = unsafe {
                    sgemm(
                        *blas.handle(),
                        operation(right),
                        operation(left),
                        size(columns)?,
                        size(rows)?,
                        size(inner)?,
                        &1.0,
                        pointer(right),
                        size(right.columns)?,
                        pointer(left),
                        size(left.columns)?,
                        &0.0,
                        to.block.address() as *mut f32,
                        size(to.columns)?,
                    )
                };
                done.map_err(|error| format!("cuBLAS: {error}").into())
            }
        }
    }
}
