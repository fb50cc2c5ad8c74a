//! Running a candidate's processes to their end, or until they have to be ended.

use crate::termination::told_to_end;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);

/// How long the others may go on after one has failed: they may have something to say about it.
const GRACE: Duration = Duration::from_secs(2);

/// How long a process that was asked to end may take.
const END: Duration = Duration::from_secs(3);

/// A process to start.
#[derive(Debug)]
pub struct Job {
    /// What to start. Streams and process group are set here.
    pub command: Command,
    /// Where its stdout and stderr go.
    pub log: PathBuf,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Whether it was told to end.
    pub killed: bool,
}

/// How it went.
#[derive(Debug)]
pub enum Outcome {
    /// All processes ended in time, in the order of the jobs.
    Ended(Vec<Ended>),
    /// Some had to be ended, since the time was up.
    TimedOut,
    /// One could not be started; those that were are ended.
    NotStarted(io::Error),
}

/// Runs `jobs` side by side. When one of them fails, or `others_failed` says that one elsewhere has, the rest get a
/// moment and are ended. `ended` is told of each process that ends, with the index of its job. When this process is told
/// to end, they are ended at once.
pub fn supervise(
    jobs: Vec<Job>,
    timeout: Duration,
    mut others_failed: impl FnMut() -> bool,
    mut ended: impl FnMut(usize, Ended),
) -> Outcome {
    let deadline = Instant::now().checked_add(timeout);
    let mut running = Vec::with_capacity(jobs.len());
    for job in jobs {
        match start(job) {
            Ok(child) => running.push(Running { child, ended: None }),
            Err(error) => {
                end(&mut running, &mut ended);
                return Outcome::NotStarted(error);
            }
        }
    }
    let mut give_up_at: Option<Instant> = None;
    loop {
        for (index, process) in running.iter_mut().enumerate() {
            process.poll(false, |how| ended(index, how));
        }
        let all: Option<Vec<Ended>> = running.iter().map(|process| process.ended).collect();
        if let Some(all) = all {
            return Outcome::Ended(all);
        }
        if told_to_end() {
            end_with(&mut running, &mut ended, &[true]);
            return outcome_of(&running);
        }
        let now = Instant::now();
        let failed = |process: &Running| process.ended.is_some_and(|how| !how.status.success());
        if give_up_at.is_none() && (running.iter().any(failed) || others_failed()) {
            give_up_at = Some(now + GRACE);
        }
        if give_up_at.is_some_and(|at| now >= at) {
            end(&mut running, &mut ended);
            return outcome_of(&running);
        }
        if deadline.is_some_and(|at| now >= at) {
            end(&mut running, &mut ended);
            return Outcome::TimedOut;
        }
        thread::sleep(POLL);
    }
}

/// After all were told to end.
fn outcome_of(running: &[Running]) -> Outcome {
    let all: Option<Vec<Ended>> = running.iter().map(|process| process.ended).collect();
    all.map_or(Outcome::TimedOut, Outcome::Ended)
}

struct Running {
    child: Child,
    ended: Option<Ended>,
}

impl Running {
    fn poll(&mut self, killed: bool, tell: impl FnOnce(Ended)) {
        if self.ended.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            let how = Ended { status, killed };
            self.ended = Some(how);
            tell(how);
        }
    }
}

fn start(job: Job) -> io::Result<Child> {
    let Job { mut command, log, .. } = job;
    let log = open_log(&log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    #[cfg(unix)]
    own_group(&mut command);
    command.spawn()
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// A process group of its own, so that it is ended with all that it starts; and an end when this process ends.
#[cfg(unix)]
fn own_group(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    #[cfg(target_os = "linux")]
    // SAFETY: prctl is a system call, which may be made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
}

/// Asks what still runs to end, and ends what does not.
fn end(running: &mut [Running], ended: &mut impl FnMut(usize, Ended)) {
    end_with(running, ended, &[false, true]);
}

/// Ends what still runs, by asking (`false`) or not.
fn end_with(running: &mut [Running], ended: &mut impl FnMut(usize, Ended), kills: &[bool]) {
    for &kill in kills {
        for process in running.iter_mut().filter(|process| process.ended.is_none()) {
            signal(&mut process.child, kill);
        }
        let until = Instant::now() + END;
        while running.iter().any(|process| process.ended.is_none()) && Instant::now() < until {
            for (index, process) in running.iter_mut().enumerate() {
                process.poll(true, |how| ended(index, how));
            }
            thread::sleep(POLL);
        }
    }
}

#[cfg(unix)]
fn signal(child: &mut Child, kill: bool) {
    let signal = if kill { libc::SIGKILL } else { libc::SIGTERM };
    if let Ok(group) = i32::try_from(child.id()) {
        // SAFETY: the group is that of a child that has not been waited for, so it is not another's.
        unsafe { libc::kill(-group, signal) };
    }
}

#[cfg(not(unix))]
fn signal(child: &mut Child, _kill: bool) {
    let _ = child.kill();
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn job(folder: &Path, rank: u32, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { command, log: folder.join(format!("{rank}.log")) }
    }

    const LONG: Duration = Duration::from_secs(300);

    #[test]
    fn all_end_and_their_output_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = vec![job(folder.path(), 0, "echo out; echo err >&2"), job(folder.path(), 1, "exit 0")];
        let mut seen = Vec::new();
        let outcome = supervise(jobs, LONG, || false, |index, how| seen.push((index, how.status.success())));
        let Outcome::Ended(all) = outcome else { panic!("{outcome:?}") };
        assert!(all.iter().all(|how| how.status.success() && !how.killed));
        seen.sort();
        assert_eq!(seen, [(0, true), (1, true)]);
        assert_eq!(std::fs::read_to_string(folder.path().join("0.log")).unwrap(), "out\nerr\n");
    }

    #[test]
    fn one_that_fails_ends_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = vec![job(folder.path(), 0, "sleep 600"), job(folder.path(), 1, "exit 3")];
        let Outcome::Ended(all) = supervise(jobs, LONG, || false, |_, _| {}) else { panic!() };
        assert_eq!((all[0].killed, all[1].killed, all[1].status.code()), (true, false, Some(3)));
        let jobs = vec![job(folder.path(), 0, "sleep 600")];
        let Outcome::Ended(all) = supervise(jobs, LONG, || true, |_, _| {}) else { panic!() };
        assert!(all[0].killed, "one elsewhere has failed");
    }

    /// The process does not heed SIGTERM, and has one of its own.
    #[test]
    fn what_hangs_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; sleep 600 & echo $!; wait; wait";
        let jobs = vec![job(folder.path(), 0, script)];
        assert!(matches!(
            supervise(jobs, Duration::from_millis(500), || false, |_, _| {}),
            Outcome::TimedOut
        ));
        let log = std::fs::read_to_string(folder.path().join("0.log")).unwrap();
        let pid = log.trim();
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let gone = state.is_empty() || state.contains(") Z");
        assert!(gone, "{state}");
    }

    #[test]
    fn a_program_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let command = Command::new(folder.path().join("none"));
        let jobs = vec![job(folder.path(), 0, "sleep 600"), Job { command, log: folder.path().join("log") }];
        assert!(matches!(supervise(jobs, LONG, || false, |_, _| {}), Outcome::NotStarted(_)));
    }
}
