//! One thing that was looked at, and how all of them are shown.

use serde::Serialize;
use std::fmt::Write;

/// How something was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// There, and usable.
    Ok,
    /// Not there; only what needs it cannot be done.
    Absent,
    /// Something is wrong.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub subject: String,
    /// How it is.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do; `null` if nothing is to be done.
    pub remedy: Option<String>,
}

impl Check {
    pub fn ok(subject: &str, found: impl Into<String>) -> Self {
        Self { subject: subject.to_owned(), status: Status::Ok, found: found.into(), remedy: None }
    }

    pub fn absent(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Absent, remedy: Some(remedy.into()), ..Self::ok(subject, found) }
    }

    pub fn problem(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Problem, remedy: Some(remedy.into()), ..Self::ok(subject, found) }
    }
}

/// The checks as lines: status, subject, what was found, and below it the remedy.
pub fn text(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.subject.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for check in checks {
        let status = match check.status {
            Status::Ok => "ok",
            Status::Absent => "none",
            Status::Problem => "PROBLEM",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{status:<8}{:<width$}  {}", clean(&check.subject), clean(&check.found));
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(out, "{:<8}{:<width$}  -> {}", "", "", clean(remedy));
        }
    }
    let problems = checks.iter().filter(|check| check.status == Status::Problem).count();
    let _ = match problems {
        0 => writeln!(out, "\nno problem found"),
        1 => writeln!(out, "\n1 problem found"),
        _ => writeln!(out, "\n{problems} problems found"),
    };
    out
}

/// Values of variables and names of devices come from elsewhere: one line, and nothing that steers the
/// terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if crate::failure::steers(c) || c == '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_line_and_each_remedy_another() {
        let checks =
            [Check::ok("clock", "tsc"), Check::problem("COMMTRACE_DIR", "a\u{1b}[2J\nb", "make it writable")];
        let expected = "ok      clock          tsc\n\
                        PROBLEM COMMTRACE_DIR  a [2J b\n                       -> make it writable\n\n\
                        1 problem found\n";
        assert_eq!(text(&checks), expected);
    }
}
