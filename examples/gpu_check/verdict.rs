//! The verdicts, one a line.

use std::fmt::Display;
use std::process::ExitCode;

#[derive(Default)]
pub struct Verdicts {
    passed: usize,
    failed: usize,
}

impl Verdicts {
    pub fn pass(&mut self, what: &str, figure: impl Display) {
        self.passed += 1;
        println!("PASS {what}: {figure}");
    }

    pub fn fail(&mut self, what: &str, problem: impl Display) {
        self.failed += 1;
        println!("FAIL {what}: {problem}");
    }

    pub fn skip(&mut self, what: &str, reason: impl Display) {
        println!("SKIP {what}: {reason}");
    }

    /// PASS with the figure, or FAIL with the problem.
    pub fn of(&mut self, what: &str, result: Result<impl Display, impl Display>) {
        match result {
            Ok(figure) => self.pass(what, figure),
            Err(problem) => self.fail(what, problem),
        }
    }

    pub fn status(&self) -> ExitCode {
        match (self.passed, self.failed) {
            (0, 0) => ExitCode::from(2),
            (_, 0) => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}
