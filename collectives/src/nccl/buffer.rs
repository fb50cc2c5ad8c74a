//! Device memory that generic training code owns.

use std::ops::{Deref, DerefMut};

use cudarc::driver::CudaSlice;

/// A buffer in device memory, as [`Communicator`](crate::Communicator) hands it out: a [`CudaSlice`].
#[derive(Debug)]
pub struct NcclBuffer<T>(CudaSlice<T>);

impl<T> NcclBuffer<T> {
    /// The slice itself.
    pub fn into_inner(self) -> CudaSlice<T> {
        self.0
    }
}

impl<T> From<CudaSlice<T>> for NcclBuffer<T> {
    fn from(slice: CudaSlice<T>) -> Self {
        Self(slice)
    }
}

impl<T> Deref for NcclBuffer<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.0
    }
}

impl<T> DerefMut for NcclBuffer<T> {
    fn deref_mut(&mut self) -> &mut CudaSlice<T> {
        &mut self.0
    }
}
