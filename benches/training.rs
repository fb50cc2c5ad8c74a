//! What tracing costs a real training run: `ddp_train` recorded into a folder against the same run with
//! tracing off, in turns.
//!
//! `cargo build --release --example ddp_train && cargo bench --bench training`

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const TURNS: usize = 15;

fn main() {
    let example = example();
    let turns = if std::env::args().any(|argument| argument == "--bench") { TURNS } else { 1 };
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    for turn in 0..turns {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let traced = || run(&example, &[("COMMTRACE_DIR", out.as_os_str())]);
        let off = || run(&example, &[("COMMTRACE", "off".as_ref())]);
        // Whatever changes in the course of a turn hits both equally often.
        let (traced, off) = if turn % 2 == 0 {
            let first = traced();
            (first, off())
        } else {
            let first = off();
            (traced(), first)
        };
        cpu.push(traced.cpu_s / off.cpu_s);
        wall.push(traced.wall_s / off.wall_s);
    }
    println!("ddp_train, 2 ranks, 40 steps: traced / untraced in {turns} turns");
    for (name, ratios) in [("cpu time", cpu), ("wall time", wall)] {
        let [least, median, most] = spread(ratios);
        println!("{name:<10} median {median:.3} (from {least:.3} to {most:.3})");
    }
}

/// The example's program beside this one: `target/release/examples/ddp_train`.
fn example() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let profile = program.parent().and_then(Path::parent).expect("target/PROFILE/deps");
    let example = profile.join("examples").join("ddp_train");
    assert!(example.exists(), "build it first: cargo build --release --example ddp_train");
    example
}

struct Cost {
    wall_s: f64,
    cpu_s: f64,
}

fn run(example: &Path, variables: &[(&str, &std::ffi::OsStr)]) -> Cost {
    let (begin, before) = (Instant::now(), children_cpu_s());
    let status = Command::new(example)
        .args(["--ranks", "2", "--steps", "40"])
        .env_remove("COMMTRACE")
        .env_remove("COMMTRACE_DIR")
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the example runs");
    assert!(status.success());
    Cost { wall_s: begin.elapsed().as_secs_f64(), cpu_s: children_cpu_s() - before }
}

/// Processor time of all children that were waited for, user and system.
fn children_cpu_s() -> f64 {
    // SAFETY: `usage` is plain data that the call fills; zeros are a valid value of it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage), 0);
        usage
    };
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 + time.tv_usec as f64 / 1e6).sum()
}

fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}
