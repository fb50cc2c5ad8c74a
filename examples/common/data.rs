//! The wine quality data set: 11 measurements of a wine, and the grade that tasters gave it.

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

/// Part `part` of `parts` parts of `0..count`, as even as they can be.
pub fn share(part: usize, parts: usize, count: usize) -> Range<usize> {
    count * part / parts..count * (part + 1) / parts
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

    /// Part `part` of the samples of the next step, which has `parts` parts of `batch` samples.
    pub fn next(&mut self, part: usize, parts: usize, batch: usize) -> Vec<usize> {
        let mut of_part = Vec::with_capacity(batch);
        for each in 0..parts {
            for _ in 0..batch {
                if self.next == self.order.len() {
                    self.rng.shuffle(&mut self.order);
                    self.next = 0;
                }
                if each == part {
                    of_part.push(self.order[self.next]);
                }
                self.next += 1;
            }
        }
        of_part
    }
}
