//! The parent: runs candidates in processes of their own, and writes what comes of them.

use crate::assemble::{End, assemble, unfinished};
use crate::event::{EventFolder, RankEvent};
use crate::evidence::Evidence;
use crate::files::{FileError, RecordFiles};
use crate::launched::Launched;
use crate::missing::in_this_build;
use crate::plan::{Backend, Fault, Plan};
use crate::record::{Artifacts, FailureKind, Record};
use crate::supervise::{Ended, Job, Outcome, supervise};
use crate::termination::{listen, told_to_end};
use crate::utc;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long rank 0 waits, once its own process has ended, for what the launcher's other ranks have to say.
const OTHERS: Duration = Duration::from_secs(5);
/// The same when the launcher is ending the job.
const OTHERS_AT_THE_END: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(50);

/// There as soon as a rank's process has failed, for the processes that watch the other ranks.
const FAILED: &str = "failed";

/// How this program is started as ranks: `PROGRAM SUBCOMMAND --plan JSON --events FOLDER [--rank N] [--fault FAULT]
/// [--watch]`, which must lead to [`Orders::run`](crate::Orders::run) or, with `--watch`, [`Session::watch`].
#[derive(Debug, Clone)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its subcommand.
    pub subcommand: &'static str,
}

/// Where and how candidates are run.
#[derive(Debug, Clone)]
pub struct Session {
    /// Where records go.
    pub folder: PathBuf,
    /// What the ranks' processes are.
    pub program: Program,
    /// The launcher that has started this process as a rank.
    pub launched: Option<Launched>,
    /// What is to go wrong.
    pub fault: Option<Fault>,
}

impl Session {
    /// Whether the names of the candidates' records are free. Looks, and changes nothing.
    ///
    /// # Errors
    ///
    /// [`FileError::Exists`]. Nothing is overwritten.
    pub fn check_free(&self, plans: &[Plan]) -> Result<(), FileError> {
        plans.iter().try_for_each(|plan| self.files(plan).check_free())
    }

    /// The names of a candidate's files.
    pub fn files(&self, plan: &Plan) -> RecordFiles {
        RecordFiles::new(&self.folder, plan.stem())
    }

    /// Runs a candidate and writes its record, which says why if there are no times. `None` if this process is a
    /// launcher's rank other than 0: rank 0 writes the record.
    ///
    /// # Errors
    ///
    /// A record or log of that name is there already, or cannot be written.
    pub fn run(&self, plan: &Plan) -> Result<Option<Record>, FileError> {
        let events = self.events(plan);
        if let Some(launched) = &self.launched
            && launched.rank > 0
        {
            if self.refusal(plan).is_none() {
                self.watch(plan, &events, launched.rank);
                // Rank 0, which has what this rank said, cannot tidy up a folder that it does not see.
                if events.read(launched.rank).contains(&RankEvent::Done) && events.read(0).is_empty() {
                    let _ = fs::remove_dir_all(events.path());
                }
            }
            return Ok(None);
        }
        let started_at = utc::now();
        let claimed = self.files(plan).claim(&unfinished(plan, &started_at))?;
        let end = match self.refusal(plan) {
            Some((kind, message)) => End::Nothing(kind, message),
            None => self.ranks(plan, &events),
        };
        let said: Vec<Vec<RankEvent>> = (0..plan.world_size).map(|rank| events.read(rank)).collect();
        let end = match end {
            End::Process(how) if said.iter().all(Vec::is_empty) && plan.backend != Backend::Local => {
                let log = self.files(plan).artifact_name("log");
                let message =
                    format!("the ranks were not started: {how}; what the launcher printed is in {log}");
                End::Nothing(FailureKind::NotStarted, message)
            }
            end => end,
        };
        let mut artifacts = Artifacts::default();
        if events.path().is_dir() {
            let log = self.files(plan).artifact("log");
            gather_logs(&events, plan.world_size, &log)
                .map_err(|source| FileError::Write { path: log, source })?;
            artifacts.log = Some(self.files(plan).artifact_name("log"));
            artifacts.nccl_log = self
                .gather_nccl_logs(plan, &events)
                .map_err(|source| FileError::Write { path: self.files(plan).artifact(NCCL_LOG), source })?;
            let _ = fs::remove_dir_all(events.path());
        }
        let evidence = match &artifacts.nccl_log {
            Some(_) => Evidence::of_file(&self.files(plan).artifact(NCCL_LOG)),
            None => Evidence::default(),
        };
        let record = assemble(plan, &started_at, &said, &end, &evidence, artifacts);
        claimed.finish(&record)?;
        Ok(Some(record))
    }

    /// What would run, in words: the candidates, how their ranks are started, and what they would leave.
    pub fn describe(&self, plans: &[Plan]) -> String {
        let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(" ");
        let mut text = String::new();
        for plan in plans {
            let ranks = match &self.launched {
                Some(launched) => {
                    format!("the {} processes that {} has started", plan.world_size, launched.launcher)
                }
                None if plan.backend == Backend::Local => {
                    format!("{} threads of one process", plan.world_size)
                }
                None => format!("{} processes", plan.world_size),
            };
            let mut subjects = list(&mut plan.collectives.iter().map(ToString::to_string));
            if let Some(dim) = plan.compute_dim {
                subjects += &format!(" and the product of {dim} x {dim} matrices, serial and overlapped");
            }
            let payloads = list(&mut plan.payload_elements.iter().map(ToString::to_string));
            let problem = self.refusal(plan).map_or_else(String::new, |(_, why)| format!("  fails: {why}\n"));
            text += &format!(
                "{} {} {}\n  ranks: {ranks}\n  collectives: {subjects}\n  payloads: {payloads} elements of {} per rank\n  \
                 repeats: {} after {} for warm-up, at most {} s\n{problem}  record: {}\n",
                plan.experiment,
                plan.backend,
                plan.algorithm,
                plan.dtype,
                plan.repeats,
                plan.warmup,
                plan.timeout_s,
                self.files(plan).record().display(),
            );
        }
        text
    }

    /// Why a candidate is not even tried.
    fn refusal(&self, plan: &Plan) -> Option<(FailureKind, String)> {
        let algorithms = plan.backend.algorithms();
        // NCCL has more algorithms than are tried unasked, and refuses itself what it does not know.
        if plan.backend != Backend::Nccl && !algorithms.contains(&plan.algorithm.as_str()) {
            let message = format!(
                "backend {} has no algorithm {:?}: it has {}",
                plan.backend,
                plan.algorithm,
                algorithms.join(", ")
            );
            return Some((FailureKind::UnknownAlgorithm, message));
        }
        let missing = in_this_build(plan.backend).or_else(|| match plan.backend {
            #[cfg(feature = "nccl")]
            Backend::Nccl => crate::nccl::problem(self.launched.is_none().then_some(plan.world_size)),
            _ => None,
        });
        missing.map(|message| (FailureKind::Missing, message))
    }

    /// The folder for what the ranks have to say; the same for all processes of a launcher's job.
    fn events(&self, plan: &Plan) -> EventFolder {
        let mut path = self.files(plan).events().into_os_string();
        if let Some(job) = self.launched.as_ref().and_then(|launched| launched.job.as_ref()) {
            path.push("-");
            path.push(job.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        }
        EventFolder::new(path)
    }

    /// Runs the ranks to their end.
    fn ranks(&self, plan: &Plan, events: &EventFolder) -> End {
        if let Some(launched) = &self.launched {
            let end = self.watch_to_end(plan, events, launched.rank);
            self.wait_for_others(plan, events);
            return end;
        }
        let _ = fs::remove_dir_all(events.path());
        if let Err(error) = fs::create_dir_all(events.path()) {
            return End::Nothing(FailureKind::NotStarted, format!("{}: {error}", events.path().display()));
        }
        let jobs = match plan.backend {
            Backend::Local => vec![self.all_ranks(plan, events)],
            Backend::Mpi => vec![self.mpirun(plan, events)],
            Backend::Nccl => return self.each_rank(plan, events),
        };
        // Processes that watch a rank each have the same timeout, and something to say when it is over.
        let timeout = plan.timeout() + if plan.backend == Backend::Mpi { 2 * OTHERS } else { Duration::ZERO };
        let outcome = supervise(jobs, timeout, || false, |_, _| {});
        end_of(outcome, &events.path().join(RANKS_LOG))
    }

    /// The arguments that make the program a rank.
    fn command(&self, plan: &Plan, events: &EventFolder, rank: Option<u32>) -> Command {
        let mut command = Command::new(&self.program.path);
        command.args(self.arguments(plan, events));
        if let Some(rank) = rank {
            command.args(["--rank", &rank.to_string()]);
        }
        command
    }

    fn arguments(&self, plan: &Plan, events: &EventFolder) -> Vec<OsString> {
        // Writing to memory fails only for map keys that are no strings; a plan has no maps.
        let plan = serde_json::to_string(plan).unwrap_or_default();
        let mut arguments: Vec<OsString> = vec![self.program.subcommand.into(), "--plan".into(), plan.into()];
        arguments.extend(["--events".into(), events.path().into()]);
        if let Some(fault) = self.fault {
            arguments.extend(["--fault".into(), fault.to_string().into()]);
        }
        arguments
    }

    /// One process whose threads are the ranks.
    fn all_ranks(&self, plan: &Plan, events: &EventFolder) -> Job {
        let log = events.path().join(RANKS_LOG);
        Job { command: self.command(plan, events, None), log }
    }

    /// A process per rank, all of them watched by this one.
    fn each_rank(&self, plan: &Plan, events: &EventFolder) -> End {
        let job = |rank| {
            let mut command = self.command(plan, events, Some(rank));
            prepare(&mut command, plan, events, rank, false);
            Job { command, log: events.path().join(rank_log(rank)) }
        };
        let jobs = (0..plan.world_size).map(job).collect();
        let outcome = supervise(
            jobs,
            plan.timeout(),
            || false,
            |index, how| {
                let file = events.append(u32::try_from(index).unwrap_or(u32::MAX));
                // Without it, the rank's own events tell less.
                let _ = file.and_then(|mut file| file.say(&ended(how)));
            },
        );
        match outcome {
            // The ranks' own events say more.
            Outcome::Ended(_) => End::Regular,
            outcome => end_of(outcome, &events.path().join(rank_log(0))),
        }
    }

    /// Puts what NCCL has logged on all ranks into one file, in their order; its name. `None` if it has logged nothing.
    fn gather_nccl_logs(&self, plan: &Plan, events: &EventFolder) -> io::Result<Option<String>> {
        let parts = (0..plan.world_size).filter_map(|rank| File::open(nccl_rank_log(events, rank)).ok());
        let mut log = None;
        for mut part in parts {
            if log.is_none() {
                let path = self.files(plan).artifact(NCCL_LOG);
                log = Some(OpenOptions::new().write(true).create_new(true).open(path)?);
            }
            if let Some(log) = &mut log {
                io::copy(&mut part, log)?;
            }
        }
        Ok(log.map(|_| self.files(plan).artifact_name(NCCL_LOG)))
    }

    /// MPI's launcher, which starts a process per rank that watches it.
    fn mpirun(&self, plan: &Plan, events: &EventFolder) -> Job {
        let mut command = Command::new("mpirun");
        command.args(["-n", &plan.world_size.to_string()]).arg(&self.program.path);
        command.args(self.arguments(plan, events)).arg("--watch");
        // More ranks than processors are for the user to decide, not for Open MPI to refuse.
        if std::env::var_os("OMPI_MCA_rmaps_base_oversubscribe").is_none() {
            command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        }
        Job { command, log: events.path().join(RANKS_LOG) }
    }

    /// Runs the process of one rank to its end, and leaves among the events how that came. Ends it when another rank
    /// has failed.
    pub fn watch(&self, plan: &Plan, events: &EventFolder, rank: u32) {
        self.watch_to_end(plan, events, rank);
    }

    fn watch_to_end(&self, plan: &Plan, events: &EventFolder, rank: u32) -> End {
        match self.watch_one(plan, events, rank) {
            Ok(end) => end,
            Err(error) => {
                End::Nothing(FailureKind::NotStarted, format!("{}: {error}", events.path().display()))
            }
        }
    }

    fn watch_one(&self, plan: &Plan, events: &EventFolder, rank: u32) -> io::Result<End> {
        listen();
        let log = events.path().join(rank_log(rank));
        // What an earlier job without an identifier has left.
        let _ = fs::remove_file(&log);
        events.clear(rank);
        let failed = events.path().join(FAILED);
        let mut file = events.append(rank)?;
        let mut command = self.command(plan, events, Some(rank));
        prepare(&mut command, plan, events, rank, true);
        let outcome = supervise(
            vec![Job { command, log: log.clone() }],
            plan.timeout(),
            || failed.exists(),
            |_, how| {
                if !how.status.success() && !how.killed {
                    let _ = File::create(&failed);
                }
                let _ = file.say(&ended(how));
            },
        );
        Ok(match outcome {
            // The rank's own event says more.
            Outcome::Ended(_) => End::Regular,
            Outcome::TimedOut => {
                file.say(&RankEvent::TimedOut)?;
                End::TimedOut
            }
            outcome => end_of(outcome, &log),
        })
    }

    /// Rank 0 of a launcher's job, before it reads the events.
    fn wait_for_others(&self, plan: &Plan, events: &EventFolder) {
        let began = Instant::now();
        let over = |rank: u32| {
            let said = events.read(rank);
            said.iter()
                .any(|event| matches!(event, RankEvent::Ended { .. } | RankEvent::Done | RankEvent::TimedOut))
        };
        let limit = || if told_to_end() { OTHERS_AT_THE_END } else { OTHERS };
        while !(0..plan.world_size).all(over) && began.elapsed() < limit() {
            thread::sleep(POLL);
        }
        let _ = fs::remove_file(events.path().join(FAILED));
    }
}

/// The ending of the file that holds what NCCL has logged on all ranks.
pub(crate) const NCCL_LOG: &str = "nccl.log";

/// What NCCL logs on a rank.
pub(crate) fn nccl_rank_log(events: &EventFolder, rank: u32) -> PathBuf {
    events.path().join(format!("nccl-rank-{rank:05}.log"))
}

/// Sets what the process of a rank needs beside its arguments. `launched` says whether a launcher's variables tell it
/// its place.
fn prepare(command: &mut Command, plan: &Plan, events: &EventFolder, rank: u32, launched: bool) {
    #[cfg(feature = "nccl")]
    if plan.backend == Backend::Nccl {
        crate::nccl::prepare(command, plan, events, rank, launched);
    }
    let _ = (command, plan, events, rank, launched);
}

const RANKS_LOG: &str = "ranks.log";

fn rank_log(rank: u32) -> String {
    format!("rank-{rank:05}.log")
}

fn ended(how: Ended) -> RankEvent {
    RankEvent::Ended {
        success: how.status.success(),
        killed: how.killed,
        status: how.status.to_string(),
        unix_ms: utc::unix_ms(),
    }
}

fn end_of(outcome: Outcome, log: &Path) -> End {
    match outcome {
        Outcome::Ended(all) => match all.iter().find(|how| !how.status.success()) {
            Some(how) => End::Process(match last_line(log) {
                Some(line) => format!("{} ({line})", how.status),
                None => how.status.to_string(),
            }),
            None => End::Regular,
        },
        Outcome::TimedOut => End::TimedOut,
        Outcome::NotStarted(error) if error.kind() == io::ErrorKind::NotFound => End::Nothing(
            FailureKind::Missing,
            "there is no mpirun: install an MPI library with its launcher (Debian: openmpi-bin), or run the \
             command under srun or another launcher"
                .to_owned(),
        ),
        Outcome::NotStarted(error) => {
            End::Nothing(FailureKind::NotStarted, format!("the ranks could not be started: {error}"))
        }
    }
}

/// The last line of a log that has letters in it: launchers draw frames around what they say.
fn last_line(log: &Path) -> Option<String> {
    let text = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| line.chars().any(char::is_alphabetic))?;
    Some(line.trim().chars().take(300).collect())
}

/// Puts what the processes printed into one file, which must not exist.
fn gather_logs(events: &EventFolder, ranks: u32, path: &Path) -> io::Result<()> {
    let mut log = OpenOptions::new().write(true).create_new(true).open(path)?;
    let parts = std::iter::once(RANKS_LOG.to_owned()).chain((0..ranks).map(rank_log));
    for name in parts {
        let Ok(mut part) = File::open(events.path().join(&name)) else { continue };
        if name != RANKS_LOG {
            io::Write::write_all(&mut log, format!("--- {}\n", name.trim_end_matches(".log")).as_bytes())?;
        }
        io::copy(&mut part, &mut log)?;
    }
    Ok(())
}
