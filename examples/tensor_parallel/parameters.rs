//! Parameters of the model, and how they are divided among the ranks of a replica.

use crate::device::{Device, Result};
use commtrace::prelude::*;
use ndarray::{Array2, Axis, concatenate};
use std::ops::Range;

const MOMENTUM: f32 = 0.9;

/// Which part of a matrix a rank has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shard {
    /// All of it, as every rank.
    Replicated,
    Rows,
    Columns,
}

impl Shard {
    fn axis(self) -> Option<Axis> {
        match self {
            Self::Replicated => None,
            Self::Rows => Some(Axis(0)),
            Self::Columns => Some(Axis(1)),
        }
    }

    /// Part `part` of `parts` equal parts.
    pub fn part(self, whole: Array2<f32>, part: usize, parts: usize) -> Array2<f32> {
        let Some(axis) = self.axis() else { return whole };
        let len = whole.len_of(axis) / parts;
        let indices: Vec<usize> = (part * len..(part + 1) * len).collect();
        whole.select(axis, &indices)
    }

    /// The whole matrix, of the parts of all ranks of `comm`.
    pub fn gather<C: Communicator>(self, comm: &C, part: Array2<f32>) -> Result<Array2<f32>> {
        let Some(axis) = self.axis() else { return Ok(part) };
        let (shape, values) = (part.dim(), part.into_iter().collect::<Vec<_>>());
        let send = comm.alloc_from(&values)?;
        let mut recv = comm.alloc_zeros(values.len() * comm.size())?;
        comm.all_gather(&send, &mut recv)?;
        let parts = comm.to_vec(&recv)?;
        let parts = parts.chunks(values.len()).map(|values| Array2::from_shape_vec(shape, values.to_vec()));
        let parts = parts.collect::<std::result::Result<Vec<_>, _>>()?;
        let views: Vec<_> = parts.iter().map(Array2::view).collect();
        Ok(concatenate(axis, &views)?)
    }
}

/// A matrix that training changes.
pub struct Parameter<M> {
    pub value: M,
    pub gradient: M,
    velocity: M,
    pub shard: Shard,
    /// Of this rank's part.
    shape: (usize, usize),
}

impl<M> Parameter<M> {
    pub fn new<D: Device<Matrix = M>>(device: &D, value: Array2<f32>, shard: Shard) -> Result<Self> {
        let shape = value.dim();
        let zeros = || device.zeros(shape.0, shape.1);
        Ok(Self { gradient: zeros()?, velocity: zeros()?, value: device.matrix(value)?, shard, shape })
    }

    pub fn len(&self) -> usize {
        self.shape.0 * self.shape.1
    }

    /// A step of SGD with momentum.
    pub fn update<D: Device<Matrix = M>>(&mut self, device: &D, learning_rate: f32) -> Result<()> {
        device.work(&mut self.velocity, [&self.gradient], |mut velocity, [gradient]| {
            velocity
                .zip_mut_with(&gradient, |velocity, gradient| *velocity = MOMENTUM * *velocity + gradient);
        })?;
        device.work(&mut self.value, [&self.velocity], move |mut value, [velocity]| {
            value.scaled_add(-learning_rate, &velocity);
        })
    }
}

/// Copies the gradients one after another into `bucket`, a row.
pub fn pack<D: Device>(
    device: &D,
    parameters: &[&mut Parameter<D::Matrix>],
    bucket: &mut D::Matrix,
) -> Result<()> {
    for (range, parameter) in ranges(parameters).into_iter().zip(parameters) {
        device.work(bucket, [&parameter.gradient], move |mut bucket, [gradient]| {
            bucket.iter_mut().skip(range.start).zip(gradient).for_each(|(to, from)| *to = *from);
        })?;
    }
    Ok(())
}

/// The reverse of [`pack`].
pub fn unpack<D: Device>(
    device: &D,
    bucket: &D::Matrix,
    parameters: &mut [&mut Parameter<D::Matrix>],
) -> Result<()> {
    for (range, parameter) in ranges(parameters).into_iter().zip(parameters) {
        device.work(&mut parameter.gradient, [bucket], move |mut gradient, [bucket]| {
            gradient.iter_mut().zip(bucket.iter().skip(range.start)).for_each(|(to, from)| *to = *from);
        })?;
    }
    Ok(())
}

fn ranges<M>(parameters: &[&mut Parameter<M>]) -> Vec<Range<usize>> {
    let mut end = 0;
    let lens = parameters.iter().map(|parameter| parameter.len());
    lens.map(|len| {
        end += len;
        end - len..end
    })
    .collect()
}
