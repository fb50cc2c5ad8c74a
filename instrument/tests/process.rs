//! How a process may end, and what is on disk and on stderr then. Each test runs this binary again as
//! a child that plays a scenario.

mod common;

use commtrace_instrument::{Config, comm_span, compute_span, init, layer, step_span};
use commtrace_report::read::{ReadOptions, read};
use commtrace_report::timeline::Timeline;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tracing_subscriber::layer::SubscriberExt;

const SCENARIO: &str = "COMMTRACE_TEST_SCENARIO";

/// Not a test by itself: what the children run.
#[test]
fn child() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    match scenario.as_str() {
        "exit" => {
            let _guard = init().unwrap();
            spans(100);
            std::process::exit(7);
        }
        "panic" => {
            let _guard = init().unwrap();
            spans(100);
            let _inside = compute_span!("unwound").entered();
            panic!("the application's own panic");
        }
        "leak" => {
            std::mem::forget(init().unwrap());
            spans(100);
            // The test harness ends the process with `exit`.
        }
        "sigterm" => {
            let _guard = init().unwrap();
            #[cfg(unix)]
            commtrace_instrument::finish_on_sigterm().unwrap();
            spans(100);
            wait_to_be_killed();
        }
        "sigkill" => {
            let guard = init().unwrap();
            spans(100);
            assert!(guard.flush());
            let _hangs = comm_span!("all_reduce", comm = "world", seq = 100_u64, bytes = 4_u64).entered();
            std::thread::sleep(Duration::from_millis(1100));
            assert!(guard.flush());
            wait_to_be_killed();
        }
        "hang" => {
            let _guard = init().unwrap();
            spans(100);
            let _hangs = comm_span!("all_reduce", comm = "world", seq = 100_u64).entered();
            wait_to_be_killed();
        }
        "filtered" => {
            let (layer, _guard) = layer().unwrap();
            let filter = tracing_subscriber::EnvFilter::new("warn");
            let subscriber = tracing_subscriber::registry().with(filter).with(layer);
            tracing::subscriber::set_global_default(subscriber).unwrap();
            spans(100);
        }
        "init" => match init() {
            Ok(_guard) => spans(100),
            Err(error) => {
                eprintln!("init failed: {error}");
                std::process::exit(3);
            }
        },
        "second subscriber" => {
            tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap();
            eprintln!("init failed: {}", init().unwrap_err());
        }
        "fork" => fork(),
        "disk full" => {
            limit_file_size(64 << 10);
            let guard = Config::from_env().unwrap().init().unwrap();
            for _ in 0..40 {
                spans(1_000);
                guard.flush();
            }
            let report = guard.into_report().unwrap();
            let summary = &report.ranks[0].summary;
            eprintln!("summary has {} communication events", summary.num_comm_events);
        }
        "size limit" => {
            let guard = Config::from_env().unwrap().max_bytes(64 << 10).init().unwrap();
            for _ in 0..40 {
                spans(1_000);
                guard.flush();
            }
        }
        other => panic!("no scenario {other}"),
    }
}

/// `count` steps with one compute and one communication span each.
fn spans(count: u64) {
    for step in 0..count {
        let _step = step_span!(step).entered();
        compute_span!("forward").in_scope(|| ());
        comm_span!("all_reduce", comm = "world", seq = step, bytes = 4_u64).in_scope(|| ());
    }
}

fn wait_to_be_killed() {
    println!("ready");
    std::thread::sleep(Duration::from_secs(60));
}

/// A child of the recording process ends at once and leaves the parent's record alone.
#[cfg(unix)]
fn fork() {
    let _guard = init().unwrap();
    spans(100);
    // SAFETY: the child only calls functions of this crate that are made for this case, and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        spans(10);
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: `pid` is our child and `status` a valid place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0);
}

/// Writes beyond `bytes` fail as on a full disk.
#[cfg(unix)]
fn limit_file_size(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: plain system calls; ignoring the signal turns it into an error of `write`.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

fn command(scenario: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    // The launcher of the tests, if there is one, is not the child's.
    for name in ["RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.env(SCENARIO, scenario).envs(variables.iter().copied());
    command
}

fn run(scenario: &str, variables: &[(&str, &str)]) -> Output {
    command(scenario, variables).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn read_folder(folder: &Path) -> Timeline {
    read(&[folder.to_owned()], &ReadOptions::default()).unwrap()
}

/// The folder's record: how many communication intervals, and whether it ended regularly.
fn recorded(folder: &Path) -> (usize, Option<bool>) {
    let timeline = read_folder(folder);
    (timeline.tracks.iter().map(|track| track.comm.len()).sum(), timeline.inputs[0].ended)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".arrows"))
        .collect();
    names.sort();
    names
}

#[test]
fn reports_are_made_however_the_process_ends() {
    for (scenario, code) in [("exit", Some(7)), ("panic", Some(101)), ("leak", Some(0))] {
        let folder = tempfile::tempdir().unwrap();
        let output = run(scenario, &[("COMMTRACE_DIR", folder.path().to_str().unwrap())]);
        assert_eq!(output.status.code(), code, "{scenario}: {}", stderr(&output));
        assert_eq!(recorded(folder.path()), (100, Some(true)), "{scenario}");
        assert_eq!(names(folder.path()), ["report.txt", "summary.json"], "{scenario}");
    }
}

#[cfg(unix)]
fn signalled(scenario: &str, signal: libc::c_int, folder: &Path) -> std::process::ExitStatus {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    let mut child = command(scenario, &[("COMMTRACE_DIR", folder.to_str().unwrap())])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")));
    // SAFETY: `child` has not been waited for, so the id is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(signal));
    status
}

#[cfg(unix)]
#[test]
fn sigterm_ends_the_record_regularly_and_still_kills() {
    let folder = tempfile::tempdir().unwrap();
    signalled("sigterm", libc::SIGTERM, folder.path());
    assert_eq!(recorded(folder.path()), (100, Some(true)));
    assert_eq!(names(folder.path()), ["report.txt", "summary.json"]);
}

#[cfg(unix)]
#[test]
fn after_sigkill_every_flushed_record_is_there_and_so_is_the_call_that_hung() {
    let folder = tempfile::tempdir().unwrap();
    signalled("sigkill", libc::SIGKILL, folder.path());
    assert_eq!(recorded(folder.path()), (100, Some(false)));
    let timeline = read_folder(folder.path());
    let open = &timeline.tracks[0].open;
    assert_eq!(open.len(), 1);
    assert_eq!((timeline.names.get(open[0].name), open[0].seq), ("all_reduce", Some(100)));
    // The record says up to when it is complete: after the call was entered. (Not a whole second after: the
    // clock is read before the calls are looked at, so that it never says too much.)
    let input = &timeline.inputs[0];
    let seen = input.seen.expect("up to when the record goes");
    assert!(seen.at_ns > open[0].start_ns.unwrap(), "{seen:?} {open:?}");
    assert!(input.process.as_ref().is_some_and(|process| process.start_ns <= seen.at_ns));
}

/// However seldom the rest is written.
#[cfg(unix)]
#[test]
fn a_call_that_hangs_is_on_disk_long_before_the_next_flush() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("COMMTRACE_DIR", folder.path().to_str().unwrap()), ("COMMTRACE_FLUSH_MS", "86400000")];
    let mut child = command("hang", &variables).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    let open = loop {
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        let timeline = (files > 0).then(|| read(&[folder.path().to_owned()], &ReadOptions::default()));
        if let Some(Ok(timeline)) = timeline
            && let Some(open) = timeline.tracks.iter().flat_map(|track| &track.open).next()
        {
            break (timeline.names.get(open.name).to_owned(), open.seq);
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "not written");
        std::thread::sleep(Duration::from_millis(50));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(open, ("all_reduce".to_owned(), Some(100)));
    assert_eq!(recorded(folder.path()), (100, Some(false)), "what went before is there, too");
}

#[cfg(unix)]
#[test]
fn a_forked_child_neither_waits_nor_writes() {
    let folder = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let output = run("fork", &[("COMMTRACE_DIR", folder.path().to_str().unwrap())]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(begin.elapsed() < Duration::from_secs(30));
    assert_eq!(recorded(folder.path()), (100, Some(true)));
}

#[test]
fn a_filter_that_disables_our_spans_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = run("filtered", &[("COMMTRACE_DIR", folder.path().to_str().unwrap())]);
    assert!(output.status.success());
    let text = stderr(&output);
    assert_eq!(text.matches("a filter of the tracing subscriber").count(), 1, "{text}");
}

#[test]
fn off_prints_and_writes_nothing() {
    for variables in [&[][..], &[("COMMTRACE", "off"), ("COMMTRACE_DIR", "/nonexistent/folder")]] {
        let output = run("init", variables);
        assert!(output.status.success());
        assert!(!stderr(&output).contains("commtrace"), "{}", stderr(&output));
    }
    assert!(!Path::new("/nonexistent").exists());
}

#[test]
fn summary_prints_to_stderr_and_writes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command("init", &[("COMMTRACE", "summary")]);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success());
    assert!(stderr(&output).contains("all_reduce"), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_stderr_that_takes_nothing_costs_the_application_nothing() {
    for variables in [&[("COMMTRACE", "summary")][..], &[("COMMTRACE_DIR", "")]] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = command("init", variables);
        if variables[0].0 == "COMMTRACE_DIR" {
            command.env("COMMTRACE_DIR", folder.path());
        }
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let begin = Instant::now();
        let status = command.stderr(full).stdout(Stdio::null()).status().unwrap();
        assert!(status.success(), "{status:?}");
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn an_absurd_world_size_is_only_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let text = job(&["0"], "4000000000", &[("COMMTRACE_MERGE_TIMEOUT_S", "0")], folder.path());
    assert!(text.contains("1, 2, 3") && text.contains("…"), "{text}");
    assert_eq!(names(folder.path()), ["report.txt", "summary.json"]);
}

#[test]
fn a_bad_variable_and_a_bad_folder_are_errors_that_say_what_to_do() {
    let output = run("init", &[("COMMTRACE", "summary"), ("COMMTRACE_QUEUE", "many")]);
    assert_eq!(output.status.code(), Some(3));
    let text = stderr(&output);
    assert!(text.contains("COMMTRACE_QUEUE=\"many\"") && text.contains("a whole number"), "{text}");

    let file = tempfile::NamedTempFile::new().unwrap();
    let inside_a_file = file.path().join("out");
    let output = run("init", &[("COMMTRACE_DIR", inside_a_file.to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(3));
    let text = stderr(&output);
    assert!(text.contains(inside_a_file.to_str().unwrap()) && text.contains("COMMTRACE_DIR"), "{text}");

    let output = run("second subscriber", &[("COMMTRACE", "summary")]);
    assert!(stderr(&output).contains("commtrace::layer()"), "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn a_full_disk_ends_the_record_but_not_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let output = run("disk full", &[("COMMTRACE_DIR", folder.path().to_str().unwrap())]);
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("the rest of the run is not recorded").count(), 1, "{text}");
    let (events, ended) = recorded(folder.path());
    assert!(events > 0 && events < 40_000 && ended == Some(false), "{events} {ended:?}");
    assert!(text.contains("summary has 40000 communication events"), "{text}");
}

#[test]
fn the_size_limit_ends_the_record_but_not_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let output = run("size limit", &[("COMMTRACE_DIR", folder.path().to_str().unwrap())]);
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("reached COMMTRACE_MAX_MB").count(), 1, "{text}");
    let (events, ended) = recorded(folder.path());
    assert!(events > 0 && events < 40_000 && ended == Some(true), "{events} {ended:?}");
    let json = std::fs::read_to_string(folder.path().join("summary.json")).unwrap();
    assert!(json.contains("\"num_comm_events\": 40000"), "{json}");
}

#[test]
fn a_second_run_into_a_folder_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("COMMTRACE_DIR", folder.path().to_str().unwrap())];
    assert!(run("init", &variables).status.success());
    let first = std::fs::read(folder.path().join("summary.json")).unwrap();
    assert!(run("init", &variables).status.success());
    assert_eq!(std::fs::read(folder.path().join("summary.json")).unwrap(), first);
    let names = names(folder.path());
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("summary.") && name != "summary.json"));
}

#[test]
fn all_reports_that_are_asked_for_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("COMMTRACE_DIR", folder.path().to_str().unwrap()), ("COMMTRACE_REPORT", "chrome,json")];
    assert!(run("init", &variables).status.success());
    assert_eq!(names(folder.path()), ["summary.json", "trace.json"]);
    let trace = std::fs::read_to_string(folder.path().join("trace.json")).unwrap();
    assert_eq!(trace.matches("\"cat\":\"comm\"").count(), 100);
}

/// Starts ranks as processes with a launcher's variables and returns what rank 0 said.
fn job(ranks: &[&str], world_size: &str, extra: &[(&str, &str)], folder: &Path) -> String {
    let mut children = Vec::new();
    for rank in ranks {
        let mut command = command("init", &[("COMMTRACE_DIR", folder.to_str().unwrap())]);
        command.envs([("RANK", *rank), ("WORLD_SIZE", world_size), ("TORCHELASTIC_RUN_ID", "job")]);
        command.envs(extra.iter().copied()).stderr(Stdio::piped()).stdout(Stdio::null());
        children.push(command.spawn().unwrap());
    }
    let outputs: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    assert!(outputs.iter().all(|output| output.status.success()));
    stderr(&outputs[0])
}

#[test]
fn rank_0_merges_the_records_of_all_processes() {
    let folder = tempfile::tempdir().unwrap();
    // Rank 0 is not the last to end; it waits.
    job(&["0", "1", "2"], "3", &[("COMMTRACE_MERGE_TIMEOUT_S", "60")], folder.path());
    assert_eq!(names(folder.path()), ["report.txt", "summary.json"]);
    let json = std::fs::read_to_string(folder.path().join("summary.json")).unwrap();
    assert_eq!(json.matches("\"num_comm_events\": 100").count(), 3, "{json}");
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = job(&["0", "1"], "4", &[("COMMTRACE_MERGE_TIMEOUT_S", "1")], folder.path());
    assert!(text.contains("2, 3"), "{text}");
    let report = std::fs::read_to_string(folder.path().join("report.txt")).unwrap();
    assert!(report.contains("2-3") || report.contains("2, 3"), "{report}");
}
