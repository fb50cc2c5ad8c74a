//! Records that can be compared with each other.

use super::compare::{self, Comparison, TwoSteps};
use super::curve::{self, Point, Shape};
use super::reading::Reading;
use crate::record::{AlgorithmObserved, EvidenceLevel, Host, Record};
use serde::{Deserialize, Serialize};

/// What records have to agree on to be compared. Algorithm and run label may differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setting {
    /// What carried the collectives.
    pub backend: String,
    /// Number of ranks.
    pub world_size: u32,
    /// Element type.
    pub dtype: String,
    /// Untimed repeats before the timed ones.
    pub warmup: u32,
    /// Timed repeats.
    pub repeats: u32,
    /// The machines, one text each: name, ranks, processors, GPUs.
    pub hardware: Vec<String>,
    /// The library that carried the collectives, with its version; `None` for threads of one process.
    pub library: Option<String>,
    /// Version of the CUDA driver.
    pub cuda_driver: Option<String>,
    /// What the times are evidence of.
    pub evidence_level: EvidenceLevel,
    /// Names of the GPUs, without repetition.
    pub gpus: Vec<String>,
}

impl Setting {
    pub(super) fn of(record: &Record) -> Self {
        let hosts = &record.hardware.hosts;
        let mut gpus: Vec<String> =
            hosts.iter().flat_map(|host| &host.gpus).map(|gpu| gpu.name.clone()).collect();
        gpus.sort();
        gpus.dedup();
        Self {
            backend: record.workload.backend.clone(),
            world_size: record.workload.world_size,
            dtype: record.workload.dtype.clone(),
            warmup: record.workload.warmup,
            repeats: record.workload.repeats,
            hardware: hosts.iter().map(machine).collect(),
            library: record.versions.library.clone(),
            cuda_driver: record.versions.cuda_driver.clone(),
            evidence_level: record.evidence_level,
            gpus,
        }
    }

    /// One line: `local, 2 ranks, float32, warm-up 5, repeats 20`.
    pub fn title(&self) -> String {
        let ranks = commtrace_report::render::counted(u64::from(self.world_size), "rank", "ranks");
        format!(
            "{}, {ranks}, {}, warm-up {}, repeats {}",
            self.backend, self.dtype, self.warmup, self.repeats
        )
    }

    /// Library, driver and machines.
    pub fn hardware_line(&self) -> String {
        let driver = self.cuda_driver.as_ref().map(|version| format!("CUDA driver {version}"));
        let mut parts: Vec<String> = self.library.iter().cloned().chain(driver).collect();
        parts.extend(self.hardware.iter().cloned());
        if parts.is_empty() { "unknown hardware".to_owned() } else { parts.join("; ") }
    }

    /// What the times say something of, and of what they do not.
    pub fn evidence(&self) -> &'static str {
        match self.evidence_level {
            EvidenceLevel::MeasuredGpu => "measured on GPUs",
            EvidenceLevel::MeasuredCpu => {
                "measured on processors: it says how the host's memory and network behave, and nothing of GPUs"
            }
            EvidenceLevel::None => "nothing was measured",
        }
    }
}

fn machine(host: &Host) -> String {
    use commtrace_report::render::counted;
    let mut text = format!("{}: {}", host.name, counted(host.ranks.len() as u64, "rank", "ranks"));
    if let Some(cpu) = &host.cpu {
        text += &format!(", {cpu}");
    }
    if let Some(cpus) = host.cpus {
        text += &format!(", {}", counted(u64::from(cpus), "processor", "processors"));
    }
    for gpu in &host.gpus {
        text += &format!(", {}", gpu.name);
    }
    text
}

/// Records of collectives with the same [`Setting`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// What they have in common.
    pub setting: Setting,
    /// One per record and collective.
    pub curves: Vec<Curve>,
    /// Algorithms against each other; empty with one algorithm.
    pub comparisons: Vec<Comparison>,
    /// reduce_scatter + all_gather beside all_reduce.
    pub two_steps: Vec<TwoSteps>,
    /// Chapter 47's reading of the result.
    pub reading: Vec<Reading>,
}

/// One collective with one algorithm, from one record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Curve {
    /// The collective.
    pub collective: String,
    /// The algorithm that was asked for.
    pub algorithm_requested: String,
    /// What ran, as far as there is evidence.
    pub algorithm_observed: AlgorithmObserved,
    /// The run label.
    pub run_label: String,
    /// When the record was started.
    pub started_at: String,
    /// The record's file.
    pub file: String,
    /// The payloads in ascending order.
    pub points: Vec<Point>,
    /// What they show.
    pub shape: Shape,
}

impl Curve {
    /// The algorithm, with the run label where `with_label`.
    pub(super) fn label(&self, with_label: bool) -> String {
        if with_label {
            format!("{} ({})", self.algorithm_requested, self.run_label)
        } else {
            self.algorithm_requested.clone()
        }
    }
}

impl Group {
    /// Whether run labels are needed to tell curves apart.
    pub(super) fn has_labels(&self) -> bool {
        self.curves
            .iter()
            .any(|curve| Some(&curve.run_label) != self.curves.first().map(|first| &first.run_label))
    }

    /// The collectives in the order of the records.
    pub(super) fn collectives(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for curve in &self.curves {
            if !names.contains(&curve.collective.as_str()) {
                names.push(&curve.collective);
            }
        }
        names
    }
}

/// Groups records in their order, and works out what each group shows.
pub(super) fn groups(records: Vec<(String, Record)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (file, record) in records {
        let setting = Setting::of(&record);
        let at = groups.iter().position(|group| group.setting == setting).unwrap_or_else(|| {
            let empty = Group {
                setting,
                curves: Vec::new(),
                comparisons: Vec::new(),
                two_steps: Vec::new(),
                reading: Vec::new(),
            };
            groups.push(empty);
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(at) {
            group.curves.extend(curves(&file, &record));
        }
    }
    for group in &mut groups {
        let order: Vec<String> = group.collectives().into_iter().map(str::to_owned).collect();
        // Stable: within a collective the records' order stays.
        group.curves.sort_by_key(|curve| order.iter().position(|name| *name == curve.collective));
        group.comparisons = compare::compare(&group.curves);
        group.two_steps = compare::two_steps(&group.curves);
    }
    groups
}

fn curves(file: &str, record: &Record) -> Vec<Curve> {
    let mut curves: Vec<(String, Vec<Point>)> = Vec::new();
    for row in &record.metrics.rows {
        match curves.iter_mut().find(|(collective, _)| *collective == row.collective) {
            Some((_, points)) => points.push(Point::of(row)),
            None => curves.push((row.collective.clone(), vec![Point::of(row)])),
        }
    }
    curves
        .into_iter()
        .map(|(collective, mut points)| Curve {
            collective,
            algorithm_requested: record.workload.algorithm_requested.clone(),
            algorithm_observed: record.workload.algorithm_observed.clone(),
            run_label: record.workload.run_label.clone(),
            started_at: record.started_at.clone(),
            file: file.to_owned(),
            shape: curve::shape(&mut points),
            points,
        })
        .collect()
}
