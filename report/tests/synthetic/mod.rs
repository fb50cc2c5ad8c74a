//! Synthetic training jobs whose truth is known: clocks, noise, stragglers and faults are planted, and the
//! analysis has to find them.
//!
//! A job is `data × tensor × pipeline` ranks (the tensor-parallel index varies fastest, then the
//! data-parallel one), each of which runs, per step:
//!
//! 1. compute `load_batch`; a receive from the previous pipeline stage;
//! 2. per layer compute `attention`, all_reduce of the tensor group, compute `mlp`, all_reduce; a send to
//!    the next stage;
//! 3. a receive from the next stage; per layer compute `backward`, all_reduce of the tensor group, and
//!    beside the compute that follows a reduce_scatter of the data group; a send to the previous stage;
//! 4. when the data group is done, compute `optimizer`, all_gather of the data group, all_reduce of the
//!    world.
//!
//! Groups of one rank do not communicate. A collective ends on all ranks when the last one has arrived and
//! the bytes have been moved, plus noise of each rank.
//!
//! [`JobSpec::simulate`] plays the job into a [`Sink`]: [`timeline`] in memory, [`write_folder`] as record
//! files.

// Every test crate, bench and example uses its own part.
#![allow(dead_code, unused_imports)]

mod clocks;
mod layout;
mod program;
mod random;
mod simulate;
mod sink;
mod truth;

pub use clocks::Clock;
pub use layout::{Communicator, Group, Layout};
pub use random::Random;
pub use sink::{Call, FolderSink, Sink, TimelineSink, timeline, write_folder};
pub use truth::{OpTruth, Truth};

use std::ops::Range;

/// The job and what is planted in it. [`JobSpec::default`] is a small job on one clock without noise.
#[derive(Debug, Clone)]
pub struct JobSpec {
    /// Tensor-parallel size.
    pub tensor: u32,
    /// Data-parallel size.
    pub data: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// Number of steps.
    pub steps: i64,
    /// Layers of each stage.
    pub layers: u32,
    /// Neighbouring ranks that share a host and its clock; `None`: each rank has a clock of its own of
    /// which nothing is known, as in imported traces.
    pub ranks_per_host: Option<u32>,
    /// Clocks begin up to this far apart from true time, either way.
    pub max_offset_ns: f64,
    /// Clocks run too fast or slow by up to this.
    pub max_drift_ppm: f64,
    /// Standard deviation of the time by which a rank sees a call end after the others.
    pub end_noise_ns: f64,
    /// Share of the ends that a rank sees late by `outlier_ns` (exponential).
    pub outlier_share: f64,
    /// Mean lateness of an outlier.
    pub outlier_ns: f64,
    /// Relative standard deviation of compute.
    pub compute_jitter: f64,
    /// Factor on all compute.
    pub compute_scale: f64,
    /// Whether the world's all_reduce at the end of a step is there: without it, and with one group only,
    /// parts of the job are not connected.
    pub world_all_reduce: bool,
    /// Ranks that are late.
    pub stragglers: Vec<Straggler>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Same seed, same job.
    pub seed: u64,
}

impl Default for JobSpec {
    fn default() -> Self {
        Self {
            tensor: 1,
            data: 4,
            pipeline: 1,
            steps: 10,
            layers: 2,
            ranks_per_host: Some(u32::MAX),
            max_offset_ns: 0.0,
            max_drift_ppm: 0.0,
            end_noise_ns: 0.0,
            outlier_share: 0.0,
            outlier_ns: 5e6,
            compute_jitter: 0.0,
            compute_scale: 1.0,
            world_all_reduce: true,
            stragglers: Vec::new(),
            faults: Vec::new(),
            seed: 1,
        }
    }
}

/// A rank whose compute takes longer in some steps.
#[derive(Debug, Clone)]
pub struct Straggler {
    /// Who.
    pub rank: u32,
    /// The compute span that takes longer, once a step: `load_batch`, `attention`, `mlp`, `backward` or
    /// `optimizer`.
    pub span: &'static str,
    /// How much longer.
    pub extra_ns: i64,
    /// In which steps.
    pub steps: Range<i64>,
    /// Every how many of them: 1 for all.
    pub every: i64,
    /// How much more with each step since the first: a rank that drifts.
    pub growth_ns: i64,
}

impl Straggler {
    /// A rank that is late in every step.
    pub fn always(rank: u32, span: &'static str, extra_ns: i64) -> Self {
        Self { rank, span, extra_ns, steps: 0..i64::MAX, every: 1, growth_ns: 0 }
    }

    /// By how much `span` of `rank` takes longer in `step`.
    fn extra_ns(&self, rank: u32, span: &str, step: i64) -> i64 {
        let since = step - self.steps.start;
        let late = rank == self.rank && span == self.span && self.steps.contains(&step);
        if late && since % self.every.max(1) == 0 { self.extra_ns + self.growth_ns * since } else { 0 }
    }
}

/// What goes wrong in a job. A rank whose collective never completes hangs in it: its record has an `open`
/// row and no end.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The rank goes past the group's collective `seq` without entering it. Its later ones of the group
    /// carry numbers that are one too small.
    Skips {
        /// Who.
        rank: u32,
        /// Of which of its groups.
        group: Group,
        /// Which collective.
        seq: u64,
    },
    /// The rank's run ends regularly where it should enter the group's collective `seq`.
    Leaves {
        /// Who.
        rank: u32,
        /// Of which of its groups.
        group: Group,
        /// Which collective.
        seq: u64,
    },
    /// The rank calls the group's collective `seq` with another op or payload.
    Disagrees {
        /// Who.
        rank: u32,
        /// Of which of its groups.
        group: Group,
        /// Which collective.
        seq: u64,
        /// The op that it calls, if another one.
        op: Option<&'static str>,
        /// The payload that it gives, if another one.
        bytes: Option<u64>,
        /// Whether the job hangs there, or goes on with wrong results.
        hangs: bool,
    },
    /// The rank is killed in the middle of the step: its record has no end.
    Killed {
        /// Who.
        rank: u32,
        /// In which step.
        step: i64,
    },
    /// The rank takes part and leaves no record.
    NoRecord {
        /// Who.
        rank: u32,
    },
}

impl JobSpec {
    /// Number of ranks.
    pub fn world_size(&self) -> u32 {
        self.tensor * self.data * self.pipeline
    }

    /// The host of a rank.
    pub fn host(&self, rank: u32) -> u32 {
        self.ranks_per_host.map_or(rank, |ranks| rank / ranks.max(1))
    }

    /// Whether `rank` leaves a record.
    pub fn recorded(&self, rank: u32) -> bool {
        !self.faults.iter().any(|fault| matches!(fault, Fault::NoRecord { rank: silent } if *silent == rank))
    }

    /// Plays the job into `sink` and tells the truth.
    pub fn simulate(&self, sink: &mut impl Sink) -> Truth {
        simulate::simulate(self, sink)
    }
}
