//! What `MpiComm` adds to MPI: its collectives beside the plain calls, and beside a loop in C.
//!
//!     cargo bench -p commtrace-collectives --features mpi --bench mpi
//!         [-- --ranks N --seconds S --collective NAME BYTES ...]
//!
//! Two comparisons. In one job, each rank makes the plain call of MPI, the call of `MpiComm`, and the same
//! recorded into a folder, in turns: what the machine does beside them hits all three alike. And
//! `mpi_collectives.c`, a program of its own, takes turns with a job of the same loop over `MpiComm`.
//!
//! A repeat's time is that of its slowest rank. Where other programs take the cores, most repeats measure the
//! scheduler; so the first comparison also gives figures of the undisturbed repeats, during which no rank's core
//! was given to another thread.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use commtrace_collectives::{Communicator, MpiComm, ReduceOp, Result};
use commtrace_instrument::{Config, Mode};
use mpi::ffi;
use tracing::Dispatch;
use tracing::dispatcher::{get_default, with_default};

const SIZES: [usize; 6] = [8, 1 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20];
const WARM_UP: usize = 5;
/// Fewest and most repeats of each kind in a comparison.
const REPEATS: (usize, usize) = (20, 2000);
/// Jobs of each program in the comparison with C.
const TURNS: usize = 5;
/// Set in the ranks: which loop they run.
const ROLE: &str = "MPI_BENCH_ROLE";

fn main() {
    let options = Options::from_arguments();
    match env::var(ROLE).as_deref() {
        Ok("compare") => compare(&options),
        Ok(_) => alone(&options),
        Err(_) => launch(&options),
    }
}

struct Options {
    ranks: usize,
    /// For each collective and size.
    seconds: f64,
    sizes: Vec<usize>,
    /// All if `None`.
    collective: Option<String>,
}

impl Options {
    fn from_arguments() -> Self {
        // `cargo test --benches` does not pass `--bench`: everything once, briefly.
        let seconds = if env::args().any(|argument| argument == "--bench") { 2.0 } else { 0.0 };
        let mut options = Self { ranks: 2, seconds, sizes: Vec::new(), collective: None };
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("a value after the option");
            match argument.as_str() {
                "--ranks" => options.ranks = value().parse().expect("a number of ranks"),
                "--seconds" => options.seconds = value().parse().expect("seconds"),
                "--collective" => options.collective = Some(value()),
                "--bench" | "--test" => {}
                bytes => options.sizes.push(bytes.parse().expect("bytes")),
            }
        }
        if options.sizes.is_empty() {
            options.sizes = if seconds > 0.0 { SIZES.to_vec() } else { SIZES[..2].to_vec() };
        }
        options
    }

    fn collectives(&self) -> impl Iterator<Item = &'static Collective> {
        let wanted = |one: &&Collective| self.collective.as_ref().is_none_or(|name| name == one.name);
        COLLECTIVES.iter().filter(wanted)
    }

    fn mpirun(&self) -> Command {
        let mut command = Command::new("mpirun");
        command.args(["-n", &self.ranks.to_string()]).stdin(Stdio::null());
        command
    }
}

fn launch(options: &Options) {
    let program = env::current_exe().expect("the path of this program");
    let arguments: Vec<String> = env::args().skip(1).collect();
    let us = |role| {
        let mut command = options.mpirun();
        command.env(ROLE, role).arg(&program).args(&arguments);
        command
    };
    let status = us("compare").status().expect("mpirun (openmpi-bin, or another MPI's) runs");
    assert!(status.success(), "the job failed: {status}");

    let folder = tempfile::tempdir().expect("a folder");
    let peer = folder.path().join("mpi_collectives");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/mpi_collectives.c");
    let compiled = Command::new("mpicc").arg("-O2").arg("-o").arg(&peer).arg(source).status();
    assert!(compiled.expect("mpicc runs").success(), "the loop in C does not compile");
    let sizes = options.sizes.iter().map(ToString::to_string);
    let mut c = options.mpirun();
    c.arg(&peer).arg(REPEATS.0.to_string()).args(sizes);
    let turns = if options.seconds > 0.0 { TURNS } else { 1 };
    let turns: Vec<_> = (0..turns).map(|_| (lines(&mut c), lines(&mut us("alone")))).collect();
    println!(
        "\nmedians of jobs of {} repeats in turns, us: best job of the loop in C and of MpiComm",
        REPEATS.0
    );
    let Some((first, _)) = turns.first() else { return };
    for (name, _) in first {
        let medians = |of: fn(&Turn) -> &Vec<(String, f64)>| {
            turns
                .iter()
                .filter_map(move |turn| of(turn).iter().find(|(one, _)| one == name).map(|(_, us)| *us))
        };
        // The loop in C takes no `--collective`.
        if medians(|turn| &turn.1).next().is_none() {
            continue;
        }
        let (plain, ours) = (medians(|turn| &turn.0), medians(|turn| &turn.1));
        let ratios = plain.clone().zip(ours.clone()).map(|(plain, ours)| ours / plain).collect();
        let (plain, ours) = (plain.fold(f64::INFINITY, f64::min), ours.fold(f64::INFINITY, f64::min));
        let ratio = quantile(ratios, 0.5);
        println!(
            "{name:<26} {plain:>10.1} {ours:>10.1}   / C: {:.3}, median of turns {ratio:.3}",
            ours / plain
        );
    }
}

type Turn = (Vec<(String, f64)>, Vec<(String, f64)>);

/// Collective with size, and median in microseconds, of each line that the job prints.
fn lines(job: &mut Command) -> Vec<(String, f64)> {
    let output = job.stderr(Stdio::inherit()).output().expect("the job runs");
    assert!(output.status.success(), "the job failed: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = format!("{} {}", words.next()?, words.next()?);
        Some((name, words.next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// What a collective is called with: the larger buffers have `len` elements.
struct Buffers {
    from: Vec<f32>,
    into: Vec<f32>,
    part: usize,
}

impl Buffers {
    fn new(comm: &MpiComm, bytes: usize) -> Self {
        let part = bytes / size_of::<f32>() / comm.size();
        let len = part * comm.size();
        Self { from: vec![comm.rank() as f32 + 1.0; len], into: vec![0.0; len], part }
    }
}

/// A collective by `MpiComm` and as the plain call of MPI.
struct Collective {
    name: &'static str,
    ours: fn(&MpiComm, &mut Buffers) -> Result<()>,
    plain: unsafe fn(*const Raw, *mut Raw, i32, i32) -> i32,
}

type Raw = std::ffi::c_void;

static COLLECTIVES: [Collective; 5] = [
    Collective {
        name: "all_reduce",
        ours: |comm, Buffers { from, into, .. }| comm.all_reduce(from, into, &ReduceOp::Sum),
        plain: |from, into, len, _| unsafe {
            ffi::MPI_Allreduce(from, into, len, ffi::RSMPI_FLOAT, ffi::RSMPI_SUM, ffi::RSMPI_COMM_WORLD)
        },
    },
    Collective {
        name: "all_gather",
        ours: |comm, Buffers { from, into, part }| comm.all_gather(&from[..*part], into),
        plain: |from, into, _, part| unsafe {
            let float = ffi::RSMPI_FLOAT;
            ffi::MPI_Allgather(from, part, float, into, part, float, ffi::RSMPI_COMM_WORLD)
        },
    },
    Collective {
        name: "reduce_scatter",
        ours: |comm, Buffers { from, into, part }| {
            comm.reduce_scatter(from, &mut into[..*part], &ReduceOp::Sum)
        },
        plain: |from, into, _, part| unsafe {
            let (float, sum) = (ffi::RSMPI_FLOAT, ffi::RSMPI_SUM);
            ffi::MPI_Reduce_scatter_block(from, into, part, float, sum, ffi::RSMPI_COMM_WORLD)
        },
    },
    Collective {
        name: "broadcast",
        ours: |comm, Buffers { into, .. }| comm.broadcast_in_place(into, 0),
        plain: |_, into, len, _| unsafe {
            ffi::MPI_Bcast(into, len, ffi::RSMPI_FLOAT, 0, ffi::RSMPI_COMM_WORLD)
        },
    },
    Collective {
        name: "all_to_all",
        ours: |comm, Buffers { from, into, .. }| comm.all_to_all(from, into),
        plain: |from, into, _, part| unsafe {
            let float = ffi::RSMPI_FLOAT;
            ffi::MPI_Alltoall(from, part, float, into, part, float, ffi::RSMPI_COMM_WORLD)
        },
    },
];

fn plain(collective: &Collective, buffers: &mut Buffers) {
    let Buffers { from, into, part } = buffers;
    let (len, part) = (from.len() as i32, *part as i32);
    // SAFETY: both buffers have `len` elements, which are `part` for each rank.
    let code = unsafe { (collective.plain)(from.as_ptr().cast(), into.as_mut_ptr().cast(), len, part) };
    assert_eq!(code, 0, "{}", collective.name);
}

fn barrier() {
    // SAFETY: MPI runs while there is an `MpiComm`.
    unsafe { ffi::MPI_Barrier(ffi::RSMPI_COMM_WORLD) };
}

/// A repeat: microseconds, and how often the thread's core was given to another.
fn timed(call: impl FnOnce()) -> (f64, f64) {
    let switches = || {
        // SAFETY: plain data, which the call fills in.
        unsafe {
            let mut usage = std::mem::zeroed::<libc::rusage>();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage.ru_nivcsw as f64
        }
    };
    barrier();
    let before = switches();
    let begin = Instant::now();
    call();
    (begin.elapsed().as_secs_f64() * 1e6, switches() - before)
}

/// The largest value over ranks, element by element.
fn largest(comm: &MpiComm, values: &mut [f64]) {
    comm.all_reduce_in_place(values, &ReduceOp::Max).expect("an all_reduce");
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len().saturating_sub(1) as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

/// The loop of `mpi_collectives.c` over `MpiComm`, untraced.
fn alone(options: &Options) {
    let comm = MpiComm::world().expect("a world");
    for &bytes in &options.sizes {
        let mut buffers = Buffers::new(&comm, bytes);
        for collective in options.collectives() {
            let call = |buffers: &mut Buffers| (collective.ours)(&comm, buffers).expect(collective.name);
            let repeats = (0..WARM_UP + REPEATS.0).map(|_| timed(|| call(&mut buffers)).0);
            let mut times: Vec<f64> = repeats.skip(WARM_UP).collect();
            largest(&comm, &mut times);
            if comm.rank() == 0 {
                println!("{} {bytes} {:.3}", collective.name, quantile(times, 0.5));
            }
        }
    }
}

/// The plain call, that of `MpiComm`, and the recorded one, in turns.
fn compare(options: &Options) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config::default().mode(Mode::Directory(folder.path().into())).merge_timeout(Duration::ZERO);
    let guard = config.init().expect("a recorder");
    let recording = get_default(Dispatch::clone);
    let comm = MpiComm::world().expect("a world");
    // `tracing` would take what is off when a call is first made for off for good.
    COLLECTIVES.iter().for_each(|one| (one.ours)(&comm, &mut Buffers::new(&comm, 8)).expect(one.name));
    if comm.rank() == 0 {
        println!("{} ranks; us of: MPI, MpiComm, MpiComm recorded", comm.size());
    }
    for &bytes in &options.sizes {
        let mut buffers = Buffers::new(&comm, bytes);
        for collective in options.collectives() {
            let mut samples: [Vec<f64>; 3] = Default::default();
            let mut switches: [Vec<f64>; 3] = Default::default();
            let begin = Instant::now();
            for round in 0..WARM_UP + REPEATS.1 {
                for turn in 0..3 {
                    let kind = (round + turn) % 3;
                    let dispatch = if kind == 2 { recording.clone() } else { Dispatch::none() };
                    let (time, switched) = with_default(&dispatch, || {
                        timed(|| match kind {
                            0 => plain(collective, &mut buffers),
                            _ => (collective.ours)(&comm, &mut buffers).expect(collective.name),
                        })
                    });
                    if round >= WARM_UP {
                        samples[kind].push(time);
                        switches[kind].push(switched);
                    }
                }
                let mut spent = [begin.elapsed().as_secs_f64()];
                with_default(&Dispatch::none(), || largest(&comm, &mut spent));
                if round + 1 >= WARM_UP + REPEATS.0 && spent[0] > options.seconds {
                    break;
                }
            }
            with_default(&Dispatch::none(), || {
                samples.iter_mut().chain(&mut switches).for_each(|values| largest(&comm, values));
            });
            if comm.rank() == 0 {
                print(&format!("{} {bytes}", collective.name), &samples, &switches);
            }
        }
    }
    drop(guard);
}

fn print(name: &str, samples: &[Vec<f64>; 3], switches: &[Vec<f64>; 3]) {
    let undisturbed: Vec<Vec<f64>> = (samples.iter().zip(switches))
        .map(|(times, switches)| {
            times
                .iter()
                .zip(switches)
                .filter(|(_, switches)| **switches == 0.0)
                .map(|(time, _)| *time)
                .collect()
        })
        .collect();
    let fewest = undisturbed.iter().map(Vec::len).min().unwrap_or(0);
    println!("{name}: {} repeats of each, {fewest} undisturbed", samples[0].len());
    let row = |title: &str, of: &[Vec<f64>], share: f64| {
        let values: Vec<f64> = of.iter().map(|times| quantile(times.clone(), share)).collect();
        let (plain, ours, recorded) = (values[0], values[1], values[2]);
        println!(
            "  {title:<20} {plain:>10.1} {ours:>10.1} {recorded:>10.1}   / MPI: {:.3} {:.3}",
            ours / plain,
            recorded / plain
        );
    };
    row("minimum", samples, 0.0);
    row("median", samples, 0.5);
    row("95th percentile", samples, 0.95);
    row("undisturbed median", &undisturbed, 0.5);
}
