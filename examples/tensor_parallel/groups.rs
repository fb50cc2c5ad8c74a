//! Which ranks divide layers, and which divide batches.

use crate::device::Result;
use commtrace::collectives;
use commtrace::prelude::*;

/// This rank's communicators. Neighbouring ranks divide layers, as they exchange most: rank `r` is number `r % t` of
/// the `t` ranks of replica `r / t`.
pub struct Groups<'w, C> {
    pub world: &'w C,
    /// None if that is the world.
    tensor: Option<C>,
    /// The ranks that have the same part of each replica's layers; none if there is one replica.
    pub data: Option<C>,
    pub replica: usize,
}

impl<'w, C: Communicator> Groups<'w, C> {
    /// Groups of `tensor_parallel` ranks, by the communicator's own `split`.
    pub fn new(
        world: &'w C,
        tensor_parallel: usize,
        split: impl Fn(&C, u32, u32) -> collectives::Result<C>,
    ) -> Result<Self> {
        let rank = world.rank();
        let (replica, part) = (rank / tensor_parallel, rank % tensor_parallel);
        if world.size() == tensor_parallel {
            return Ok(Self { world, tensor: None, data: None, replica });
        }
        let (rank, color, other) = (u32::try_from(rank)?, u32::try_from(replica)?, u32::try_from(part)?);
        let tensor = split(world, color, rank)?;
        let data = split(world, other, rank)?;
        Ok(Self { world, tensor: Some(tensor), data: Some(data), replica })
    }

    /// The ranks that divide this replica's layers.
    pub fn tensor(&self) -> &C {
        self.tensor.as_ref().unwrap_or(self.world)
    }

    pub fn replicas(&self) -> usize {
        self.data.as_ref().map_or(1, C::size)
    }
}
