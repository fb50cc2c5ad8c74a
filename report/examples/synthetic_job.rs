//! Writes the record files of a made-up training job, to try the reports on and to see what they find.
//!
//! ```text
//! cargo run -p commtrace-report --example synthetic_job -- /tmp/job --tensor 4 --data 4 --pipeline 2 \
//!     --ranks-per-host 8 --offset-ms 500 --drift-ppm 20 --noise-us 5 --slow-rank 5:mlp:2
//! cargo run -p commtrace-cli -- report /tmp/job
//! ```
//!
//! The truth of what was planted goes to stdout.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use clap::Parser;
use std::error::Error;
use std::path::PathBuf;
use synthetic::{Fault, Group, JobSpec, Straggler, Truth, write_folder};

/// Write the record files of a made-up training job.
#[derive(Debug, Parser)]
struct Args {
    /// Folder for the files; created if it does not exist.
    folder: PathBuf,
    /// Tensor-parallel size.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tensor: u32,
    /// Data-parallel size.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4096))]
    data: u32,
    /// Pipeline stages.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pipeline: u32,
    /// Number of steps.
    #[arg(long, default_value_t = 20)]
    steps: i64,
    /// Layers of each stage.
    #[arg(long, default_value_t = 4)]
    layers: u32,
    /// Ranks of a host, which share a clock; 0: each rank has an unknown clock of its own.
    #[arg(long, default_value_t = 8)]
    ranks_per_host: u32,
    /// How far clocks are apart from true time at most, in milliseconds.
    #[arg(long, default_value_t = 0.0)]
    offset_ms: f64,
    /// By how much clocks run too fast or slow at most, in parts per million.
    #[arg(long, default_value_t = 0.0)]
    drift_ppm: f64,
    /// Standard deviation of the ends of calls, in microseconds.
    #[arg(long, default_value_t = 2.0)]
    noise_us: f64,
    /// Relative standard deviation of compute.
    #[arg(long, default_value_t = 0.02)]
    jitter: f64,
    /// A rank that is late in every step: RANK:SPAN:MS, the span one of `load_batch`, `attention`, `mlp`,
    /// `backward`, `optimizer`.
    #[arg(long, value_name = "RANK:SPAN:MS", value_parser = slow_rank)]
    slow_rank: Vec<Straggler>,
    /// A rank that is killed in a step: RANK:STEP.
    #[arg(long, value_name = "RANK:STEP", value_parser = kill)]
    kill: Vec<Fault>,
    /// A rank that goes past a collective of the world: RANK:SEQ.
    #[arg(long, value_name = "RANK:SEQ", value_parser = skip)]
    skip: Vec<Fault>,
    /// Same seed, same job.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn slow_rank(text: &str) -> Result<Straggler, String> {
    let expected = || "expected RANK:SPAN:MS, such as 5:mlp:2".to_owned();
    let (rank, rest) = text.split_once(':').ok_or_else(expected)?;
    let (span, late) = rest.split_once(':').ok_or_else(expected)?;
    let rank = rank.parse().map_err(|_| expected())?;
    let late_ms: f64 = late.parse().map_err(|_| expected())?;
    let spans = ["load_batch", "attention", "mlp", "backward", "optimizer"];
    let span = spans.into_iter().find(|known| *known == span).ok_or_else(expected)?;
    Ok(Straggler::always(rank, span, (late_ms * 1e6) as i64))
}

fn kill(text: &str) -> Result<Fault, String> {
    let (rank, step) = pair(text)?;
    Ok(Fault::Killed { rank, step: step as i64 })
}

fn skip(text: &str) -> Result<Fault, String> {
    let (rank, seq) = pair(text)?;
    Ok(Fault::Skips { rank, group: Group::World, seq })
}

fn pair(text: &str) -> Result<(u32, u64), String> {
    let expected = || "expected two whole numbers, such as 5:12".to_owned();
    let (rank, number) = text.split_once(':').ok_or_else(expected)?;
    Ok((rank.parse().map_err(|_| expected())?, number.parse().map_err(|_| expected())?))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.folder)
        .map_err(|error| format!("cannot create {}: {error}", args.folder.display()))?;
    let spec = JobSpec {
        tensor: args.tensor,
        data: args.data,
        pipeline: args.pipeline,
        steps: args.steps,
        layers: args.layers,
        ranks_per_host: (args.ranks_per_host > 0).then_some(args.ranks_per_host),
        max_offset_ns: args.offset_ms * 1e6,
        max_drift_ppm: args.drift_ppm,
        end_noise_ns: args.noise_us * 1e3,
        compute_jitter: args.jitter,
        stragglers: args.slow_rank,
        faults: args.kill.into_iter().chain(args.skip).collect(),
        seed: args.seed,
        ..JobSpec::default()
    };
    let truth = write_folder(&spec, &args.folder)?;
    tell(&spec, &truth);
    Ok(())
}

fn tell(spec: &JobSpec, truth: &Truth) {
    println!("{} ranks, {} events", spec.world_size(), truth.events);
    for (op, sums) in &truth.ops {
        let (wait, transfer) = (sums.wait_ns / 1e6, sums.transfer_ns / 1e6);
        println!("{op}: {} collectives, wait {wait:.3} ms, transfer {transfer:.3} ms", sums.matched);
    }
    let mut host = None;
    for (rank, (offset, drift)) in (0..).zip(truth.offset_ns.iter().zip(&truth.drift_ppm)) {
        if host.replace(spec.host(rank)) != Some(spec.host(rank)) {
            println!(
                "clock from rank {rank} on: offset {:.6} ms, drift {drift:.3} ppm",
                *offset as f64 / 1e6
            );
        }
    }
    if !truth.hanging.is_empty() {
        println!("hanging at the end: ranks {:?}", truth.hanging);
    }
}
