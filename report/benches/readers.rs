//! Reading traces beside what it takes to decompress them, and beside another tool if it is there.
//!
//!     cargo bench -p commtrace-report --features import --bench readers
//!
//! Measures a PyTorch trace whose events are repeated until it is large: `gzip -dc` of the file, reading it
//! (the best of several runs), peak memory, and a folder of several such files. HolisticTraceAnalysis and
//! TraceLens are run beside it where `HTA_PYTHON` and `TRACELENS_PYTHON` name a Python that has them:
//!
//!     python -m venv hta && hta/bin/pip install HolisticTraceAnalysis
//!     python -m venv tl && tl/bin/pip install git+https://github.com/AMD-AGI/TraceLens
//!     HTA_PYTHON=hta/bin/python TRACELENS_PYTHON=tl/bin/python \
//!         cargo bench -p commtrace-report --features import --bench readers
//!
//! `COMMTRACE_BENCH_TRACE=FILE` measures another trace (gzip), `COMMTRACE_BENCH_MB` how large its content
//! is made (default 200). Peak memory of a file of 1 GB: `COMMTRACE_BENCH_MB=1000`.

use commtrace_report::analyze::{AnalyzeOptions, analyze};
use commtrace_report::read::{ReadOptions, read};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RUNS: usize = 5;
const FOLDER: usize = 4;

/// Other tools: the variable that names their Python, their name, and what they do, imports not counted.
const PEERS: [(&str, &str, &str); 2] = [
    (
        "HTA_PYTHON",
        "HolisticTraceAnalysis",
        "import sys, time\n\
         from hta.trace_analysis import TraceAnalysis\n\
         start = time.perf_counter()\n\
         TraceAnalysis(trace_files={0: sys.argv[1]}).get_comm_comp_overlap(visualize=False)\n\
         print('\\nseconds', time.perf_counter() - start)",
    ),
    (
        "TRACELENS_PYTHON",
        "TraceLens",
        "import sys, time\n\
         from TraceLens import TreePerfAnalyzer\n\
         start = time.perf_counter()\n\
         TreePerfAnalyzer.from_file(sys.argv[1]).get_df_gpu_timeline()\n\
         print('\\nseconds', time.perf_counter() - start)",
    ),
];

fn main() {
    // Without this, the program is run as one of the tests, where only that it works counts.
    let measured = std::env::args().any(|arg| arg == "--bench");
    let megabytes = std::env::var("COMMTRACE_BENCH_MB").ok().and_then(|text| text.parse().ok());
    let bytes = if measured { megabytes.unwrap_or(200) * 1_000_000 } else { 1_000_000 };
    let source = source();
    let folder = tempfile::tempdir().expect("a folder");
    let plain = folder.path().join("rank0.json");
    repeat(&source, &plain, bytes);
    let gzip = compress(&plain);
    let size = |path: &Path| fs::metadata(path).map_or(0.0, |data| data.len() as f64 / 1e6);
    println!(
        "{} repeated: {:.0} MB, {:.1} MB as gzip",
        source.file_name().unwrap_or_default().display(),
        size(&plain),
        size(&gzip)
    );

    let floor = best(|| {
        let status = Command::new("gzip").arg("-dc").arg(&gzip).stdout(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "gzip is needed to compare with");
    });
    let ours = best(|| load(std::slice::from_ref(&gzip)));
    let uncompressed = best(|| load(std::slice::from_ref(&plain)));
    let row = |name: &str, time: Duration| {
        let times = time.as_secs_f64() / floor.as_secs_f64();
        println!("{name:<44} {:>9.1} ms  {times:>6.2} x gzip -dc", time.as_secs_f64() * 1e3);
    };
    row("gzip -dc", floor);
    row("read and analyze, gzip", ours);
    row("read and analyze, not compressed", uncompressed);
    println!("{:<44} {:>9} MiB", "peak memory so far", peak_mib().map_or("?".into(), |mib| mib.to_string()));

    let many: Vec<PathBuf> = (0..FOLDER)
        .map(|rank| {
            let path = folder.path().join(format!("folder/rank{rank}.json.gz"));
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::copy(&gzip, &path).expect("a copy");
            path
        })
        .collect();
    let one_by_one = best(|| many.iter().for_each(|path| load(std::slice::from_ref(path))));
    let together = best(|| load(&[folder.path().join("folder")]));
    row(&format!("{FOLDER} files one by one"), one_by_one);
    row(&format!("a folder of {FOLDER} files"), together);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{:<44} {:>9.2} x with {processors} processors",
        "  faster",
        one_by_one.as_secs_f64() / together.as_secs_f64()
    );

    for (variable, name, script) in PEERS {
        let Some(python) = std::env::var_os(variable) else { continue };
        match peer(Path::new(&python), script, &gzip) {
            Some(time) => {
                row(&format!("{name}, load and overlap"), time);
                println!("{:<44} {:>9.1} x", "  slower", time.as_secs_f64() / ours.as_secs_f64());
            }
            None => println!("{name} could not be run with {}", python.display()),
        }
    }
}

/// A trace to repeat: the one that is given, a real one beside the project, or one of the tests.
fn source() -> PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let given = std::env::var_os("COMMTRACE_BENCH_TRACE").map(PathBuf::from);
    let real = project.join("../../shared/corpus/kineto/ddp_2ranks_rank0.json.gz");
    given
        .or_else(|| real.exists().then_some(real))
        .unwrap_or_else(|| project.join("tests/data/pytorch/fsdp2_rank0.json.gz"))
}

/// Writes the events of `source` again and again, until there are `bytes` of them.
fn repeat(source: &Path, path: &Path, bytes: usize) {
    let mut content = Vec::new();
    MultiGzDecoder::new(File::open(source).expect("the trace")).read_to_end(&mut content).expect("gzip");
    let content = String::from_utf8_lossy(&content);
    let key = content.find("\"traceEvents\"").expect("a list of events");
    let start = key + content[key..].find('[').expect("its beginning") + 1;
    let last = content.rfind("\"ph\"").expect("events");
    // The list ends behind the last event, which holds no bracket of this kind itself.
    let end = last + content[last..].find(']').expect("its end");
    let events = content[start..end].trim();
    let mut out = BufWriter::new(File::create(path).expect("a file"));
    let mut write = |text: &str| out.write_all(text.as_bytes()).expect("room");
    write(&content[..start]);
    for copy in 0..bytes.div_ceil(events.len()) {
        if copy > 0 {
            write(",\n");
        }
        write(events);
    }
    write(&content[end..]);
}

fn compress(plain: &Path) -> PathBuf {
    let path = plain.with_extension("json.gz");
    let mut encoder = GzEncoder::new(File::create(&path).expect("a file"), Compression::default());
    std::io::copy(&mut File::open(plain).expect("the trace"), &mut encoder).expect("room");
    encoder.finish().expect("room");
    path
}

fn load(paths: &[PathBuf]) {
    // The copies say the same rank; their names do not.
    let options = ReadOptions { rank_regex: Some(r"rank(\d+)\.json".into()), ..ReadOptions::default() };
    let timeline = read(paths, &options).expect("a trace");
    std::hint::black_box(analyze(&timeline, &AnalyzeOptions::default()));
}

fn best(mut run: impl FnMut()) -> Duration {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    times.min().unwrap_or_default()
}

/// The most memory that this process had, on Linux.
fn peak_mib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib / 1024)
}

/// What the same takes with another tool.
fn peer(python: &Path, script: &str, trace: &Path) -> Option<Duration> {
    let output = Command::new(python).args(["-c", script]).arg(trace).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let seconds = text.lines().find_map(|line| line.strip_prefix("seconds ")?.trim().parse().ok())?;
    Some(Duration::from_secs_f64(seconds))
}
