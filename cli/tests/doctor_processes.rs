//! `commtrace doctor` beside a job of real processes: one of its ranks stops calling, or is killed.
#![cfg(unix)]

mod common;

use common::{command, shown};
use commtrace_instrument::{comm_span, compute_span, init, step_span};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::tempdir;

const SIZE: usize = 4;
/// The rank with the fault, and the step from which on it has it.
const FAULTY: usize = 2;
const STEP: u64 = 5;
const STEPS: u64 = 8;

const FAULT: &str = "COMMTRACE_TEST_FAULT";
const PORT: &str = "COMMTRACE_TEST_PORT";

/// Not a test by itself: what a rank runs. A collective is a byte to the coordinator and one back, once all
/// ranks have sent theirs.
#[test]
fn rank() {
    let Ok(fault) = std::env::var(FAULT) else { return };
    let number: usize = std::env::var("RANK").unwrap().parse().unwrap();
    let _guard = init().unwrap();
    let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
    let mut coordinator = TcpStream::connect(("127.0.0.1", port)).unwrap();
    for step in 0..STEPS {
        let _step = step_span!(step as i64).entered();
        compute_span!("forward").in_scope(|| thread::sleep(Duration::from_millis(1)));
        if number == FAULTY && step == STEP && fault != "none" {
            // Killed from outside, or as good as in an endless loop.
            thread::sleep(Duration::from_secs(600));
        }
        let _all_reduce = comm_span!(
            "all_reduce",
            bytes = 4096_u64,
            dtype = "float32",
            comm = "world",
            comm_size = SIZE,
            comm_rank = number,
            seq = step
        )
        .entered();
        coordinator.write_all(&[1]).unwrap();
        coordinator.read_exact(&mut [0]).unwrap();
    }
}

/// A job whose processes are killed with it.
struct Job {
    ranks: Vec<Child>,
}

impl Job {
    fn start(folder: &Path, fault: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || coordinate(&listener));
        let ranks = (0..SIZE)
            .map(|rank| {
                Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "rank", "--test-threads=1"])
                    .env(FAULT, fault)
                    .env(PORT, port.to_string())
                    .env("RANK", rank.to_string())
                    .env("WORLD_SIZE", SIZE.to_string())
                    .env("TORCHELASTIC_RUN_ID", "doctor")
                    .env("COMMTRACE_DIR", folder)
                    .env("COMMTRACE_FLUSH_MS", "50")
                    .env("COMMTRACE_MERGE_TIMEOUT_S", "60")
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("the rank starts")
            })
            .collect();
        Self { ranks }
    }

    fn kill(&mut self, rank: usize) {
        // SIGKILL.
        self.ranks[rank].kill().unwrap();
        self.ranks[rank].wait().unwrap();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Answers each round once all ranks have called. A rank that has gone is waited for in vain.
fn coordinate(listener: &TcpListener) {
    let mut ranks: Vec<TcpStream> = (0..SIZE).map(|_| listener.accept().unwrap().0).collect();
    loop {
        for rank in &mut ranks {
            if rank.read_exact(&mut [0]).is_err() {
                // The others' connections stay open.
                thread::sleep(Duration::from_secs(600));
            }
        }
        for rank in &mut ranks {
            if rank.write_all(&[1]).is_err() {
                return;
            }
        }
    }
}

fn doctor(folder: &Path, arguments: &[&str]) -> Output {
    command().arg("doctor").arg(folder).args(["--stuck-after", "0.5"]).args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", shown(output)))
}

/// What `doctor` says once it says that the run is stuck and `ready` holds.
fn once(folder: &Path, ready: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let output = doctor(folder, &["--format", "json"]);
        let found = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
        if ready(&found) {
            assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{}", shown(&output));
        thread::sleep(Duration::from_millis(100));
    }
}

/// All ranks but the faulty one are known to wait.
fn all_wait(found: &Value) -> bool {
    found["desync"][0]["waiting"] == serde_json::json!([0, 1, 3])
}

#[test]
fn a_rank_that_stops_calling_is_named_while_the_job_hangs_and_after_it_was_killed() {
    let folder = tempdir().unwrap();
    let mut job = Job::start(folder.path(), "stops");
    let live = once(folder.path(), |found| {
        let enough = found["desync"][0]["weakened"] == serde_json::json!([]);
        found["verdict"] == "stuck" && all_wait(found) && enough
    });
    let check = |found: &Value| {
        let cause = &found["desync"][0];
        assert_eq!((&cause["kind"], &cause["ranks"]), (&"missing".into(), &serde_json::json!([FAULTY])));
        assert_eq!((&cause["comm"], &cause["seq"]), (&"world".into(), &STEP.into()), "{found}");
        assert_eq!((&cause["op"], &cause["bytes"]), (&"all_reduce".into(), &4096.into()));
        assert!(cause["waited_ms"].as_f64().unwrap() >= 500.0, "{found}");
        assert!(cause["since_unix_ms"].as_f64().unwrap() > 1.7e12, "{found}");
        let last = &found["ranks"][FAULTY]["last"];
        assert_eq!((&last["op"], &last["seq"]), (&"all_reduce".into(), &(STEP - 1).into()), "{found}");
    };
    check(&live);
    let states = |found: &Value| -> Vec<Value> {
        found["ranks"].as_array().unwrap().iter().map(|rank| rank["state"].clone()).collect()
    };
    assert_eq!(states(&live), ["running"; SIZE]);
    let pid = job.ranks[FAULTY].id();
    assert_eq!(live["ranks"][FAULTY]["pid"], pid);
    assert!(live["next"][0].as_str().unwrap().contains(&format!("gdb -p {pid}")), "{live}");

    let text = common::stdout(&doctor(folder.path(), &[]));
    assert!(
        text.starts_with("commtrace doctor: stuck: rank 2 did not enter all_reduce number 5 of world"),
        "{text}"
    );
    for part in ["In it", "ranks 0, 1, 3, since 2", "Missing        rank 2", "What to do next"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    (0..SIZE).for_each(|rank| job.kill(rank));
    let dead = json(&doctor(folder.path(), &["--format", "json"]));
    check(&dead);
    assert_eq!(states(&dead), ["stopped"; SIZE]);

    // The report has it, too.
    let output = command().args(["report", "--format", "json"]).arg(folder.path()).output().unwrap();
    let report = json(&output);
    let listed = report["cross_rank"]["desync"].as_array().unwrap();
    let waited = dead["desync"][0]["waited_ms"].as_f64().unwrap();
    assert!(waited < 5_000.0 || listed[0]["ranks"] == serde_json::json!([FAULTY]), "{report}");
}

#[test]
fn a_rank_that_was_killed_is_named_by_those_who_wait_for_it() {
    let folder = tempdir().unwrap();
    let mut job = Job::start(folder.path(), "stops");
    // Until it is where it is to be killed, and its last call is on disk.
    once(folder.path(), |found| all_wait(found) && found["ranks"][FAULTY]["last"]["seq"] == STEP - 1);
    job.kill(FAULTY);
    let found = json(&doctor(folder.path(), &["--format", "json"]));
    let kinds: Vec<(&Value, &Value)> =
        found["desync"].as_array().unwrap().iter().map(|one| (&one["kind"], &one["ranks"])).collect();
    let faulty = serde_json::json!([FAULTY]);
    assert_eq!(kinds, [(&"missing".into(), &faulty), (&"stopped".into(), &faulty)], "{found}");
    assert_eq!(found["ranks"][FAULTY]["state"], "stopped");
    assert_eq!(found["ranks"][0]["state"], "running");
}

#[test]
fn a_run_that_ended_regularly_is_healthy() {
    let folder = tempdir().unwrap();
    let mut job = Job::start(folder.path(), "none");
    for rank in &mut job.ranks {
        assert!(rank.wait().unwrap().success());
    }
    let output = doctor(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let text = common::stdout(&output);
    assert!(text.starts_with("commtrace doctor: nothing is stuck: the run ended regularly"), "{text}");
    assert!(text.contains("4 of 4 ranks read: 4 ended regularly"), "{text}");
}
