//! Tests that run their body in a process of its own, and processes that must end in time.

use crate::{Counts, Doubles, Piece};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The test that a child is to run the body of.
const CHILD: &str = "DOUBLE_SUPPORT_CHILD";

/// How long a child may take, on a machine that is busy with others.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A process that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended; `None` if it was killed because it took too long.
    pub status: Option<ExitStatus>,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

/// A child that has ended well.
#[derive(Debug)]
pub struct Run {
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
    /// What the stand-in driver ran, in the order in which the pieces ended on each stream.
    pub pieces: Vec<Piece>,
    /// How often each of the driver's functions was called.
    pub counts: Counts,
    /// How long it took.
    pub took: Duration,
}

/// The name of the test that this is written in, with its modules, as the test harness prints it.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        $crate::name_around(here)
    }};
}

/// The path of the function that a function is written in, without the crate.
#[doc(hidden)]
pub fn name_around<F>(_: F) -> &'static str {
    let path = std::any::type_name::<F>();
    let path = path.split_once("::").map_or(path, |(_, rest)| rest);
    path.rsplit_once("::").map_or(path, |(rest, _)| rest)
}

/// Runs `body` in a child process that loads the stand-ins and has these variables, and waits for it.
/// In the child, returns `None` after the body.
///
/// `test` is the name of the calling test: [`test_name!`](crate::test_name).
///
/// # Panics
///
/// If the stand-ins cannot be built, or the child fails or takes longer than two minutes; with what the
/// child said.
pub fn in_child(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) -> Option<Run> {
    in_child_within(TIME_LIMIT, test, variables, body)
}

/// As [`in_child`], for a body that has much to do.
///
/// # Panics
///
/// As `in_child`, after `limit`.
pub fn in_child_within(
    limit: Duration,
    test: &str,
    variables: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<Run> {
    if std::env::var(CHILD).is_ok_and(|name| name == test) {
        body();
        return None;
    }
    let doubles = Doubles::new().unwrap_or_else(|error| panic!("{error}"));
    let this = std::env::current_exe().unwrap_or_else(|error| panic!("the running test: {error}"));
    let (log, counts) = (doubles.folder().join("log.jsonl"), doubles.folder().join("counts.jsonl"));
    let mut command = doubles.command(this);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(CHILD, test).env("DOUBLE_CUDA_LOG", &log).env("DOUBLE_CUDA_COUNTS", &counts);
    command.envs(variables.iter().copied());
    let finished = finish(&mut command, limit).unwrap_or_else(|error| panic!("{test}: {error}"));
    let said = || format!("{}\n{}", finished.stdout, finished.stderr);
    match finished.status {
        None => panic!("the child of {test} did not end within {limit:?}:\n{}", said()),
        Some(status) if !status.success() => panic!("the child of {test} failed, {status}:\n{}", said()),
        // A name that matches no test runs nothing and is a success too.
        Some(_) if !finished.stdout.contains("1 passed") => panic!("no test is named {test}:\n{}", said()),
        Some(_) => {}
    }
    Some(Run {
        pieces: Piece::read(&log).unwrap_or_else(|error| panic!("{test}: {error}")),
        counts: Counts::read(&counts).unwrap_or_else(|error| panic!("{test}: {error}")),
        stdout: finished.stdout,
        stderr: finished.stderr,
        took: finished.took,
    })
}

/// Runs a command to its end, or kills it when it takes longer than `limit`.
///
/// # Errors
///
/// If it cannot be started or waited for.
pub fn finish(command: &mut Command, limit: Duration) -> std::io::Result<Finished> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = Output::of(child.stdout.take());
    let stderr = Output::of(child.stderr.take());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = start.elapsed();
    // What a killed child has started may hold the pipes for longer.
    let to_its_end = status.is_some();
    Ok(Finished { status, stdout: stdout.text(to_its_end), stderr: stderr.text(to_its_end), took })
}

/// What comes out of a pipe, read on a thread, so that the child never waits for us.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Output {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Output {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let read = bytes.clone();
        let reader = std::thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let mut buffer = [0; 4096];
            // What was read before an error is what there is to show.
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                read.lock().unwrap_or_else(PoisonError::into_inner).extend(&buffer[..count]);
            }
        });
        Output { bytes, reader }
    }

    fn text(self, to_its_end: bool) -> String {
        if to_its_end {
            // A reader that panicked leaves what it has read.
            let _ = self.reader.join();
        }
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
