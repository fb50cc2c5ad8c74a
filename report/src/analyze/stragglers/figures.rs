//! Who makes others wait: the figures.

use serde::{Deserialize, Serialize};

/// How a rank's collectives went, whether it is a straggler or not. Sums over the complete collectives that
/// make each rank wait for all others; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankWaits {
    /// Global rank.
    pub rank: u32,
    /// Collectives that it took part in.
    pub collectives: u64,
    /// How often it alone arrived last.
    pub arrived_last: u64,
    /// Wait of other ranks that it caused. Who waits, waits for those who have not arrived: at every instant,
    /// each of these bears an equal share. What a rank inherited (it was late because it had waited in
    /// another communicator) is charged to the rank that it had waited for.
    pub caused_wait_ms: f64,
    /// Its own wait.
    pub suffered_wait_ms: f64,
    /// Own time (not in exposed communication) per step of the rank that needs least, divided by this
    /// rank's: 1 for the fastest. `None` for fewer than ten steps.
    pub relative_score: Option<f64>,
    /// Own time per step in the fastest tenth of the run, divided by that in the last tenth: below 1 if the
    /// rank became slower. `None` for fewer than ten steps.
    pub individual_score: Option<f64>,
}

/// A rank that makes others wait, clearly more than chance and noise explain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Straggler {
    /// Global rank.
    pub rank: u32,
    /// How often it alone arrived last.
    pub arrived_last: u64,
    /// Collectives that it took part in.
    pub collectives: u64,
    /// Wait of other ranks that it caused, as in [`RankWaits::caused_wait_ms`].
    pub caused_wait_ms: f64,
    /// Its own wait.
    pub suffered_wait_ms: f64,
    /// The compute span in which it spends more time than the others in the same steps; `None` if no recorded
    /// span explains at least half of its lateness.
    pub span: Option<String>,
    /// The label of that span, where most of the time is in spans with the same label.
    pub span_label: Option<String>,
    /// Time per step that it spends in the span beyond the median of the others; per late step if it is late in
    /// some steps only.
    pub span_excess_ms: Option<f64>,
    /// How much later than the median of the others it came by its own time, per step (or late step, as above);
    /// counted where others had nothing to compute meanwhile.
    pub late_ms: f64,
    /// The part of `late_ms` that is not in `span`: outside recorded spans, or spread over several.
    pub outside_span_ms: f64,
    /// Sum of that lateness over the run, divided by the run's length.
    pub lost_share: f64,
    /// When it is late.
    pub pattern: Pattern,
    /// Whether `steps` are the application's. If it recorded none, they are equal stretches of the run's time,
    /// and "per step" means per stretch.
    pub by_step: bool,
    /// Steps (blocks of steps, if there are very many) that were judged.
    pub steps: u64,
    /// Steps in which it was late.
    pub late_steps: u64,
    /// The first late steps' numbers, for a rank that is late in some steps only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_step_numbers: Vec<i64>,
    /// Its excess over the other ranks, divided by how much that varies over the run: how sure the claim is.
    /// `None` if it does not vary, and for a rank that is late in some steps only.
    pub excess_to_noise: Option<f64>,
    /// As in [`RankWaits::relative_score`].
    pub relative_score: Option<f64>,
    /// As in [`RankWaits::individual_score`].
    pub individual_score: Option<f64>,
}

/// When a straggler is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Pattern {
    /// By about the same time in every part of the run.
    Throughout,
    /// In some steps, again and again or for half of the run.
    SomeSteps,
    /// By more and more (or less and less) time.
    Drifting,
}

impl Pattern {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Throughout => "throughout",
            Self::SomeSteps => "some_steps",
            Self::Drifting => "drifting",
        }
    }
}
