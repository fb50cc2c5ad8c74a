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
    /// The result that was printed says what is wrong: exit status 1.
    Told,
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
    let _ = writeln!(io::stderr().lock(), "{}", clean(text));
}

/// Without what steers a terminal: paths and names come from elsewhere, and may hold anything.
fn clean(text: &str) -> String {
    text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Whether a character steers what shows a text. A line's end does not.
pub fn steers(c: char) -> bool {
    c != '\n' && c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_cannot_steer_the_terminal() {
        let text = "error: /a\u{1b}]0;x\u{7}/\u{9b}2J\u{202e}b\r\n  caused by: ü";
        assert_eq!(clean(text), "error: /a\u{fffd}]0;x\u{fffd}/\u{fffd}2J\u{fffd}b\u{fffd}\n  caused by: ü");
    }
}
