//! The wine quality data set: 11 measurements of a wine, and the grade that tasters gave it.

use commtrace::collectives::Communicator;
use fastrand::Rng;
use ndarray::{Array1, Array2, Axis};
use std::ops::Range;

/// Grades as classes 0, 1, ...
#[derive(Debug)]
pub struct Data {
    pub train: Samples,
    pub test: Samples,
    pub classes: usize,
}

/// One row of `features` per sample.
#[derive(Debug)]
pub struct Samples {
    pub features: Array2<f32>,
    pub labels: Array1<usize>,
}

/// The data set in random order (the same in every run), features with mean 0 and deviation 1; a fifth
/// of it for testing.
pub fn load() -> Data {
    let dataset = linfa_datasets::winequality();
    let lowest = dataset.targets.iter().min().copied().unwrap_or(0);
    let labels = dataset.targets.mapv(|grade| grade - lowest);
    let classes = labels.iter().max().map_or(1, |highest| highest + 1);

    let mut order: Vec<usize> = (0..labels.len()).collect();
    Rng::with_seed(0).shuffle(&mut order);
    let (test, train) = order.split_at(order.len() / 5);

    let mut features = dataset.records.mapv(|value| value as f32);
    let known = features.select(Axis(0), train);
    if let Some(mean) = known.mean_axis(Axis(0)) {
        features = (features - mean) / known.std_axis(Axis(0), 0.0).mapv(|deviation| deviation.max(1e-6));
    }
    let all = Samples { features, labels };
    Data { train: all.select(train), test: all.select(test), classes }
}

impl Samples {
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn select(&self, rows: &[usize]) -> Self {
        Self { features: self.features.select(Axis(0), rows), labels: self.labels.select(Axis(0), rows) }
    }
}

/// The part of `0..count` that is for this rank, as even as it can be.
pub fn share<C: Communicator>(comm: &C, count: usize) -> Range<usize> {
    let bound = |rank: usize| count * rank / comm.size();
    bound(comm.rank())..bound(comm.rank() + 1)
}

/// Which samples each step trains on. All ranks draw the same order and take their own part of it.
#[derive(Debug)]
pub struct Batches {
    rng: Rng,
    order: Vec<usize>,
    next: usize,
}

impl Batches {
    pub fn new(samples: usize) -> Self {
        Self { rng: Rng::with_seed(1), order: (0..samples).collect(), next: samples }
    }

    /// The samples of the next step for a rank with `batch` samples per step.
    pub fn next<C: Communicator>(&mut self, comm: &C, batch: usize) -> Vec<usize> {
        let mut of_rank = Vec::with_capacity(batch);
        for rank in 0..comm.size() {
            for _ in 0..batch {
                if self.next == self.order.len() {
                    self.rng.shuffle(&mut self.order);
                    self.next = 0;
                }
                if rank == comm.rank() {
                    of_rank.push(self.order[self.next]);
                }
                self.next += 1;
            }
        }
        of_rank
    }
}
