//! What the environment says to this library, and what is wrong with it: for `commtrace doctor`.

use crate::config::{Config, ConfigError, Mode};
use crate::launcher::{LAUNCHERS, Launch};
use crate::{clock, host};
use std::path::PathBuf;

/// The variables that this library reads.
pub const VARIABLES: [&str; 10] = [
    "COMMTRACE",
    "COMMTRACE_DIR",
    "COMMTRACE_REPORT",
    "COMMTRACE_STEPS",
    "COMMTRACE_RANKS",
    "COMMTRACE_MAX_MB",
    "COMMTRACE_FLUSH_MS",
    "COMMTRACE_QUEUE",
    "COMMTRACE_EVENTS",
    "COMMTRACE_MERGE_TIMEOUT_S",
];

/// What the environment says to this library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// The variables of commtrace that are set, in alphabetical order.
    pub variables: Vec<Variable>,
    /// The folder that would be recorded into; `None` if nothing would be.
    pub directory: Option<PathBuf>,
    /// Whether a text summary would be printed instead.
    pub summary: bool,
    /// The variables of launchers that are set, in the order in which they are believed.
    pub launchers: Vec<LauncherVariables>,
    /// The rank of this process and the number of ranks, as a recorder would take them.
    pub place: Option<(u32, u32)>,
    /// The job's identifier, which becomes the run's.
    pub job: Option<String>,
    /// What is wrong or contradicts itself among the launchers' variables, with a remedy each.
    pub launch_problems: Vec<Problem>,
    /// Host name.
    pub host: String,
    /// The id of the host's boot.
    pub boot_id: String,
    /// What spans are timed with: `tsc` or `monotonic`.
    pub clock: &'static str,
}

/// A variable of commtrace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub problem: Option<Problem>,
}

/// The variables of one launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LauncherVariables {
    /// The launcher, for example `torchrun`.
    pub launcher: &'static str,
    /// Name and value, if set, of the variable with the rank.
    pub rank: (&'static str, Option<String>),
    /// The same of the one with the number of ranks.
    pub size: (&'static str, Option<String>),
}

/// Something that is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, a sentence.
    pub what: String,
    /// What to do, a sentence.
    pub remedy: String,
}

impl Environment {
    /// Looks at the environment of this process. Changes nothing.
    pub fn inspect() -> Self {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            // An empty variable is how shells and job scripts unset one.
            (!value.is_empty()).then(|| (name, value.to_string_lossy().into_owned()))
        });
        Self::of(&variables.collect::<Vec<_>>())
    }

    fn of(all: &[(String, String)]) -> Self {
        let var = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let mut variables: Vec<Variable> = all
            .iter()
            .filter(|(name, _)| name == "COMMTRACE" || name.starts_with("COMMTRACE_"))
            // Of this project's own tests.
            .filter(|(name, _)| !name.starts_with("COMMTRACE_TEST_"))
            .map(|(name, value)| Variable {
                name: name.clone(),
                value: value.clone(),
                problem: problem(name, value),
            })
            .collect();
        variables.sort_by(|a, b| a.name.cmp(&b.name));
        // As far as it can be used: what is wrong with a variable is said beside it.
        let sound = |name: &str| {
            let value = var(name)?;
            problem(name, &value).is_none().then_some(value)
        };
        let config =
            Config::from_vars(|name| if known(name) { sound(name) } else { None }).unwrap_or_default();
        let (directory, summary) = match config.mode {
            Some(Mode::Directory(path)) => (Some(path), false),
            mode => (None, mode == Some(Mode::Summary)),
        };
        let launchers: Vec<LauncherVariables> = LAUNCHERS
            .iter()
            .map(|&(launcher, rank, size)| LauncherVariables {
                launcher,
                rank: (rank, var(rank)),
                size: (size, var(size)),
            })
            .filter(|one| one.rank.1.is_some() || one.size.1.is_some())
            .collect();
        let (launch, error) = match Launch::from_env(var) {
            Ok(launch) => (launch, None),
            Err(error) => (Launch::default(), Some(error)),
        };
        Self {
            variables,
            directory,
            summary,
            launch_problems: launch_problems(&launchers, error),
            launchers,
            place: launch.rank.zip(launch.world_size),
            job: launch.job,
            host: host::name(),
            boot_id: host::boot_id(),
            clock: clock::source_name(),
        }
    }
}

fn known(name: &str) -> bool {
    VARIABLES.contains(&name)
}

/// What is wrong with a variable by itself.
fn problem(name: &str, value: &str) -> Option<Problem> {
    if !known(name) {
        return Some(Problem {
            what: format!("{name} is no variable of commtrace, so it has no effect."),
            remedy: format!("Write one of {}.", VARIABLES.join(", ")),
        });
    }
    let error = Config::from_vars(|asked| (asked == name).then(|| value.to_owned())).err()?;
    Some(Problem {
        what: format!("{error}."),
        remedy: format!("Correct {name} or unset it; with this value, `init` returns an error."),
    })
}

/// What is wrong among the variables of launchers.
fn launch_problems(launchers: &[LauncherVariables], error: Option<ConfigError>) -> Vec<Problem> {
    let mut problems: Vec<Problem> = error
        .into_iter()
        .map(|error| Problem {
            what: format!("{error}."),
            remedy: format!("Start the job with its launcher, or unset {}.", error.variable()),
        })
        .collect();
    let mut whole: Vec<(&LauncherVariables, u32, u32)> = Vec::new();
    for one in launchers {
        let (Some(rank), Some(size)) = (&one.rank.1, &one.size.1) else {
            let (set, unset) =
                if one.rank.1.is_some() { (one.rank.0, one.size.0) } else { (one.size.0, one.rank.0) };
            problems.push(Problem {
                what: format!("{set} is set and {unset} is not: both are ignored."),
                remedy: format!("Set {unset} too, or unset {set}."),
            });
            continue;
        };
        let (Ok(rank), Ok(size)) = (rank.trim().parse::<u32>(), size.trim().parse::<u32>()) else { continue };
        if rank >= size {
            problems.push(Problem {
                what: format!("{}={rank} is not below {}={size}.", one.rank.0, one.size.0),
                remedy: "Ranks count from 0: correct one of the two.".to_owned(),
            });
        }
        whole.push((one, rank, size));
    }
    if let Some(&(first, rank, size)) = whole.first() {
        for &(other, other_rank, other_size) in whole.iter().skip(1) {
            // A job under Slurm has one task on which another launcher starts the ranks.
            if (other_rank, other_size) != (rank, size) && other_size != 1 {
                problems.push(Problem {
                    what: format!(
                        "{} says rank {rank} of {size}, {} says rank {other_rank} of {other_size}; {} is believed.",
                        first.launcher, other.launcher, first.launcher
                    ),
                    remedy: format!(
                        "If {} started this process, unset {} and {}.",
                        other.launcher, first.rank.0, first.size.0
                    ),
                });
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Environment {
        let all: Vec<(String, String)> =
            variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Environment::of(&all)
    }

    #[test]
    fn every_variable_that_the_recorder_reads_is_known() {
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        Config::from_vars(|name| {
            asked.borrow_mut().insert(name.to_owned());
            None
        })
        .unwrap();
        let asked = asked.into_inner();
        for name in asked.iter().filter(|name| name.starts_with("COMMTRACE")) {
            assert!(known(name), "{name}");
        }
        for name in VARIABLES {
            assert!(asked.contains(name), "{name}");
        }
    }

    #[test]
    fn each_bad_variable_is_told_and_the_others_still_count() {
        let found = of(&[
            ("COMMTRACE_DIR", "out"),
            ("COMMTRACE_FLUSH_MS", "1s"),
            ("COMMTRACE_STEPS", "20..10"),
            ("COMMTRACE_FLUSHMS", "5"),
            ("HOME", "/root"),
        ]);
        let told: Vec<(&str, bool)> =
            found.variables.iter().map(|one| (one.name.as_str(), one.problem.is_some())).collect();
        let expected = [
            ("COMMTRACE_DIR", false),
            ("COMMTRACE_FLUSHMS", true),
            ("COMMTRACE_FLUSH_MS", true),
            ("COMMTRACE_STEPS", true),
        ];
        assert_eq!(told, expected);
        assert_eq!(found.directory, Some("out".into()));
        let flush = found.variables[2].problem.as_ref().unwrap();
        assert!(flush.what.contains("COMMTRACE_FLUSH_MS=\"1s\""), "{}", flush.what);
        assert!(found.variables[1].problem.as_ref().unwrap().what.contains("no effect"));
    }

    #[test]
    fn off_and_summary_record_no_folder() {
        assert_eq!(of(&[("COMMTRACE", "off"), ("COMMTRACE_DIR", "out")]).directory, None);
        assert!(of(&[("COMMTRACE", "summary")]).summary);
        assert!(!of(&[]).summary);
    }

    #[test]
    fn launchers_that_contradict_each_other_are_told() {
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4")];
        let found = of(&torchrun);
        assert_eq!((found.place, found.launch_problems.len()), (Some((3, 4)), 0));
        let found =
            of(&[torchrun[0], torchrun[1], ("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")]);
        assert_eq!(found.place, Some((3, 4)));
        assert!(
            found.launch_problems[0].what.contains("torchrun says rank 3 of 4, Open MPI says rank 1 of 4")
        );
        // torchrun within a Slurm job of one task.
        let found = of(&[torchrun[0], torchrun[1], ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]);
        assert_eq!(found.launch_problems, []);
        let found = of(&[("PMI_RANK", "4"), ("PMI_SIZE", "4"), ("WORLD_SIZE", "4")]);
        let told: Vec<&str> = found.launch_problems.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(
            told,
            ["WORLD_SIZE is set and RANK is not: both are ignored.", "PMI_RANK=4 is not below PMI_SIZE=4."]
        );
        let found = of(&[("RANK", "first"), ("WORLD_SIZE", "4")]);
        assert!(found.launch_problems[0].what.contains("RANK=\"first\""));
    }
}
