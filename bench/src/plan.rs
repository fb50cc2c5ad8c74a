//! What is to be run.

use crate::collective::Collective;
use crate::element::dtype_name;
use crate::record::{Experiment, Workload};
use commtrace_collectives::DType;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What carries the collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// Threads of one process.
    Local,
    /// Processes that MPI connects.
    Mpi,
    /// GPUs, by NCCL.
    Nccl,
}

impl Backend {
    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Mpi => "mpi",
            Self::Nccl => "nccl",
        }
    }

    /// The algorithms that can be asked for. `Auto` leaves it to the library.
    pub fn algorithms(self) -> &'static [&'static str] {
        match self {
            Self::Local | Self::Mpi => &["Auto"],
            Self::Nccl => &["Auto", "Ring", "Tree"],
        }
    }

    /// The algorithm as it is written here, whatever the case; a name that is unknown stays as it is.
    pub fn algorithm(self, name: &str) -> String {
        let known = self.algorithms().iter().find(|known| known.eq_ignore_ascii_case(name));
        known.map_or(name, |known| known).to_owned()
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One candidate: everything that its ranks have to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The experiment.
    pub experiment: Experiment,
    /// What carries the collectives.
    pub backend: Backend,
    /// Number of ranks.
    pub world_size: u32,
    /// Element type.
    #[serde(with = "dtype_name")]
    pub dtype: DType,
    /// Elements that each rank puts in, one entry per payload.
    pub payload_elements: Vec<u64>,
    /// The collectives; the overlap experiment has its own.
    pub collectives: Vec<Collective>,
    /// Untimed repeats before the timed ones.
    pub warmup: u32,
    /// Timed repeats.
    pub repeats: u32,
    /// Dimension of the overlap experiment's matrices.
    pub compute_dim: Option<u32>,
    /// The algorithm that is asked for.
    pub algorithm: String,
    /// Tells runs of the same workload apart.
    pub run_label: String,
    /// Seconds after which the candidate is ended.
    pub timeout_s: u64,
}

impl Plan {
    /// Names experiment and protocol, as the source chapters do.
    pub fn workload_id(&self) -> &'static str {
        match self.experiment {
            Experiment::Collectives => "par-nccl-collective-matrix",
            Experiment::Overlap => "par-overlap-allreduce-matmul",
        }
    }

    /// The record's description of it, without what was observed.
    pub fn workload(&self) -> Workload {
        Workload {
            workload_id: self.workload_id().to_owned(),
            backend: self.backend.as_str().to_owned(),
            world_size: self.world_size,
            dtype: self.dtype.as_str().to_owned(),
            payload_elements: self.payload_elements.clone(),
            warmup: self.warmup,
            repeats: self.repeats,
            compute_dim: self.compute_dim,
            algorithm_requested: self.algorithm.clone(),
            run_label: self.run_label.clone(),
            ..Workload::default()
        }
    }

    /// The name of its files, without the ending: `<experiment>_<backend>_<algorithm>_<label>`.
    pub fn stem(&self) -> String {
        format!(
            "{}_{}_{}_{}",
            self.experiment,
            self.backend,
            self.algorithm.to_ascii_lowercase(),
            self.run_label
        )
    }

    /// How long the candidate may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s)
    }

    /// How long a call waits for the other ranks: less than the whole, so that a rank which others wait for in vain is
    /// named by them before the candidate is ended.
    pub fn call_timeout(&self) -> Duration {
        self.timeout().mul_f64(0.75)
    }
}

/// Checks a name that becomes part of a file's.
///
/// # Errors
///
/// It is empty, starts with a dot, or has other characters than letters, digits, `.`, `_` and `-`.
pub fn file_name_part(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text.starts_with('.') || text.len() > 100 || !text.chars().all(fits) {
        return Err("it becomes part of a file's name: up to 100 letters, digits, dots, underscores and \
                    hyphens, not starting with a dot"
            .to_owned());
    }
    Ok(text.to_owned())
}

/// Payloads as they can be run: where the collectives divide them among the ranks, rounded down to multiples of the
/// number of ranks.
///
/// # Errors
///
/// A payload is 0, or has fewer elements than there are ranks.
pub fn payloads(wanted: &[u64], collectives: &[Collective], ranks: u32) -> Result<Vec<u64>, String> {
    let unit =
        if collectives.iter().any(|collective| collective.divides_payload()) { ranks.max(1) } else { 1 };
    let unit = u64::from(unit);
    let mut payloads = Vec::new();
    for &elements in wanted {
        let whole = elements / unit * unit;
        if whole == 0 {
            return Err(format!(
                "a payload of {elements} elements: it needs at least {unit}, one for each of the parts into \
                 which the collectives divide it"
            ));
        }
        if !payloads.contains(&whole) {
            payloads.push(whole);
        }
    }
    Ok(payloads)
}

/// A fault on purpose, so that tests see what becomes of one: `KIND:RANK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// On which rank.
    pub rank: u32,
}

/// What goes wrong on purpose, before the first timed repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The rank puts in a wrong element.
    WrongResult,
    /// The rank's process ends with status 3.
    Exit,
    /// The rank panics.
    Panic,
    /// The rank stops for good.
    Hang,
}

impl FaultKind {
    const NAMES: [(&'static str, Self); 4] = [
        ("wrong-result", Self::WrongResult),
        ("exit", Self::Exit),
        ("panic", Self::Panic),
        ("hang", Self::Hang),
    ];
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(kind, rank)| {
            let (_, kind) = FaultKind::NAMES.into_iter().find(|(name, _)| *name == kind)?;
            Some(Self { kind, rank: rank.parse().ok()? })
        });
        parsed.ok_or_else(|| "expected wrong-result, exit, panic or hang, a colon and a rank".to_owned())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            FaultKind::NAMES.into_iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name);
        write!(f, "{name}:{}", self.rank)
    }
}

/// A plan for tests.
#[cfg(test)]
pub(crate) fn example() -> Plan {
    Plan {
        experiment: Experiment::Collectives,
        backend: Backend::Nccl,
        world_size: 2,
        dtype: DType::Float32,
        payload_elements: vec![256],
        collectives: Collective::ALL.to_vec(),
        warmup: 1,
        repeats: 2,
        compute_dim: None,
        algorithm: "Auto".to_owned(),
        run_label: "test".to_owned(),
        timeout_s: 60,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_rounded_only_where_they_are_divided() {
        assert_eq!(payloads(&[262_144, 10], &Collective::ALL, 3), Ok(vec![262_143, 9]));
        assert_eq!(payloads(&[262_144, 10], &[Collective::AllReduce], 3), Ok(vec![262_144, 10]));
        assert_eq!(payloads(&[10, 11], &Collective::ALL, 2), Ok(vec![10]), "the same after rounding");
        assert!(payloads(&[2], &Collective::ALL, 3).unwrap_err().contains("at least 3"));
        assert!(payloads(&[0], &[Collective::Broadcast], 3).is_err());
    }

    #[test]
    fn algorithms_are_recognised_whatever_their_case() {
        assert_eq!(Backend::Nccl.algorithm("RING"), "Ring");
        assert_eq!(Backend::Local.algorithm("auto"), "Auto");
        assert_eq!(Backend::Mpi.algorithm("Ring"), "Ring", "unknown there, and left as it is");
    }

    #[test]
    fn names_of_files() {
        assert!(file_name_part("a-1_b.2").is_ok());
        for bad in ["", ".hidden", "a/b", "ä", "a b"] {
            assert!(file_name_part(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn faults_are_read_as_they_are_written() {
        for text in ["wrong-result:1", "exit:0", "panic:2", "hang:12"] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        assert!("exit".parse::<Fault>().is_err() && "stop:1".parse::<Fault>().is_err());
    }
}
