//! A collective and a matrix product on a GPU, each on its own stream.

use super::failed;
use super::timer::NcclTimer;
use crate::overlap::{Both, Buffers, Site};
use crate::product::{DeviceProduct, Product, Real, Sizes};
use crate::record::Schedule;
use crate::timer::Timer;
use commtrace_collectives::{NcclComm, ReduceOp, Result};
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// A rank's GPU.
pub(super) struct NcclSite<'c> {
    pub timer: NcclTimer<'c>,
    pub compute: Arc<CudaStream>,
}

impl Site<NcclComm> for NcclSite<'_> {
    type Both<T: Real> = NcclBoth<T>;

    fn timer(&mut self) -> &mut dyn Timer {
        &mut self.timer
    }

    fn both<T: Real>(&self, sizes: Sizes) -> Result<NcclBoth<T>> {
        Ok(NcclBoth {
            product: DeviceProduct::new(&self.compute, sizes)?,
            compute: Arc::clone(&self.compute),
        })
    }
}

/// Both pieces of work.
pub(super) struct NcclBoth<T: Real> {
    product: DeviceProduct<T>,
    compute: Arc<CudaStream>,
}

impl<T: Real> Both<NcclComm, T> for NcclBoth<T> {
    /// What is timed begins and ends on the communicator's stream, so the product waits for its beginning, and its end for
    /// the product.
    fn run(&mut self, comm: &NcclComm, schedule: Schedule, buffers: &mut Buffers<NcclComm, T>) -> Result<()> {
        let collectives = comm.stream();
        let after = |stream: &CudaStream, other: &CudaStream| {
            stream.join(other).map_err(|error| failed("making a stream wait for another", error))
        };
        if schedule == Schedule::Overlapped {
            after(&self.compute, &collectives)?;
        }
        buffers.with(|send, recv| comm.all_reduce(send, recv, &ReduceOp::Sum).map(drop))?;
        if schedule == Schedule::Serial {
            after(&self.compute, &collectives)?;
        }
        self.product.run()?;
        after(&collectives, &self.compute)
    }

    fn product(&mut self) -> &mut dyn Product {
        &mut self.product
    }
}
