//! `commtrace bench`: experiments with records.

pub mod args;
pub mod rank;
pub mod report;

use crate::failure::{Failure, message};
use crate::output;
use args::{BackendName, BenchArgs, CollectivesArgs, ExperimentArgs, WorkloadArgs};
use clap::error::ErrorKind;
use commtrace_bench::record::Experiment;
use commtrace_bench::{Backend, Collective, Launched, Plan, Program, Session, payloads, table};
use std::env;
use std::io;

pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let args = match &args.experiment {
        ExperimentArgs::Collectives(args) => args,
        ExperimentArgs::Report(args) => return report::run(args),
    };
    let launched = Launched::detect();
    let plans = plans(args, launched.as_ref())?;
    experiment(&args.workload, launched, &plans)
}

/// Runs the candidates, or says what would run.
fn experiment(workload: &WorkloadArgs, launched: Option<Launched>, plans: &[Plan]) -> Result<(), Failure> {
    let folder = workload.output.clone();
    let session = Session { folder, program: program()?, launched, fault: workload.fault };
    let speaks = session.launched.as_ref().is_none_or(|launched| launched.rank == 0);
    if speaks {
        session.check_free(plans)?;
    }
    if workload.dry_run {
        return if speaks { print(&session.describe(plans)) } else { Ok(()) };
    }
    let mut failed = false;
    for plan in plans {
        if speaks {
            message(&format!(
                "commtrace: {} {} {}: {} ranks, at most {} s",
                plan.experiment, plan.backend, plan.algorithm, plan.world_size, plan.timeout_s
            ));
        }
        let Some(record) = session.run(plan)? else { continue };
        failed |= record.failure.is_some();
        print(&table(&record))?;
        message(&format!("commtrace: wrote {}", session.files(plan).record().display()));
    }
    if failed { Err(Failure::Told) } else { Ok(()) }
}

/// The candidates of `bench collectives`.
fn plans(args: &CollectivesArgs, launched: Option<&Launched>) -> Result<Vec<Plan>, Failure> {
    let workload = &args.workload;
    let usage = |reason: String| Failure::usage("bench", ErrorKind::ValueValidation, reason);
    let backend = match workload.backend {
        BackendName::Local => Backend::Local,
        BackendName::Mpi => Backend::Mpi,
        BackendName::Nccl => Backend::Nccl,
    };
    let world_size = ranks(workload, backend, launched).map_err(usage)?;
    let collectives = args.collectives.clone().unwrap_or_else(|| Collective::ALL.to_vec());
    let wanted: Vec<u64> = args.payload_elements.iter().map(|elements| elements.get()).collect();
    let payload_elements = payloads(&wanted, &collectives, world_size).map_err(usage)?;
    if payload_elements != wanted && launched.is_none_or(|launched| launched.rank == 0) {
        let shown: Vec<String> = payload_elements.iter().map(u64::to_string).collect();
        message(&format!(
            "commtrace: payloads are {} elements, multiples of {world_size} ranks without repetition",
            shown.join(", ")
        ));
    }
    let plan = |algorithm| Plan {
        experiment: Experiment::Collectives,
        backend,
        world_size,
        dtype: args.dtype,
        payload_elements: payload_elements.clone(),
        collectives: collectives.clone(),
        warmup: workload.warmup,
        repeats: workload.repeats.get(),
        compute_dim: None,
        algorithm,
        run_label: workload.run_label.clone(),
        timeout_s: u64::from(workload.timeout.get()),
    };
    Ok(algorithms(workload, backend).into_iter().map(plan).collect())
}

/// The number of ranks: the launcher's, or what was asked for.
fn ranks(workload: &WorkloadArgs, backend: Backend, launched: Option<&Launched>) -> Result<u32, String> {
    let asked = workload.ranks.map(|ranks| ranks.get());
    match launched {
        Some(launched) if backend == Backend::Local && launched.world_size > 1 => Err(format!(
            "{} has started {} processes, and the ranks of backend local are threads of one: start it without \
             a launcher, or use --backend mpi",
            launched.launcher, launched.world_size
        )),
        Some(launched) if backend != Backend::Local => match asked {
            Some(asked) if asked != launched.world_size => Err(format!(
                "--ranks {asked}, and {} has started {}: leave --ranks out",
                launched.launcher, launched.world_size
            )),
            _ => Ok(launched.world_size),
        },
        _ => Ok(asked.unwrap_or(2)),
    }
}

/// Each algorithm once, in the order given.
fn algorithms(workload: &WorkloadArgs, backend: Backend) -> Vec<String> {
    let Some(asked) = &workload.algorithms else {
        return backend.algorithms().iter().map(|&name| name.to_owned()).collect();
    };
    let mut algorithms: Vec<String> = Vec::new();
    for name in asked {
        let name = backend.algorithm(name);
        // Names that differ in case alone would share a file.
        if !algorithms.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            algorithms.push(name);
        }
    }
    algorithms
}

/// This program, as ranks are started.
fn program() -> io::Result<Program> {
    Ok(Program { path: env::current_exe()?, subcommand: rank::NAME })
}

fn print(text: &str) -> Result<(), Failure> {
    output::write(None, false, |out| out.write_all(text.as_bytes()))?;
    Ok(())
}
