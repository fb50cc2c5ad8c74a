//! Whether a launcher has started this process as one of several ranks.

use commtrace_instrument::Environment;
use std::env;

/// A launcher's word on this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// This process's rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// Identifies the job, if the launcher says so.
    pub job: Option<String>,
    /// The launcher: `torchrun`, `Open MPI`, `PMI`, `Slurm`.
    pub launcher: &'static str,
}

/// Step ids from here on are no steps: Slurm's batch script, which runs once whatever the number of tasks.
const SLURM_PSEUDO_STEPS: u32 = 0xFFFF_FFF0;

impl Launched {
    /// From this process's environment; `None` if nothing has launched it as a rank.
    pub fn detect() -> Option<Self> {
        let environment = Environment::inspect();
        let (rank, world_size) = environment.place?;
        let whole = environment.launchers.iter().find(|one| one.rank.1.is_some() && one.size.1.is_some())?;
        let launcher = whole.launcher;
        let step = env::var("SLURM_STEP_ID").ok();
        if launcher == "Slurm" && !is_slurm_step(step.as_deref(), world_size) {
            return None;
        }
        Some(Self { rank, world_size, job: environment.job, launcher })
    }
}

/// Whether Slurm has started this process as a rank: with `srun`, as a task of several.
fn is_slurm_step(step: Option<&str>, tasks: u32) -> bool {
    tasks > 1 && step.and_then(|step| step.parse().ok()).is_some_and(|step: u32| step < SLURM_PSEUDO_STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_script_is_no_rank() {
        assert!(is_slurm_step(Some("0"), 2));
        assert!(!is_slurm_step(Some("4294967291"), 2), "the batch script of newer versions");
        assert!(!is_slurm_step(None, 2), "that of older ones");
        assert!(!is_slurm_step(Some("0"), 1), "a single task, in which another launcher starts the ranks");
    }
}
