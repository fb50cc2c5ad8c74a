//! Loading libraries of others in a child process of our own, so that one that crashes or hangs takes
//! nothing down but the question that was asked of it.

mod driver;
mod library;
mod mpi;
mod nccl;

pub use driver::Driver;
pub use mpi::Mpi;
pub use nccl::Nccl;

use crate::failure::Failure;
use crate::output;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::env;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The name of the subcommand that the child is started with; not shown in the help.
pub const NAME: &str = "probe-library";

/// A driver that has to wake a machine full of devices takes seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
/// An answer is far smaller.
const MAX_ANSWER: u64 = 1 << 20;

/// What the child asks.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    #[arg(value_enum)]
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    Driver,
    Nccl,
    Mpi,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The child could not be started.
    #[error("cannot start a process to load it in: {0}")]
    Start(#[source] std::io::Error),
    /// The library took the child down.
    #[error("loading it ends the process ({0})")]
    Crashed(ExitStatus),
    /// The library does not return.
    #[error("loading it does not return within {} s", TIMEOUT.as_secs())]
    Hung,
    /// The child said something else.
    #[error("the process that loaded it gave no answer")]
    NoAnswer,
}

/// The child: loads the library and prints what it found.
pub fn answer(args: &ProbeArgs) -> Result<(), Failure> {
    match args.what {
        What::Driver => print(&driver::probe()),
        What::Nccl => print(&nccl::probe()),
        What::Mpi => print(&mpi::probe()),
    }
}

fn print(found: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(found)?;
    // On a line of its own: libraries print, too.
    output::write(None, false, |out| write!(out, "\n{text}\n"))?;
    Ok(())
}

/// The parent: what a child finds when it loads the library.
///
/// # Errors
///
/// The child could not be started, crashed, or did not return.
pub fn ask<T: DeserializeOwned>(what: What) -> Result<T, ProbeError> {
    let name = what.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let program = env::current_exe().map_err(ProbeError::Start)?;
    let mut child = Command::new(program)
        .args([NAME, &name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(ProbeError::Start)?;
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.map(|stdout| stdout.take(MAX_ANSWER).read_to_end(&mut text));
        text
    });
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(ProbeError::Hung);
            }
        }
    };
    let text = reader.join().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let found = text.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    match found {
        Some(found) => Ok(found),
        // What was printed before a crash at the end is an answer, too.
        None if status.success() => Err(ProbeError::NoAnswer),
        None => Err(ProbeError::Crashed(status)),
    }
}
