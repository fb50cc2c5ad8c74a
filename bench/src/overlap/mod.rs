//! The overlap experiment: an all_reduce and a matrix product, one after the other and at the same time.

mod decide;
mod host;
mod measure;

pub(crate) use decide::{compare, decide};
pub(crate) use host::HostSite;
pub(crate) use measure::measure;

use crate::product::{Product, Real, Sizes};
use crate::record::Schedule;
use crate::timer::Timer;
use commtrace_collectives::{Communicator, Result};

/// Where a rank's work is done and timed.
pub(crate) trait Site<C: Communicator> {
    /// The two pieces of work.
    type Both<T: Real>: Both<C, T>;

    /// What times calls.
    fn timer(&mut self) -> &mut dyn Timer;

    /// A collective and a product of these sizes.
    ///
    /// # Errors
    ///
    /// What multiplies is missing, or memory.
    fn both<T: Real>(&self, sizes: Sizes) -> Result<Self::Both<T>>;
}

/// An all_reduce and a product of matrices on one rank.
pub(crate) trait Both<C: Communicator, T: Real> {
    /// Runs both in the order of `schedule`; what a timer that is stopped next sees the end of.
    ///
    /// # Errors
    ///
    /// Those of either.
    fn run(&mut self, comm: &C, schedule: Schedule, buffers: &mut Buffers<C, T>) -> Result<()>;

    /// The product.
    fn product(&mut self) -> &mut dyn Product;
}

/// The buffers of the all_reduce; gone after an error of a call that owned them.
pub(crate) struct Buffers<C: Communicator, T: Real>(Option<(C::Owned<T>, C::Owned<T>)>);

impl<C: Communicator, T: Real> Buffers<C, T> {
    fn new(comm: &C, payload: usize) -> Result<Self> {
        Ok(Self(Some((comm.alloc_zeros(payload)?, comm.alloc_zeros(payload)?))))
    }

    /// Uses what is sent and what is received; does nothing if they are gone.
    pub fn with(
        &mut self,
        call: impl FnOnce(&mut C::Buffer<T>, &mut C::Buffer<T>) -> Result<()>,
    ) -> Result<()> {
        match &mut self.0 {
            Some((send, recv)) => call(send, recv),
            None => Ok(()),
        }
    }

    /// Gives both away and puts what `call` gives in their place.
    fn exchange(
        &mut self,
        call: impl FnOnce(C::Owned<T>, C::Owned<T>) -> Result<(C::Owned<T>, C::Owned<T>)>,
    ) -> Result<()> {
        if let Some((send, recv)) = self.0.take() {
            self.0 = Some(call(send, recv)?);
        }
        Ok(())
    }
}
