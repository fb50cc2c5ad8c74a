//! `commtrace bench`: experiments with records.

pub mod args;
pub mod rank;
pub mod report;

use crate::failure::{Failure, message};
use crate::output;
use args::{BackendName, BenchArgs, CollectivesArgs, ExperimentArgs, OverlapArgs, WorkloadArgs};
use clap::error::ErrorKind;
use commtrace_bench::record::Experiment;
use commtrace_bench::{
    Backend, Collective, Launched, Plan, Program, Session, has_product, no_gpu, payloads, table, told_to_end,
};
use commtrace_collectives::DType;
use std::env;
use std::io;
use std::num::NonZeroU32;

pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let launched = Launched::detect();
    let (workload, plans) = match &args.experiment {
        ExperimentArgs::Collectives(args) => (&args.workload, collectives(args, launched.as_ref())?),
        ExperimentArgs::Overlap(args) => (&args.workload, overlap(args, launched.as_ref())?),
        ExperimentArgs::Report(args) => return report::run(args),
    };
    experiment(workload, launched, &plans)
}

/// Runs the candidates, or says what would run.
fn experiment(workload: &WorkloadArgs, launched: Option<Launched>, plans: &[Plan]) -> Result<(), Failure> {
    let folder = workload.output.clone();
    let session = Session { folder, program: program()?, launched, fault: workload.fault };
    let speaks = session.launched.as_ref().is_none_or(|launched| launched.rank == 0);
    if speaks {
        session.check_free(plans)?;
    }
    let no_gpu = no_gpu(workload.backend.into());
    if workload.dry_run.unwrap_or(no_gpu.is_some()) {
        if speaks {
            print(&session.describe(plans))?;
            message(&match no_gpu {
                Some(problem) if workload.dry_run.is_none() => format!(
                    "commtrace: nothing was measured, since {problem}. `--dry-run=false` leaves records of that failure."
                ),
                _ => "commtrace: nothing was measured (--dry-run)".to_owned(),
            });
        }
        return Ok(());
    }
    let mut failed = false;
    for plan in plans {
        if told_to_end() {
            failed = true;
            break;
        }
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

fn usage(reason: String) -> Failure {
    Failure::usage("bench", ErrorKind::ValueValidation, reason)
}

/// The candidates of `bench collectives`.
fn collectives(args: &CollectivesArgs, launched: Option<&Launched>) -> Result<Vec<Plan>, Failure> {
    let wanted: Vec<u64> = args.payload_elements.iter().map(|elements| elements.get()).collect();
    let collectives = args.collectives.clone().unwrap_or_else(|| Collective::ALL.to_vec());
    let WorkloadArgs { warmup, repeats, .. } = args.workload;
    let workload = Workload {
        experiment: Experiment::Collectives,
        dtype: args.dtype,
        collectives,
        wanted,
        compute_dim: None,
        warmup: warmup.unwrap_or(5),
        repeats: repeats.map_or(20, NonZeroU32::get),
    };
    plans(&args.workload, launched, workload)
}

/// The candidates of `bench overlap`.
fn overlap(args: &OverlapArgs, launched: Option<&Launched>) -> Result<Vec<Plan>, Failure> {
    if !has_product(args.dtype) {
        return Err(usage(format!(
            "--dtype {}: matrices are of float32, float64, float16 or bfloat16",
            args.dtype
        )));
    }
    let WorkloadArgs { warmup, repeats, .. } = args.workload;
    let workload = Workload {
        experiment: Experiment::Overlap,
        dtype: args.dtype,
        collectives: vec![Collective::AllReduce],
        wanted: vec![args.payload_elements.get()],
        compute_dim: Some(args.compute_dim),
        warmup: warmup.unwrap_or(3),
        repeats: repeats.map_or(10, NonZeroU32::get),
    };
    plans(&args.workload, launched, workload)
}

/// What each experiment says in its own way.
struct Workload {
    experiment: Experiment,
    dtype: DType,
    collectives: Vec<Collective>,
    wanted: Vec<u64>,
    compute_dim: Option<u32>,
    warmup: u32,
    repeats: u32,
}

/// A candidate per algorithm.
fn plans(args: &WorkloadArgs, launched: Option<&Launched>, workload: Workload) -> Result<Vec<Plan>, Failure> {
    let Workload { experiment, dtype, collectives, wanted, compute_dim, warmup, repeats } = workload;
    let backend = args.backend.into();
    let world_size = ranks(args, backend, launched).map_err(usage)?;
    let payload_elements = payloads(&wanted, &collectives, world_size).map_err(usage)?;
    if payload_elements != wanted && launched.is_none_or(|launched| launched.rank == 0) {
        let shown: Vec<String> = payload_elements.iter().map(u64::to_string).collect();
        message(&format!(
            "commtrace: payloads are {} elements, multiples of {world_size} ranks without repetition",
            shown.join(", ")
        ));
    }
    let plan = |algorithm| Plan {
        experiment,
        backend,
        world_size,
        dtype,
        payload_elements: payload_elements.clone(),
        collectives: collectives.clone(),
        warmup,
        repeats,
        compute_dim,
        algorithm,
        run_label: args.run_label.clone(),
        timeout_s: u64::from(args.timeout.get()),
    };
    Ok(algorithms(args, backend).into_iter().map(plan).collect())
}

impl From<BackendName> for Backend {
    fn from(name: BackendName) -> Self {
        match name {
            BackendName::Local => Self::Local,
            BackendName::Mpi => Self::Mpi,
            BackendName::Nccl => Self::Nccl,
        }
    }
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
