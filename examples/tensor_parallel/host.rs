//! Work on the rank's own thread, whatever carries the collectives.

use crate::common::options::Overlap;
use crate::device::{Device, Factor, Result};
use commtrace::prelude::*;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use std::marker::PhantomData;
use std::thread;
use std::time::Duration;

pub struct Host<C>(PhantomData<C>);

impl<C> Host<C> {
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

pub struct Reduction<C: Communicator> {
    /// Not here while it is on its way.
    buffer: Option<C::Owned<f32>>,
    pending: Option<Pending<C::Owned<f32>>>,
}

fn view<'a>(factor: &Factor<'a, Array2<f32>>) -> ArrayView2<'a, f32> {
    if factor.transposed { factor.matrix.t() } else { factor.matrix.view() }
}

impl<C: Communicator> Device for Host<C> {
    type Matrix = Array2<f32>;
    type Comm = C;
    type Reduction = Reduction<C>;
    type Stream = str;

    fn stream(&self) -> &str {
        "cpu"
    }

    fn matrix(&self, values: Array2<f32>) -> Result<Array2<f32>> {
        // Rows one after another, which is how a communicator gets them.
        Ok(values.as_standard_layout().into_owned())
    }

    fn multiply(
        &self,
        left: Factor<'_, Array2<f32>>,
        right: Factor<'_, Array2<f32>>,
        to: &mut Array2<f32>,
    ) -> Result<()> {
        general_mat_mul(1.0, &view(&left), &view(&right), 0.0, to);
        Ok(())
    }

    fn work<const N: usize>(
        &self,
        to: &mut Array2<f32>,
        from: [&Array2<f32>; N],
        work: impl FnOnce(ArrayViewMut2<'_, f32>, [ArrayView2<'_, f32>; N]) + Send + 'static,
    ) -> Result<()> {
        work(to.view_mut(), from.map(|matrix| matrix.view()));
        Ok(())
    }

    fn sleep(&self, time: Duration) -> Result<()> {
        thread::sleep(time);
        Ok(())
    }

    fn read(&self, matrix: &Array2<f32>) -> Result<Array2<f32>> {
        Ok(matrix.clone())
    }

    fn reduction(&self, comm: &C, len: usize) -> Result<Reduction<C>> {
        Ok(Reduction { buffer: Some(comm.alloc_zeros(len)?), pending: None })
    }

    fn start_all_reduce(
        &self,
        comm: &C,
        reduction: &mut Reduction<C>,
        matrix: &Array2<f32>,
        op: &ReduceOp,
        overlap: Overlap,
    ) -> Result<()> {
        let mut buffer = reduction.buffer.take().ok_or("an all_reduce was started twice")?;
        comm.write(matrix.as_slice().ok_or("a matrix is not stored row after row")?, &mut buffer)?;
        if overlap == Overlap::On {
            reduction.pending = Some(comm.all_reduce_in_place_async(buffer, op));
        } else {
            comm.all_reduce_in_place(&mut buffer, op)?;
            reduction.buffer = Some(buffer);
        }
        Ok(())
    }

    fn finish_all_reduce(
        &self,
        comm: &C,
        reduction: &mut Reduction<C>,
        matrix: &mut Array2<f32>,
    ) -> Result<()> {
        if let Some(pending) = reduction.pending.take() {
            reduction.buffer = Some(pending.wait()?);
        }
        let buffer = reduction.buffer.as_ref().ok_or("an all_reduce was finished before its start")?;
        comm.read(buffer, matrix.as_slice_mut().ok_or("a matrix is not stored row after row")?)?;
        Ok(())
    }
}
