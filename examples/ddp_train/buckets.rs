//! Gradients in buckets, averaged over the ranks a bucket at a time.

use crate::model::Layer;
use commtrace::collectives::Result;
use commtrace::prelude::*;
use std::ops::Range;

/// Gradients of some neighbouring layers, in the order in which backward makes them: last layer first.
pub struct Bucket<C: Communicator> {
    /// The layers, and where each one's gradients are.
    pub layers: Vec<(usize, Range<usize>)>,
    /// Gradients where the model computes them.
    pub gradients: Vec<f32>,
    /// Where the communicator needs them; not here while they are on their way.
    buffer: Option<C::Owned<f32>>,
    pending: Option<Pending<C::Owned<f32>>>,
}

/// The layers of a bucket, where each one's gradients are in it, and how many they are together.
pub struct Members {
    pub layers: Vec<(usize, Range<usize>)>,
    pub len: usize,
}

/// Divides layers of `lens` parameters into buckets of at least `bytes`, in backward order; the last may be
/// smaller.
pub fn divide(lens: &[usize], bytes: usize) -> Vec<Members> {
    let mut buckets = Vec::new();
    let (mut layers, mut len) = (Vec::new(), 0);
    for (index, layer) in lens.iter().enumerate().rev() {
        layers.push((index, len..len + layer));
        len += layer;
        if len * size_of::<f32>() >= bytes || index == 0 {
            buckets.push(Members { layers: std::mem::take(&mut layers), len });
            len = 0;
        }
    }
    buckets
}

/// Buckets of at least `bytes` for `layers`.
pub fn plan<C: Communicator>(comm: &C, layers: &[Layer], bytes: usize) -> Result<Vec<Bucket<C>>> {
    let lens: Vec<usize> = layers.iter().map(Layer::len).collect();
    let buckets = divide(&lens, bytes).into_iter().map(|Members { layers, len }| {
        let buffer = Some(comm.alloc_zeros(len)?);
        Ok(Bucket { layers, gradients: vec![0.0; len], buffer, pending: None })
    });
    buckets.collect()
}

impl<C: Communicator> Bucket<C> {
    /// Starts averaging; the caller goes on computing.
    pub fn start(&mut self, comm: &C) -> Result<()> {
        if let Some(mut buffer) = self.buffer.take() {
            comm.write(&self.gradients, &mut buffer)?;
            self.pending = Some(comm.all_reduce_in_place_async(buffer, &ReduceOp::Avg));
        }
        Ok(())
    }

    /// Puts the ranks' average into `gradients`: waits for what was started, or averages now.
    pub fn finish(&mut self, comm: &C) -> Result<()> {
        if let Some(pending) = self.pending.take() {
            self.buffer = Some(pending.wait()?);
        } else if let Some(buffer) = &mut self.buffer {
            comm.write(&self.gradients, buffer)?;
            comm.all_reduce_in_place(buffer, &ReduceOp::Avg)?;
        }
        match &self.buffer {
            Some(buffer) => comm.read(buffer, &mut self.gradients),
            None => Ok(()),
        }
    }
}
