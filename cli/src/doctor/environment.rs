//! What this machine and this environment offer to a run.

use super::check::{self, Check, Status};
use super::{Format, folder, gpu};
use crate::failure::Failure;
use crate::output;
use commtrace_instrument::{Environment, LauncherVariables};
use serde::Serialize;

/// Version of the JSON's keys and their meaning. If you change any of them, raise this.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    problems: usize,
    checks: &'a [Check],
}

pub fn report(format: Format) -> Result<(), Failure> {
    let environment = Environment::inspect();
    let mut checks = gpu::checks();
    checks.extend(launcher(&environment));
    checks.extend(variables(&environment));
    checks.extend(environment.directory.as_deref().map(folder::check));
    checks.extend(host(&environment));
    let problems = checks.iter().filter(|check| check.status == Status::Problem).count();
    let text = match format {
        Format::Text => check::text(&checks),
        Format::Json => {
            let report = Report { schema_version: SCHEMA_VERSION, problems, checks: &checks };
            let mut text = serde_json::to_string_pretty(&report)?;
            text.push('\n');
            text
        }
    };
    output::write(None, false, |out| out.write_all(text.as_bytes()))?;
    if problems > 0 { Err(Failure::Told) } else { Ok(()) }
}

fn launcher(environment: &Environment) -> Vec<Check> {
    let set = |one: &LauncherVariables| {
        [&one.rank, &one.size]
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let variables: Vec<String> =
        environment.launchers.iter().map(|one| format!("{} ({})", set(one), one.launcher)).collect();
    let mut checks = vec![match environment.place {
        Some((rank, size)) => {
            let job = environment.job.as_ref().map_or_else(String::new, |job| format!(", run id {job}"));
            Check::ok("launcher", format!("rank {rank} of {size}{job}; {}", variables.join(", ")))
        }
        None => Check::absent(
            "launcher",
            match variables.len() {
                0 => "no variables of torchrun, Open MPI, PMI or Slurm".to_owned(),
                _ => format!("no rank follows from {}", variables.join(", ")),
            },
            "For a job of several processes, start it with its launcher, or set RANK and WORLD_SIZE; \
             otherwise each process is a run of its own, with rank 0.",
        ),
    }];
    if environment.place.is_some() && environment.job.is_none() {
        checks.push(Check::absent(
            "run id",
            "the launcher names no job, so each process has a run id of its own",
            "Set TORCHELASTIC_RUN_ID to the same text on all ranks, so that their records are one run.",
        ));
    }
    let problems = environment.launch_problems.iter();
    checks.extend(problems.map(|problem| Check::problem("launcher", &problem.what, &problem.remedy)));
    checks
}

fn variables(environment: &Environment) -> Vec<Check> {
    let mut checks: Vec<Check> = environment
        .variables
        .iter()
        .map(|variable| match &variable.problem {
            Some(problem) => Check::problem(&variable.name, &problem.what, &problem.remedy),
            None => Check::ok(&variable.name, &variable.value),
        })
        .collect();
    if environment.directory.is_none() && !environment.summary {
        checks.push(Check::absent(
            "recording",
            "off: neither COMMTRACE_DIR nor COMMTRACE asks for it",
            "Set COMMTRACE_DIR to a folder for records and reports, or COMMTRACE=summary for a summary on \
             stderr.",
        ));
    }
    checks
}

fn host(environment: &Environment) -> Vec<Check> {
    let boot = format!("{}, boot id {}", environment.host, environment.boot_id);
    vec![
        if environment.clock == "tsc" {
            Check::ok("clock", "tsc: a span's times cost a few nanoseconds")
        } else {
            Check::ok(
                "clock",
                "monotonic: the kernel does not run on the time stamp counter, so a span's times cost a \
                 system call or its vDSO",
            )
        },
        Check::ok("host", boot),
    ]
}
