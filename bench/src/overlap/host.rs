//! Both pieces of work on processors: the product on the calling thread, the collective there too or beside it.

use super::{Both, Buffers, Site};
use crate::product::{HostProduct, Product, Real, Sizes};
use crate::record::Schedule;
use crate::timer::{HostTimer, Timer};
use commtrace_collectives::{Communicator, ReduceOp, Result};

/// A rank on processors.
#[derive(Debug, Default)]
pub(crate) struct HostSite {
    timer: HostTimer,
}

impl<C: Communicator> Site<C> for HostSite {
    type Both<T: Real> = HostBoth<T>;

    fn timer(&mut self) -> &mut dyn Timer {
        &mut self.timer
    }

    fn both<T: Real>(&self, sizes: Sizes) -> Result<HostBoth<T>> {
        Ok(HostBoth(HostProduct::new(sizes)))
    }
}

pub(crate) struct HostBoth<T: Real>(HostProduct<T>);

impl<C: Communicator, T: Real> Both<C, T> for HostBoth<T> {
    fn run(&mut self, comm: &C, schedule: Schedule, buffers: &mut Buffers<C, T>) -> Result<()> {
        match schedule {
            Schedule::Serial => {
                buffers.with(|send, recv| comm.all_reduce(send, recv, &ReduceOp::Sum))?;
                self.0.run()
            }
            Schedule::Overlapped => buffers.exchange(|send, recv| {
                let pending = comm.all_reduce_async(send, recv, &ReduceOp::Sum);
                let computed = self.0.run();
                let buffers = pending.wait()?;
                computed.map(|()| buffers)
            }),
        }
    }

    fn product(&mut self) -> &mut dyn Product {
        &mut self.0
    }
}
