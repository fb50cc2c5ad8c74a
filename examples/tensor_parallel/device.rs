//! Where the model's matrices are and its work is done.

use crate::common::options::Overlap;
use commtrace::SpanStream;
use commtrace::prelude::*;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use std::time::Duration;

/// An error that a rank's thread can hand over.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// Does work in the order in which it is asked for: the host at once, a GPU's stream when it comes to it.
pub trait Device {
    type Matrix;
    /// What carries the collectives.
    type Comm: Communicator;
    /// Where the communicator needs a matrix that is being reduced.
    type Reduction;
    /// What spans of compute carry in `stream`.
    type Stream: SpanStream + ?Sized;

    fn stream(&self) -> &Self::Stream;

    fn matrix(&self, values: Array2<f32>) -> Result<Self::Matrix>;

    fn zeros(&self, rows: usize, columns: usize) -> Result<Self::Matrix> {
        self.matrix(Array2::zeros((rows, columns)))
    }

    /// The matrix product of `left` and `right`.
    fn multiply(
        &self,
        left: Factor<'_, Self::Matrix>,
        right: Factor<'_, Self::Matrix>,
        to: &mut Self::Matrix,
    ) -> Result<()>;

    /// Has `work` change `to`, for which it may read `from`.
    fn work<const N: usize>(
        &self,
        to: &mut Self::Matrix,
        from: [&Self::Matrix; N],
        work: impl FnOnce(ArrayViewMut2<'_, f32>, [ArrayView2<'_, f32>; N]) + Send + 'static,
    ) -> Result<()>;

    /// Is busy for that long, without a core.
    fn sleep(&self, time: Duration) -> Result<()>;

    /// A copy, after all work so far.
    fn read(&self, matrix: &Self::Matrix) -> Result<Array2<f32>>;

    /// For matrices of `len` elements.
    fn reduction(&self, comm: &Self::Comm, len: usize) -> Result<Self::Reduction>;

    /// Starts an all_reduce of `matrix`. With `overlap`, work that is asked for before it is
    /// [finished](Self::finish_all_reduce) goes on beside it.
    fn start_all_reduce(
        &self,
        comm: &Self::Comm,
        reduction: &mut Self::Reduction,
        matrix: &Self::Matrix,
        op: &ReduceOp,
        overlap: Overlap,
    ) -> Result<()>;

    /// Puts the result into `matrix`.
    fn finish_all_reduce(
        &self,
        comm: &Self::Comm,
        reduction: &mut Self::Reduction,
        matrix: &mut Self::Matrix,
    ) -> Result<()>;

    /// An all_reduce that what follows depends on.
    fn all_reduce(
        &self,
        comm: &Self::Comm,
        reduction: &mut Self::Reduction,
        matrix: &mut Self::Matrix,
        op: &ReduceOp,
    ) -> Result<()> {
        self.start_all_reduce(comm, reduction, matrix, op, Overlap::Off)?;
        self.finish_all_reduce(comm, reduction, matrix)
    }
}

/// A matrix as a factor of a product.
pub struct Factor<'a, M> {
    pub matrix: &'a M,
    pub transposed: bool,
}

/// The matrix as it is.
pub fn plain<M>(matrix: &M) -> Factor<'_, M> {
    Factor { matrix, transposed: false }
}

pub fn transposed<M>(matrix: &M) -> Factor<'_, M> {
    Factor { matrix, transposed: true }
}
