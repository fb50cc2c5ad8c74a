//! How a command fails, and how that is said.

use crate::args::Cli;
use clap::CommandFactory;
use clap::error::ErrorKind;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};

/// Why a command did not do what it was asked.
pub enum Failure {
    /// The arguments contradict each other or have no meaning: exit status 2.
    Usage(clap::Error),
    /// The run failed: exit status 1.
    Run(Box<dyn Error>),
}

impl Failure {
    /// Bad usage of `subcommand`.
    pub fn usage(subcommand: &str, kind: ErrorKind, reason: impl Display) -> Self {
        let mut cli = Cli::command();
        cli.build();
        Self::Usage(match cli.find_subcommand_mut(subcommand) {
            Some(command) => command.error(kind, reason),
            None => cli.error(kind, reason),
        })
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Run(Box::new(error))
    }
}

/// Says the error with everything that caused it.
pub fn print(error: &dyn Error) {
    let mut text = format!("error: {error}");
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Many errors name their source in their own message already.
        if !text.contains(&cause_text) {
            text += &format!("\n  caused by: {cause_text}");
        }
        next = cause.source();
    }
    message(&text);
}

/// A line on stderr. Whether anyone reads it must not decide how the command ends.
pub fn message(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
