//! Work in a GPU's stream: nothing here waits but `read`.

use crate::common::gpu::Streams;
use crate::common::gpu::memory::{Pool, download, enqueue, upload};
use crate::common::gpu::products::{self, Products};
use crate::common::options::Overlap;
use crate::device::{Device, Factor, Result};
use commtrace::prelude::*;
use cudarc::driver::{CudaSlice, CudaStream};
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

pub struct Gpu {
    stream: Arc<CudaStream>,
    products: Products,
    /// Of all matrices, which only the stream's work uses.
    pool: RefCell<Pool>,
}

impl Gpu {
    pub fn new(streams: &Streams) -> Result<Self> {
        let stream = Arc::clone(&streams.compute);
        Ok(Self { products: Products::new(&stream)?, pool: RefCell::new(Pool::new(&stream)), stream })
    }
}

/// A matrix in memory of the device's pool.
pub struct Matrix(products::Matrix);

impl Device for Gpu {
    type Matrix = Matrix;
    type Comm = NcclComm;
    type Reduction = CudaSlice<f32>;
    type Stream = Arc<CudaStream>;

    fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    fn matrix(&self, values: Array2<f32>) -> Result<Matrix> {
        let block = self.pool.borrow_mut().block(values.len())?;
        let matrix = products::Matrix::new(block, values.nrows(), values.ncols());
        // SAFETY: the block is new, so no work uses it.
        unsafe { matrix.view_mut() }.assign(&values);
        Ok(Matrix(matrix))
    }

    fn multiply(&self, left: Factor<'_, Matrix>, right: Factor<'_, Matrix>, to: &mut Matrix) -> Result<()> {
        let [left, right] = [left, right].map(|factor| match factor.transposed {
            true => factor.matrix.0.transposed(),
            false => factor.matrix.0,
        });
        self.products.enqueue(left, right, to.0)
    }

    fn work<const N: usize>(
        &self,
        to: &mut Matrix,
        from: [&Matrix; N],
        work: impl FnOnce(ArrayViewMut2<'_, f32>, [ArrayView2<'_, f32>; N]) + Send + 'static,
    ) -> Result<()> {
        let (to, from) = (to.0, from.map(|matrix| matrix.0));
        enqueue(&self.stream, move || {
            // SAFETY: in the order of the stream, to which all uses of the blocks belong; `to` was borrowed
            // mutably and so is none of `from`.
            let (to, from) = unsafe { (to.view_mut(), from.map(|matrix| matrix.view())) };
            work(to, from);
        })
    }

    fn sleep(&self, time: Duration) -> Result<()> {
        enqueue(&self.stream, move || std::thread::sleep(time))
    }

    fn read(&self, matrix: &Matrix) -> Result<Array2<f32>> {
        self.stream.synchronize()?;
        // SAFETY: nothing is enqueued.
        Ok(unsafe { matrix.0.view() }.to_owned())
    }

    fn reduction(&self, _: &NcclComm, len: usize) -> Result<CudaSlice<f32>> {
        Ok(self.stream.alloc_zeros(len)?)
    }

    /// It overlaps if the communicator has a stream of its own, which `--overlap on` gives it.
    fn start_all_reduce(
        &self,
        comm: &NcclComm,
        reduction: &mut CudaSlice<f32>,
        matrix: &Matrix,
        op: &ReduceOp,
        _: Overlap,
    ) -> Result<()> {
        upload(&self.stream, matrix.0.block, reduction)?;
        comm.all_reduce_in_place(reduction, op)?;
        Ok(())
    }

    fn finish_all_reduce(
        &self,
        _: &NcclComm,
        reduction: &mut CudaSlice<f32>,
        matrix: &mut Matrix,
    ) -> Result<()> {
        // The slice's own events make this stream wait for the sum.
        download(&self.stream, reduction, matrix.0.block)
    }
}
