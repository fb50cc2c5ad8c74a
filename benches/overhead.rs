//! What a span costs: nanoseconds beside other recorders, and bytes per record on disk.
//!
//! `cargo bench --bench overhead`. Each recorder runs in processes of its own, since subscribers that
//! exist side by side change what a disabled callsite costs; the processes take turns. A process gives
//! the lower quartile of its stretches, since other programs on the machine only ever add time; a ratio
//! is the median over turns of one row's time to the other's in the same turn.

use commtrace::{Config, Mode, comm_span};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tracing_subscriber::layer::SubscriberExt;

/// Spans timed at a stretch: fewer than the queue holds, so that none is dropped.
const BURST: u64 = 10_000;
/// Stretches per process.
const BURSTS: usize = 20;
/// Processes per recorder.
const TURNS: usize = 9;

struct Recorder {
    name: &'static str,
    run: fn() -> f64,
}

const RECORDERS: [Recorder; 8] = [
    Recorder { name: "off", run: off },
    Recorder { name: "registry", run: registry },
    Recorder { name: "commtrace, files", run: files },
    Recorder { name: "commtrace, summary", run: summary },
    Recorder { name: "fastrace", run: fastrace },
    Recorder { name: "tracing-chrome", run: tracing_chrome },
    Recorder { name: "fmt", run: fmt },
    Recorder { name: "fmt + commtrace off", run: fmt_and_off },
];

/// Rows that are compared: the first with the second.
const RATIOS: [(&str, &str); 6] = [
    ("commtrace, files", "registry"),
    ("commtrace, summary", "registry"),
    ("fastrace", "registry"),
    ("tracing-chrome", "registry"),
    ("tracing-chrome", "commtrace, files"),
    ("fmt + commtrace off", "fmt"),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--recorder") {
        let name = arguments.next().unwrap_or_default();
        let recorder = RECORDERS.iter().find(|recorder| recorder.name == name);
        println!("{}", recorder.map_or(f64::NAN, |recorder| (recorder.run)()));
        return;
    }
    // `cargo test --benches` passes `--test`: run everything once, briefly.
    let turns = if std::env::args().any(|argument| argument == "--bench") { TURNS } else { 1 };
    let mut times = vec![Vec::new(); RECORDERS.len()];
    for _ in 0..turns {
        for (times, recorder) in times.iter_mut().zip(&RECORDERS) {
            times.push(in_own_process(recorder.name));
        }
    }
    println!("{:<22} {:>12} {:>12}", "recorder", "ns per span", "best turn");
    for (times, recorder) in times.iter().zip(&RECORDERS) {
        let best = times.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{:<22} {:>12.1} {:>12.1}", recorder.name, quantile(times.clone(), 0.5), best);
    }
    println!();
    for (name, base) in RATIOS {
        let of = |wanted| &times[RECORDERS.iter().position(|recorder| recorder.name == wanted).unwrap_or(0)];
        let ratios = of(name).iter().zip(of(base)).map(|(time, base)| time / base).collect();
        println!("{name} / {base}: {:.2}", quantile(ratios, 0.5));
    }
    println!();
    bytes_on_disk();
}

fn in_own_process(name: &str) -> f64 {
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new(program).args(["--recorder", name]).output().expect("this program runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_else(|_| {
        panic!("{name} gave no time: {}", String::from_utf8_lossy(&output.stderr));
    })
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

/// Nanoseconds per span of `spans`, the lower quartile of stretches with pauses for the recorder's thread.
fn time(spans: impl Fn(u64)) -> f64 {
    let mut times = Vec::new();
    for burst in 0..=BURSTS {
        let begin = Instant::now();
        spans(BURST);
        // The first stretch grows buffers and registers callsites.
        if burst > 0 {
            times.push(begin.elapsed().as_nanos() as f64 / BURST as f64);
        }
        std::thread::sleep(Duration::from_millis(60));
    }
    quantile(times, 0.25)
}

/// The span that is timed: name, bytes, comm and seq.
fn spans(count: u64) {
    for seq in 0..count {
        let span = comm_span!("all_reduce", bytes = 1_048_576_u64, comm = "world", seq = seq).entered();
        black_box(&span);
    }
}

fn install(subscriber: impl tracing::Subscriber + Send + Sync) {
    tracing::subscriber::set_global_default(subscriber).expect("no other subscriber in this process");
}

fn off() -> f64 {
    time(spans)
}

fn registry() -> f64 {
    install(tracing_subscriber::registry());
    time(spans)
}

fn files() -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let guard = Config::default().mode(Mode::Directory(folder.path().into())).init().expect("recording");
    let time = time(spans);
    assert_eq!(guard.stats().dropped, 0, "a dropped span costs less and would flatter the figure");
    time
}

fn summary() -> f64 {
    let guard = Config::default().mode(Mode::Summary).init().expect("recording");
    let time = time(spans);
    assert_eq!(guard.stats().dropped, 0);
    time
}

fn fastrace() -> f64 {
    struct Discard;
    impl fastrace::collector::Reporter for Discard {
        fn report(&mut self, spans: Vec<fastrace::collector::SpanRecord>) {
            black_box(spans);
        }
    }
    fastrace::set_reporter(Discard, fastrace::collector::Config::default());
    time(|count| {
        // A collector takes a limited number of spans; a step of training has about this many.
        for chunk in 0..count / 1000 {
            let root = fastrace::Span::root("step", fastrace::prelude::SpanContext::random());
            let _parent = root.set_local_parent();
            for seq in chunk * 1000..(chunk + 1) * 1000 {
                let span =
                    fastrace::local::LocalSpan::enter_with_local_parent("all_reduce").with_properties(|| {
                        [
                            ("bytes", "1048576".into()),
                            ("comm", "world".into()),
                            ("seq", std::borrow::Cow::<str>::from(seq.to_string())),
                        ]
                    });
                black_box(&span);
            }
        }
    })
}

fn tracing_chrome() -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let (layer, _guard) = chrome_layer(&folder.path().join("trace.json"));
    install(tracing_subscriber::registry().with(layer));
    time(spans)
}

fn chrome_layer<S>(path: &Path) -> (tracing_chrome::ChromeLayer<S>, tracing_chrome::FlushGuard)
where
    S: tracing::Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span> + Send + Sync,
{
    tracing_chrome::ChromeLayerBuilder::new().file(path).include_args(true).build()
}

/// A program that logs: an event inside our span, formatted with its context.
fn logging(count: u64) {
    for seq in 0..count / 10 {
        comm_span!("all_reduce", bytes = 1_048_576_u64, comm = "world", seq = seq).in_scope(|| {
            tracing::info!(loss = 0.25, "step");
            tracing::debug!("not shown");
        });
    }
}

fn fmt() -> f64 {
    let fmt = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
    install(tracing_subscriber::registry().with(fmt));
    time(logging)
}

fn fmt_and_off() -> f64 {
    let fmt = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
    let (layer, _guard) = Config::default().layer().expect("off");
    install(tracing_subscriber::registry().with(fmt).with(layer));
    time(logging)
}

/// Bytes per span of a record file and of tracing-chrome's file.
fn bytes_on_disk() {
    const SPANS: u64 = 20_000;
    let folder = tempfile::tempdir().expect("a folder");
    let (layer, guard) =
        Config::default().mode(Mode::Directory(folder.path().into())).layer().expect("recording");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || spans(SPANS));
    drop(guard);
    let ours: u64 = std::fs::read_dir(folder.path())
        .expect("the folder")
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(".arrows"))
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum();
    let path = folder.path().join("chrome.json");
    let (layer, guard) = chrome_layer(&path);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || spans(SPANS));
    drop(guard);
    let theirs = std::fs::metadata(&path).expect("their file").len();
    println!("bytes per span on disk: commtrace {:.1}", ours as f64 / SPANS as f64);
    println!("bytes per span on disk: tracing-chrome {:.1}", theirs as f64 / SPANS as f64);
}
