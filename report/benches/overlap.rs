//! Overlap of n communication with n compute intervals on one rank, and the whole analysis of them.
//!
//! `cargo bench -p commtrace-report --bench overlap` shows times and, per run, the most memory allocated
//! at once; then how time grows with size, and the input's own size to compare the memory with.

use commtrace_report::analyze::{AnalyzeOptions, Cover, analyze, overlaps_ns};
use commtrace_report::timeline::{Comm, Compute, Timeline, Track};
use divan::{AllocProfiler, Bencher, black_box};
use std::time::Instant;

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];
/// Up to 100,000 pairs everything is in the caches and memory is reused; growth beyond that shows
/// between the last two.
const GROWTH: [usize; 4] = [10_000, 100_000, 1_000_000, 4_000_000];

fn main() {
    divan::main();
    growth();
}

/// Starts and ends of `count` intervals, on average 10 apart and 20 long; in order of time, or not.
fn intervals(count: usize, sorted: bool, seed: u64) -> (Vec<i64>, Vec<i64>) {
    let mut state = seed;
    let mut random = |below: i64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64 % below
    };
    let mut starts: Vec<i64> = (0..count).map(|_| random(10 * count as i64)).collect();
    if sorted {
        starts.sort_unstable();
    }
    let ends = starts.iter().map(|start| start + random(40)).collect();
    (starts, ends)
}

struct Input {
    compute: (Vec<i64>, Vec<i64>),
    comm: (Vec<i64>, Vec<i64>),
}

impl Input {
    fn new(count: usize, sorted: bool, seed: u64) -> Self {
        Self { compute: intervals(count, sorted, seed), comm: intervals(count, sorted, seed + 1000) }
    }

    fn overlaps(&self) -> Vec<u64> {
        let cover = Cover::new(&self.compute.0, &self.compute.1);
        overlaps_ns(&cover, &self.comm.0, &self.comm.1)
    }

    fn timeline(&self) -> Timeline {
        let mut timeline = Timeline::default();
        let ops = ["all_reduce", "reduce_scatter", "all_gather"].map(|op| timeline.names.intern(op));
        let name = timeline.names.intern("kernel");
        let mut track = Track::new(0, Some(0));
        for (&start_ns, &end_ns) in self.compute.0.iter().zip(&self.compute.1) {
            track.compute.push(Compute { name, start_ns, end_ns, step: Some(start_ns / 1000) });
        }
        for ((&start_ns, &end_ns), &op) in self.comm.0.iter().zip(&self.comm.1).zip(ops.iter().cycle()) {
            track.comm.push(Comm {
                bytes: Some(4096),
                step: Some(start_ns / 1000),
                ..Comm::new(op, start_ns, end_ns)
            });
        }
        timeline.tracks.push(track);
        timeline
    }
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn overlap_sorted(bencher: Bencher<'_, '_>, count: usize) {
    let input = Input::new(count, true, 1);
    bencher.bench(|| black_box(&input).overlaps());
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn overlap_unsorted(bencher: Bencher<'_, '_>, count: usize) {
    let input = Input::new(count, false, 1);
    bencher.bench(|| black_box(&input).overlaps());
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn whole_analysis(bencher: Bencher<'_, '_>, count: usize) {
    let timeline = Input::new(count, false, 1).timeline();
    bencher.bench(|| analyze(black_box(&timeline), &AnalyzeOptions::default()));
}

/// Seconds of the fastest of five runs, each with input of its own: on small inputs seen before, the
/// branch predictor knows the sort's answers.
fn fastest<I, T>(input: impl Fn(u64) -> I, run: impl Fn(&I) -> T) -> f64 {
    let times = (0..5).map(|seed| {
        let input = input(seed);
        let begin = Instant::now();
        black_box(run(&input));
        begin.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn growth() {
    println!("\nfastest of 5, seconds and nanoseconds per pair of intervals (as much for each size: linear)");
    for (name, sorted) in [("overlap sorted", true), ("overlap unsorted", false)] {
        print_growth(
            name,
            GROWTH.map(|count| fastest(|seed| Input::new(count, sorted, seed), Input::overlaps)),
        );
    }
    for (name, sorted) in [("analysis sorted", true), ("analysis unsorted", false)] {
        let analysis = |timeline: &Timeline| analyze(timeline, &AnalyzeOptions::default());
        print_growth(
            name,
            GROWTH.map(|count| fastest(|seed| Input::new(count, sorted, seed).timeline(), analysis)),
        );
    }
    println!(
        "input of the largest overlap: {} MB (starts and ends alone; {} MB as a timeline's columns)",
        32 * GROWTH[3] / 1_000_000,
        96 * GROWTH[3] / 1_000_000
    );
}

fn print_growth(name: &str, seconds: [f64; 4]) {
    print!("{name:<18}");
    for (index, (&count, time)) in GROWTH.iter().zip(seconds).enumerate() {
        let per_pair = time / count as f64 * 1e9;
        print!("  {count:>7}: {time:.4} s, {per_pair:>4.0} ns");
        if let Some(before) = index.checked_sub(1) {
            let size = count as f64 / GROWTH[before] as f64;
            print!(" (x{:.1} for x{size})", time / seconds[before]);
        }
    }
    println!();
}
