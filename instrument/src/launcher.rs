//! What the launcher says of this process: rank, number of ranks, job.

use crate::config::ConfigError;

/// A process's place in its job, from the launcher's environment variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    pub rank: Option<u32>,
    pub world_size: Option<u32>,
    /// Identifier that the job's processes share.
    pub job: Option<String>,
    /// Which launcher it was.
    pub launcher: Option<&'static str>,
}

/// Rank and size variables, in the order in which they are believed.
pub(crate) const LAUNCHERS: &[(&str, &str, &str)] = &[
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI", "PMI_RANK", "PMI_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
];

impl Launch {
    /// Reads the environment through `var`. Rank and size count only together: a lone `RANK` may
    /// mean anything.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let job = Self::job(&var);
        for &(launcher, rank, size) in LAUNCHERS {
            if let (Some(rank_text), Some(size_text)) = (var(rank), var(size)) {
                return Ok(Self {
                    rank: Some(number(rank, &rank_text)?),
                    world_size: Some(number(size, &size_text)?),
                    job,
                    launcher: Some(launcher),
                });
            }
        }
        Ok(Self { job, ..Self::default() })
    }

    fn job(var: &impl Fn(&str) -> Option<String>) -> Option<String> {
        // torchrun without a rendezvous id says "none".
        if let Some(id) = var("TORCHELASTIC_RUN_ID").filter(|id| id != "none") {
            let restart = var("TORCHELASTIC_RESTART_COUNT").filter(|count| count != "0");
            return Some(match restart {
                Some(count) => format!("torchrun-{id}-restart{count}"),
                None => format!("torchrun-{id}"),
            });
        }
        if let Some(namespace) = var("PMIX_NAMESPACE") {
            return Some(format!("mpi-{namespace}"));
        }
        if let (Some(job), Some(step)) = (var("SLURM_JOB_ID"), var("SLURM_STEP_ID")) {
            return Some(format!("slurm-{job}.{step}"));
        }
        None
    }
}

fn number(variable: &str, text: &str) -> Result<u32, ConfigError> {
    text.trim()
        .parse()
        .map_err(|_| ConfigError::new(variable, text, "a whole number, as the launcher sets it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Result<Launch, ConfigError> {
        Launch::from_env(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn torchrun_comes_before_open_mpi_and_slurm() {
        let found = launch(&[
            ("SLURM_PROCID", "9"),
            ("SLURM_NTASKS", "10"),
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_SIZE", "6"),
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("TORCHELASTIC_RUN_ID", "abc"),
        ])
        .unwrap();
        assert_eq!((found.rank, found.world_size), (Some(3), Some(4)));
        assert_eq!(found.job.as_deref(), Some("torchrun-abc"));
        assert_eq!(found.launcher, Some("torchrun"));
    }

    #[test]
    fn a_lone_rank_variable_is_not_a_launcher() {
        let found =
            launch(&[("RANK", "first"), ("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")]);
        assert_eq!(found.unwrap().rank, Some(1));
        assert_eq!(launch(&[]).unwrap(), Launch::default());
    }

    #[test]
    fn a_rank_that_is_no_number_is_an_error_that_names_it() {
        let error = launch(&[("PMI_RANK", "-1"), ("PMI_SIZE", "2")]).unwrap_err().to_string();
        assert!(error.contains("PMI_RANK") && error.contains("\"-1\""), "{error}");
    }
}
