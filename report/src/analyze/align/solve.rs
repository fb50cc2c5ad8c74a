//! The weighted normal equations, solved without being stored.

use super::refine::Ends;

/// Clocks that drift apart by much more than this are rare: what the collectives do not settle tends towards
/// the mean drift of all clocks. (Not towards that of the first clock: the many would then outweigh what its
/// own collectives say.)
const USUAL_DRIFT: f64 = 100e-6;

/// The same for offsets, of which nothing is known: only so that every equation has a solution.
const USUAL_OFFSET_NS: f64 = 1e9;

const MAX_ITERATIONS: usize = 100;

/// Squared, relative to the start.
const TOLERANCE: f64 = 1e-18;

/// Ends with the weights of a round.
pub(super) struct Weighted<'a> {
    pub ends: &'a Ends,
    pub weights: &'a [f64],
    /// Half of the length of the run.
    pub half_ns: f64,
    /// Per clock: the drift of the first fit, which the corrections come on top of.
    pub rates: &'a [f64],
}

/// Solves for the corrections, from where they are, by conjugate gradients with the blocks of the diagonal
/// as preconditioner (J. R. Shewchuk, An Introduction to the Conjugate Gradient Method, 1994).
/// `corrections` holds offset and slope of each clock; those of the first stay 0, since only differences
/// are determined.
pub(super) fn solve(problem: &Weighted<'_>, corrections: &mut [f64]) {
    let size = corrections.len();
    let blocks = problem.blocks();
    let mut product = vec![0.0; size];
    problem.apply(corrections, &mut product);
    let mut residual: Vec<f64> = problem.right_side().iter().zip(&product).map(|(b, m)| b - m).collect();
    fix_first(&mut residual);
    let mut preconditioned = vec![0.0; size];
    precondition(&blocks, &residual, &mut preconditioned);
    let mut direction = preconditioned.clone();
    let mut error = dot(&residual, &preconditioned);
    let enough = error * TOLERANCE;
    for _ in 0..MAX_ITERATIONS {
        problem.apply(&direction, &mut product);
        fix_first(&mut product);
        let curvature = dot(&direction, &product);
        // Not so for NaN either.
        if !(error > enough && curvature > 0.0) {
            break;
        }
        let step = error / curvature;
        add(corrections, step, &direction);
        add(&mut residual, -step, &product);
        precondition(&blocks, &residual, &mut preconditioned);
        let next = dot(&residual, &preconditioned);
        let keep = next / error;
        error = next;
        direction.iter_mut().zip(&preconditioned).for_each(|(old, new)| *old = new + keep * *old);
    }
}

impl Weighted<'_> {
    /// The least that is known of each slope and offset.
    fn ridge(&self) -> [f64; 2] {
        let slope = 1.0 / (USUAL_DRIFT * self.half_ns);
        [USUAL_OFFSET_NS.powi(-2), slope * slope]
    }

    /// The normal matrix times `vector`.
    fn apply(&self, vector: &[f64], product: &mut [f64]) {
        let [offset, slope] = self.ridge();
        let mean = mean(vector.iter().skip(1).step_by(2).copied());
        for (out, value) in product.chunks_exact_mut(2).zip(vector.chunks_exact(2)) {
            out[0] = offset * value[0];
            out[1] = slope * (value[1] - mean);
        }
        for row in &self.ends.rows {
            let parts = || self.ends.clock[row.from..row.to].iter().zip(&self.weights[row.from..row.to]);
            let value = |clock: u32| vector[2 * clock as usize] + vector[2 * clock as usize + 1] * row.s;
            let (mut total, mut sum) = (0.0, 0.0);
            for (&clock, weight) in parts() {
                total += weight;
                sum += weight * value(clock);
            }
            if total <= 0.0 {
                continue;
            }
            let mean = sum / total;
            for (&clock, weight) in parts() {
                let pull = weight * (value(clock) - mean);
                product[2 * clock as usize] += pull;
                product[2 * clock as usize + 1] += pull * row.s;
            }
        }
    }

    fn right_side(&self) -> Vec<f64> {
        let mut side = vec![0.0; 2 * self.rates.len()];
        let [_, ridge] = self.ridge();
        let mean = mean(self.rates.iter().copied());
        for (slope, rate) in side.iter_mut().skip(1).step_by(2).zip(self.rates) {
            *slope = -ridge * (rate - mean) * self.half_ns;
        }
        for row in &self.ends.rows {
            let (after, weights) = (&self.ends.after_ns[row.from..row.to], &self.weights[row.from..row.to]);
            let total: f64 = weights.iter().sum();
            if total <= 0.0 {
                continue;
            }
            let mean = after.iter().zip(weights).map(|(after, weight)| after * weight).sum::<f64>() / total;
            for ((&clock, after), weight) in self.ends.clock[row.from..row.to].iter().zip(after).zip(weights)
            {
                let pull = weight * (after - mean);
                side[2 * clock as usize] += pull;
                side[2 * clock as usize + 1] += pull * row.s;
            }
        }
        side
    }

    /// The diagonal's blocks: per clock the entries of offset, both, and slope.
    fn blocks(&self) -> Vec<[f64; 3]> {
        let [offset, slope] = self.ridge();
        let mut blocks = vec![[offset, 0.0, slope]; self.rates.len()];
        for row in &self.ends.rows {
            let weights = &self.weights[row.from..row.to];
            let total: f64 = weights.iter().sum();
            if total <= 0.0 {
                continue;
            }
            for (&clock, weight) in self.ends.clock[row.from..row.to].iter().zip(weights) {
                let own = weight * (1.0 - weight / total);
                let block = &mut blocks[clock as usize];
                block[0] += own;
                block[1] += own * row.s;
                block[2] += own * row.s * row.s;
            }
        }
        blocks
    }
}

/// Of the first clock nothing is solved for.
fn fix_first(vector: &mut [f64]) {
    vector.iter_mut().take(2).for_each(|value| *value = 0.0);
}

fn precondition(blocks: &[[f64; 3]], vector: &[f64], out: &mut [f64]) {
    for ((&[a, b, c], v), out) in blocks.iter().zip(vector.chunks_exact(2)).zip(out.chunks_exact_mut(2)) {
        let determinant = a * c - b * b;
        // Points at one instant: rounding may leave nothing of it.
        if determinant > 1e-12 * a * c {
            out[0] = (c * v[0] - b * v[1]) / determinant;
            out[1] = (a * v[1] - b * v[0]) / determinant;
        } else {
            out[0] = v[0] / a;
            out[1] = v[1] / c;
        }
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, other: &[f64]) {
    to.iter_mut().zip(other).for_each(|(to, other)| *to += factor * other);
}
