//! A job of many ranks from its record files to the report: read, clocks aligned, collectives matched.
//!
//!     cargo bench -p commtrace-report --bench merge
//!
//! Writes the record files of a synthetic job of 1,024 ranks on 128 hosts with clocks of their own (tensor,
//! data and pipeline groups, 20,000 events each), reads and analyzes them in a process of its own, and
//! prints seconds and that process's peak memory; then the same for a quarter of the events, which has to take
//! about a quarter of the time. `COMMTRACE_BENCH_RANKS` sets another number of ranks (a multiple of 32),
//! `COMMTRACE_BENCH_FOLDER` measures the record files of that folder instead.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use synthetic::{JobSpec, write_folder};

/// Events of a rank's step are 77, one of them the step.
const EVENTS_PER_STEP: i64 = 77;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    // The measured process.
    if let [_, mode, folder] = &args[..]
        && mode == "--measure"
    {
        return measure(Path::new(folder));
    }
    // Without this, the program is run as one of the tests, where only that it works counts.
    let measured = args.iter().any(|arg| arg == "--bench");
    let ranks = std::env::var("COMMTRACE_BENCH_RANKS").ok().and_then(|text| text.parse().ok());
    let (ranks, events) = if measured { (ranks.unwrap_or(1024), 20_000) } else { (32, 400) };
    let program = std::env::current_exe().expect("this program");
    let measure = |folder: &Path| {
        let status = Command::new(&program).arg("--measure").arg(folder).status();
        assert!(status.is_ok_and(|status| status.success()), "the measured process failed");
    };
    if let Some(folder) = std::env::var_os("COMMTRACE_BENCH_FOLDER") {
        return measure(Path::new(&folder));
    }
    println!("{} processors", std::thread::available_parallelism().map_or(1, usize::from));
    for events in [events / 4, events] {
        let folder = tempfile::tempdir().expect("a folder");
        let spec = job(ranks, events);
        let begin = Instant::now();
        let truth = write_folder(&spec, folder.path()).expect("record files can be written");
        println!(
            "\n{ranks} ranks, {} events, {:.0} MB, written in {:.1} s",
            truth.events + u64::from(ranks) * spec.steps as u64,
            size(folder.path()) as f64 / 1e6,
            begin.elapsed().as_secs_f64()
        );
        measure(folder.path());
    }
}

/// Hosts of 8 ranks, 4 pipeline stages (or one), and steps for so many events of a rank.
fn job(ranks: u32, events: i64) -> JobSpec {
    let pipeline = if ranks >= 128 { 4 } else { 1 };
    JobSpec {
        tensor: 8,
        data: ranks / 8 / pipeline,
        pipeline,
        layers: 10,
        steps: events / EVENTS_PER_STEP,
        ranks_per_host: Some(8),
        max_offset_ns: 3e9,
        max_drift_ppm: 50.0,
        end_noise_ns: 3e3,
        outlier_share: 0.001,
        compute_jitter: 0.05,
        ..JobSpec::default()
    }
}

fn measure(folder: &Path) {
    let begin = Instant::now();
    let timeline = read(&[folder.to_owned()], &ReadOptions::default()).expect("record files can be read");
    let reading = begin.elapsed().as_secs_f64();
    let columns = peak_mib();
    let report = analyze(&timeline, &AnalyzeOptions::default());
    let total = begin.elapsed().as_secs_f64();
    let across = report.cross_rank.as_ref().expect("collectives were matched");
    let matched: u64 = across.ops.iter().map(|op| op.matched).sum();
    let aligned = across.alignment.iter().filter(|one| one.aligned).count();
    let worst_ms = across.alignment.iter().filter_map(|one| one.uncertainty_ms).fold(0.0, f64::max);
    assert_eq!(aligned, report.ranks.len());
    println!("read     {reading:>6.2} s, peak {columns:.0} MiB");
    println!("analysis {:>6.2} s, peak {:.0} MiB", total - reading, peak_mib());
    println!(
        "together {total:>6.2} s; {matched} collectives matched, clocks to within {:.1} us",
        worst_ms * 1e3
    );
}

/// Peak of this process's resident memory.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

fn size(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|data| data.len()).sum()
}
