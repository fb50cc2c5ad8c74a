//! Softmax cross-entropy.

use ndarray::{Array1, ArrayBase, DataMut, Ix2};

/// How well logits match labels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Score {
    /// Sum of the samples' cross-entropy.
    pub loss_sum: f32,
    /// Samples whose label has the largest logit.
    pub correct: usize,
}

/// Turns logits into the gradient of the mean softmax cross-entropy, and says how good they were.
pub fn cross_entropy<S: DataMut<Elem = f32>>(
    logits: &mut ArrayBase<S, Ix2>,
    labels: &Array1<usize>,
) -> Score {
    let mut score = Score::default();
    let samples = labels.len() as f32;
    for (mut row, &label) in logits.outer_iter_mut().zip(labels) {
        let largest = row.fold(f32::NEG_INFINITY, |largest, &logit| largest.max(logit));
        score.correct += usize::from(row[label] == largest);
        row.mapv_inplace(|logit| (logit - largest).exp());
        let sum = row.sum();
        score.loss_sum -= (row[label] / sum).ln();
        row[label] -= sum;
        row.mapv_inplace(|value| value / (sum * samples));
    }
    score
}
