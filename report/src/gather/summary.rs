//! What processes tell of themselves, and how it adds up.

use crate::analyze::{RankReport, Report};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Tells the processes of a run apart, and orders them by their lowest rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its lowest global rank; `None` if it recorded nothing and no launcher told.
    pub rank: Option<u32>,
    /// Host name.
    pub host: String,
    /// The host's boot id: processes with the same one have the same clock.
    pub boot_id: String,
    /// Process id.
    pub pid: u32,
    /// Start of the recording, nanoseconds since the Unix epoch.
    pub start_unix_ns: i64,
}

/// What one process recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessSummary {
    /// Figures of its ranks, exact.
    pub ranks: Vec<RankReport>,
    /// Earliest start of all, on CLOCK_MONOTONIC, which the steps' starts are counted from.
    pub base_ns: Option<i64>,
    /// Intervals that the figures are over.
    pub events: u64,
    /// Those left out, per reason.
    pub skipped: IndexMap<String, u64>,
    /// Those that are odd, per kind.
    pub anomalies: IndexMap<String, u64>,
    /// What a reader of the figures has to know, each a whole sentence.
    pub warnings: BTreeSet<String>,
    /// Rows without a step that the samples do not hold.
    pub left_out: u64,
    /// The names of its record files; none where it wrote none.
    pub files: BTreeSet<String>,
    /// Some of its rows, per rank.
    #[serde(skip)]
    pub samples: Vec<Sample>,
}

/// A part of one rank's rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Global rank.
    pub rank: u32,
    /// One in how many steps it holds, a power of two.
    pub stride: u64,
    /// The rows as a record file.
    pub record: Vec<u8>,
}

/// What some processes of a run recorded, and who is known to be missing.
///
/// ```
/// use commtrace_report::gather::RunSummary;
/// let (mut left, mut right) = (RunSummary::default(), RunSummary::default());
/// left.missing.insert(3);
/// right.missing.insert(1);
/// assert_eq!(left.clone().merge(right.clone()), right.merge(left));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSummary {
    /// The processes.
    pub processes: BTreeMap<ProcessId, ProcessSummary>,
    /// Ranks, as the communicator that gathered counts them, from which nothing came.
    pub missing: BTreeSet<u32>,
}

impl RunSummary {
    /// The summary of one process. Of `local`, its report about itself, the figures are taken.
    pub fn of_process(id: ProcessId, local: &Report, base_ns: Option<i64>, samples: Vec<Sample>) -> Self {
        let sums = |of: fn(&crate::analyze::InputReport) -> &IndexMap<String, u64>| {
            let mut sums = IndexMap::new();
            for (kind, count) in local.inputs.iter().flat_map(of) {
                *sums.entry(kind.clone()).or_default() += count;
            }
            sums
        };
        let process = ProcessSummary {
            ranks: local.ranks.clone(),
            base_ns,
            events: local.inputs.iter().map(|input| input.events).sum(),
            skipped: sums(|input| &input.skipped),
            anomalies: sums(|input| &input.anomalies),
            warnings: local.warnings.iter().cloned().collect(),
            samples,
            ..ProcessSummary::default()
        };
        Self { processes: BTreeMap::from([(id, process)]), missing: BTreeSet::new() }
    }

    /// The summary of both. In any order and grouping the result is the same, also where a process is in both.
    pub fn merge(mut self, other: Self) -> Self {
        for (id, process) in other.processes {
            self.processes.entry(id).or_insert(process);
        }
        self.missing.extend(other.missing);
        self
    }

    /// Keeps the figures of at most `steps` steps per rank and device, and says so. Totals stay as they are.
    pub fn limit_steps(&mut self, steps: usize) {
        for process in self.processes.values_mut() {
            let mut cut = false;
            for rank in &mut process.ranks {
                cut |= rank.steps.len() > steps;
                rank.steps.truncate(steps);
            }
            if cut {
                process.warnings.insert(format!(
                    "Figures per step are those of each rank's first {steps} steps; later ones are only in the \
                     totals."
                ));
            }
        }
    }

    /// Global ranks that recorded something.
    pub fn ranks(&self) -> BTreeSet<u32> {
        self.processes.values().flat_map(|process| &process.ranks).map(|rank| rank.rank).collect()
    }
}
