//! The layer's weights, the tokens, and what the layer makes of them when nothing is distributed.
//!
//! Weights and tokens come from seeds, so that every rank can make those of any other.

use crate::args::Args;
use fastrand::Rng;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView1, ArrayView2, Axis, concatenate};

/// Width of an expert's inner layer, in token lengths.
const EXPERT_WIDTH: usize = 4;
/// The same of the shared expert.
const SHARED_WIDTH: usize = 2;
/// Directions of which every token has some at random, besides that of its topic.
const FEATURES: usize = 8;
/// How much of them.
const OWN: f32 = 0.25;

/// What all ranks agree on.
#[derive(Debug, Clone)]
pub struct Model {
    pub hidden: usize,
    pub ranks: usize,
    pub experts_per_rank: usize,
    hot_expert: usize,
    skew: f64,
    tokens: usize,
    /// One row per expert, as if trained: an expert is for the tokens of one topic, and this is what they have in
    /// common.
    pub router: Array2<f32>,
    features: Array2<f32>,
    /// Computes every token of the own rank, as in DeepSeekMoE (Dai et al., 2024): it needs no exchange.
    pub shared: Expert,
}

/// A two-layer perceptron.
#[derive(Debug, Clone)]
pub struct Expert {
    pub up: Array2<f32>,
    pub down: Array2<f32>,
}

/// Where the router sends a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    pub expert: usize,
    /// The router's probability of the expert, by which its output is weighted.
    pub gate: f32,
}

impl Model {
    pub fn new(ranks: usize, args: &Args) -> Self {
        let (hidden, experts) = (args.hidden, ranks * args.experts_per_rank);
        let mut rng = Rng::with_seed(0);
        let mut directions =
            |count| Array2::from_shape_simple_fn((count, hidden), || if rng.bool() { 1.0 } else { -1.0 });
        Self {
            hidden,
            ranks,
            experts_per_rank: args.experts_per_rank,
            hot_expert: args.hot_rank * args.experts_per_rank,
            skew: args.skew,
            tokens: args.tokens,
            router: directions(experts),
            features: directions(FEATURES),
            shared: Expert::new(hidden, SHARED_WIDTH * hidden, u64::MAX),
        }
    }

    /// The number of the expert that gets more than its share.
    pub fn hot_expert(&self) -> usize {
        self.hot_expert
    }

    /// Number of experts of all ranks.
    pub fn experts(&self) -> usize {
        self.ranks * self.experts_per_rank
    }

    /// Expert `number` of all.
    pub fn expert(&self, number: usize) -> Expert {
        Expert::new(self.hidden, EXPERT_WIDTH * self.hidden, number as u64)
    }

    /// What the router's products are divided by, so that gates are neither all alike nor all 1.
    pub fn temperature(&self) -> f32 {
        self.hidden as f32 / 4.0
    }

    /// A rank's tokens in a step, one per row, in two halves with the same mix of topics.
    pub fn tokens(&self, step: usize, rank: usize) -> [Array2<f32>; 2] {
        let mut rng = Rng::with_seed((step * self.ranks + rank + 1) as u64);
        [self.tokens / 2, self.tokens.div_ceil(2)].map(|count| {
            let topics = self.topics(count, step + rank, &mut rng);
            let mut tokens = self.router.select(Axis(0), &topics);
            let own = Array2::from_shape_simple_fn((count, FEATURES), || 2.0 * rng.f32() - 1.0);
            general_mat_mul(OWN, &own, &self.features, 1.0, &mut tokens);
            tokens
        })
    }

    /// A topic (and so, an expert) for each of `count` tokens; those that cannot be shared evenly go to the
    /// experts from `turn` on.
    fn topics(&self, count: usize, turn: usize, rng: &mut Rng) -> Vec<usize> {
        let experts = self.experts();
        let hot = ((count as f64 * self.skew / experts as f64).round() as usize).min(count);
        let mut topics: Vec<usize> = (0..count)
            .map(|token| match experts - 1 {
                others @ 1.. if token >= hot => (self.hot_expert + 1 + (token + turn) % others) % experts,
                _ => self.hot_expert,
            })
            .collect();
        rng.shuffle(&mut topics);
        topics
    }

    /// What the layer gives for `tokens`, all experts computed here.
    pub fn reference(&self, tokens: &Array2<f32>) -> Array2<f32> {
        let choices = choose(tokens.dot(&self.router.t()).view(), self.temperature());
        let mut output = self.shared.forward(tokens.view());
        for number in 0..self.experts() {
            let rows: Vec<usize> = (0..choices.len()).filter(|&row| choices[row].expert == number).collect();
            let of_expert = self.expert(number).forward(tokens.select(Axis(0), &rows).view());
            for (&row, of_expert) in rows.iter().zip(of_expert.outer_iter()) {
                output.row_mut(row).scaled_add(choices[row].gate, &of_expert);
            }
        }
        output
    }
}

impl Expert {
    fn new(hidden: usize, inner: usize, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut matrix = |rows: usize, columns: usize| {
            // He initialization (He et al., Delving Deep into Rectifiers, 2015): variance 2 / rows.
            let bound = (6.0 / rows as f32).sqrt();
            Array2::from_shape_simple_fn((rows, columns), || (rng.f32() * 2.0 - 1.0) * bound)
        };
        Self { up: matrix(hidden, inner), down: matrix(inner, hidden) }
    }

    pub fn forward(&self, tokens: ArrayView2<'_, f32>) -> Array2<f32> {
        let mut inner = tokens.dot(&self.up);
        inner.mapv_inplace(|value| value.max(0.0));
        inner.dot(&self.down)
    }
}

/// The expert with the highest probability per row of the router's products (top-1 gating: Fedus et al., Switch
/// Transformers, 2021).
pub fn choose(products: ArrayView2<'_, f32>, temperature: f32) -> Vec<Choice> {
    let of_row = |row: ArrayView1<'_, f32>| {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let (expert, &largest) = best.unwrap_or((0, &0.0));
        let sum: f32 = row.iter().map(|product| ((product - largest) / temperature).exp()).sum();
        Choice { expert, gate: 1.0 / sum }
    };
    products.outer_iter().map(of_row).collect()
}

/// Two halves as one.
pub fn joined(halves: &[Array2<f32>; 2]) -> Array2<f32> {
    concatenate(Axis(0), &[halves[0].view(), halves[1].view()]).expect("rows of the same length")
}
