//! What is recorded and reported: from the environment, or set by the program.

use crate::launcher::Launch;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// An environment variable that cannot be used.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?} cannot be used: expected {expected}")]
pub struct ConfigError {
    variable: String,
    value: String,
    expected: String,
}

/// As the message: a `main` that returns the error prints it with `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ConfigError {
    pub(crate) fn new(variable: &str, value: &str, expected: &str) -> Self {
        Self { variable: variable.to_owned(), value: value.to_owned(), expected: expected.to_owned() }
    }

    /// The variable's name.
    pub fn variable(&self) -> &str {
        &self.variable
    }

    /// The value that could not be parsed.
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// Where the results of a run go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is recorded.
    #[default]
    Off,
    /// No files; the text summary on stderr at shutdown, from aggregates in bounded memory.
    Summary,
    /// Record files and reports in this folder.
    Directory(PathBuf),
}

/// The reports written at shutdown of a run that records into a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reports {
    /// `report.txt`.
    pub text: bool,
    /// `summary.json`.
    pub json: bool,
    /// `report.html`; needs the cargo feature `html`.
    pub html: bool,
    /// `trace.json`, the Chrome trace format.
    pub chrome: bool,
}

impl Default for Reports {
    fn default() -> Self {
        Self { text: true, json: true, html: false, chrome: false }
    }
}

/// Settings of a recorder. [`Config::from_env`] reads the variables; the methods override them.
///
/// ```
/// use commtrace_instrument::{Config, Mode};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A program that reports unless the environment says otherwise:
/// let config = Config::from_env()?.default_mode(Mode::Summary);
/// # let _ = config;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) mode: Option<Mode>,
    pub(crate) reports: Reports,
    pub(crate) steps: Option<Range<i64>>,
    pub(crate) ranks: Option<Vec<u32>>,
    pub(crate) max_bytes: u64,
    pub(crate) flush: Duration,
    pub(crate) queue: usize,
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    pub(crate) events: usize,
    pub(crate) merge_timeout: Duration,
    pub(crate) launch: Launch,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: None,
            reports: Reports::default(),
            steps: None,
            ranks: None,
            max_bytes: 2048 << 20,
            flush: Duration::from_millis(1000),
            queue: 65_536,
            events: 16_384,
            merge_timeout: Duration::from_secs(10),
            launch: Launch::default(),
        }
    }
}

impl Config {
    /// The settings that the environment asks for.
    ///
    /// # Errors
    ///
    /// A variable whose value cannot be parsed, named with its value.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_vars(|name| match std::env::var_os(name) {
            // An empty variable is how shells and job scripts unset one.
            Some(value) if value.is_empty() => None,
            Some(value) => Some(value.to_string_lossy().into_owned()),
            None => None,
        })
    }

    pub(crate) fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut config = Self { launch: Launch::from_env(&var)?, ..Self::default() };
        let directory = var("COMMTRACE_DIR").map(|path| Mode::Directory(path.into()));
        config.mode = match var("COMMTRACE").as_deref().map(str::trim) {
            None => directory,
            Some("off" | "0") => Some(Mode::Off),
            Some("summary") => directory.or(Some(Mode::Summary)),
            Some(other) => {
                return Err(ConfigError::new(
                    "COMMTRACE",
                    other,
                    "`summary` or `off` (set COMMTRACE_DIR to record into a folder)",
                ));
            }
        };
        if let Some(text) = var("COMMTRACE_REPORT") {
            config.reports = parse_reports(&text)?;
        }
        if let Some(text) = var("COMMTRACE_STEPS") {
            config.steps = Some(parse_steps(&text)?);
        }
        if let Some(text) = var("COMMTRACE_RANKS") {
            config.ranks = Some(parse_ranks(&text)?);
        }
        if let Some(megabytes) = parse_number(&var, "COMMTRACE_MAX_MB", 1..u64::MAX >> 20)? {
            config.max_bytes = megabytes << 20;
        }
        if let Some(milliseconds) = parse_number(&var, "COMMTRACE_FLUSH_MS", 1..86_400_001)? {
            config.flush = Duration::from_millis(milliseconds);
        }
        if let Some(records) = parse_number(&var, "COMMTRACE_QUEUE", 1..(1 << 30) + 1)? {
            config.queue = records as usize;
        }
        if let Some(events) = parse_number(&var, "COMMTRACE_EVENTS", 2..(1 << 24) + 1)? {
            config.events = events as usize;
        }
        if let Some(seconds) = parse_number(&var, "COMMTRACE_MERGE_TIMEOUT_S", 0..1_000_001)? {
            config.merge_timeout = Duration::from_secs(seconds);
        }
        Ok(config)
    }

    /// Sets the mode, whatever the environment says.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets the mode for the case that neither `COMMTRACE` nor `COMMTRACE_DIR` is set.
    pub fn default_mode(mut self, mode: Mode) -> Self {
        self.mode.get_or_insert(mode);
        self
    }

    /// Sets which reports are written into the folder.
    pub fn reports(mut self, reports: Reports) -> Self {
        self.reports = reports;
        self
    }

    /// Records only steps in this half-open range.
    pub fn steps(mut self, steps: Range<i64>) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Records only these ranks.
    pub fn ranks(mut self, ranks: impl IntoIterator<Item = u32>) -> Self {
        self.ranks = Some(ranks.into_iter().collect());
        self
    }

    /// Sets the most bytes that one rank writes.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets how often the writer writes, from a millisecond to a day.
    pub fn flush_interval(mut self, interval: Duration) -> Self {
        self.flush = interval.clamp(Duration::from_millis(1), Duration::from_secs(86_400));
        self
    }

    /// Sets how many records may be buffered.
    pub fn queue(mut self, records: usize) -> Self {
        self.queue = records.clamp(1, 1 << 30);
        self
    }

    /// Sets how many timing events each CUDA context may have, two for every span whose work has not
    /// finished. A span that finds none is recorded without a time.
    pub fn events(mut self, events: usize) -> Self {
        self.events = events.clamp(2, 1 << 24);
        self
    }

    /// Sets how long rank 0 waits for the others' files.
    pub fn merge_timeout(mut self, timeout: Duration) -> Self {
        self.merge_timeout = timeout.min(Duration::from_secs(1_000_000));
        self
    }

    /// What of the run is recorded where that is not all of it, as it stands in the record.
    pub(crate) fn selection(&self) -> Vec<String> {
        let mut selection = Vec::new();
        if let Some(steps) = &self.steps {
            let side = |bound: i64, open: i64| if bound == open { String::new() } else { bound.to_string() };
            selection.push(format!("steps {}..{}", side(steps.start, i64::MIN), side(steps.end, i64::MAX)));
        }
        if let Some(ranks) = &self.ranks {
            let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
            selection.push(format!("ranks {}", ranks.join(",")));
        }
        selection
    }

    /// Whether anything is to be recorded in this process.
    pub(crate) fn is_on(&self) -> bool {
        let wanted = match (&self.ranks, self.launch.rank) {
            (Some(ranks), Some(rank)) => ranks.contains(&rank),
            _ => true,
        };
        wanted && !matches!(self.mode, None | Some(Mode::Off))
    }
}

fn parse_reports(text: &str) -> Result<Reports, ConfigError> {
    let mut reports = Reports { text: false, json: false, html: false, chrome: false };
    for part in text.split(',').map(str::trim) {
        match part {
            "text" => reports.text = true,
            "json" => reports.json = true,
            "html" if cfg!(feature = "html") => reports.html = true,
            "html" => {
                return Err(ConfigError::new(
                    "COMMTRACE_REPORT",
                    text,
                    "text, json or chrome: `html` needs the cargo feature `html` of commtrace",
                ));
            }
            "chrome" => reports.chrome = true,
            _ => {
                return Err(ConfigError::new(
                    "COMMTRACE_REPORT",
                    text,
                    "a comma-separated list of text, json, html, chrome",
                ));
            }
        }
    }
    Ok(reports)
}

/// `A..B`, `A..`, `..B`: half-open.
fn parse_steps(text: &str) -> Result<Range<i64>, ConfigError> {
    let error = || {
        ConfigError::new(
            "COMMTRACE_STEPS",
            text,
            "a half-open range such as 10..20 (steps 10 to 19), 10.. or ..20, not empty",
        )
    };
    let (from, to) = text.trim().split_once("..").ok_or_else(error)?;
    let bound = |part: &str, open: i64| {
        if part.trim().is_empty() { Ok(open) } else { part.trim().parse().map_err(|_| error()) }
    };
    let steps = bound(from, i64::MIN)?..bound(to, i64::MAX)?;
    if steps.is_empty() { Err(error()) } else { Ok(steps) }
}

fn parse_ranks(text: &str) -> Result<Vec<u32>, ConfigError> {
    text.split(',')
        .map(|part| part.trim().parse())
        .collect::<Result<_, _>>()
        .map_err(|_| ConfigError::new("COMMTRACE_RANKS", text, "a comma-separated list of ranks such as 0,8"))
}

fn parse_number(
    var: &impl Fn(&str) -> Option<String>,
    name: &str,
    range: Range<u64>,
) -> Result<Option<u64>, ConfigError> {
    let Some(text) = var(name) else { return Ok(None) };
    match text.trim().parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(ConfigError::new(
            name,
            &text,
            &format!("a whole number from {} to {}", range.start, range.end - 1),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_vars(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_set_means_off() {
        let config = config(&[]).unwrap();
        assert!(!config.is_on());
        assert_eq!(config.reports, Reports { text: true, json: true, html: false, chrome: false });
    }

    #[test]
    fn off_wins_over_a_folder_and_a_folder_over_summary() {
        assert!(!config(&[("COMMTRACE", "off"), ("COMMTRACE_DIR", "out")]).unwrap().is_on());
        let folder = Some(Mode::Directory("out".into()));
        assert_eq!(config(&[("COMMTRACE", "summary"), ("COMMTRACE_DIR", "out")]).unwrap().mode, folder);
        assert_eq!(config(&[("COMMTRACE", "summary")]).unwrap().mode, Some(Mode::Summary));
    }

    #[test]
    fn every_variable_is_read() {
        let config = config(&[
            ("COMMTRACE_DIR", "out"),
            ("COMMTRACE_REPORT", "json, chrome"),
            ("COMMTRACE_STEPS", "10.."),
            ("COMMTRACE_RANKS", "0, 8"),
            ("COMMTRACE_MAX_MB", "3"),
            ("COMMTRACE_FLUSH_MS", "250"),
            ("COMMTRACE_QUEUE", "128"),
            ("COMMTRACE_EVENTS", "64"),
            ("COMMTRACE_MERGE_TIMEOUT_S", "0"),
        ])
        .unwrap();
        assert_eq!(config.reports, Reports { text: false, json: true, html: false, chrome: true });
        assert_eq!(config.steps, Some(10..i64::MAX));
        assert_eq!(config.ranks, Some(vec![0, 8]));
        assert_eq!(config.max_bytes, 3 << 20);
        assert_eq!(config.flush, Duration::from_millis(250));
        assert_eq!(config.queue, 128);
        assert_eq!(config.events, 64);
        assert_eq!(config.merge_timeout, Duration::ZERO);
    }

    #[test]
    fn the_record_says_what_of_the_run_was_selected() {
        assert!(config(&[("COMMTRACE_DIR", "out")]).unwrap().selection().is_empty());
        let config = config(&[("COMMTRACE_STEPS", "10.."), ("COMMTRACE_RANKS", "0, 8")]).unwrap();
        assert_eq!(config.selection(), ["steps 10..", "ranks 0,8"]);
    }

    #[test]
    fn a_value_that_cannot_be_parsed_names_variable_and_value() {
        for (variable, value) in [
            ("COMMTRACE", "on"),
            ("COMMTRACE_REPORT", "text,pdf"),
            ("COMMTRACE_STEPS", "10"),
            ("COMMTRACE_STEPS", "20..10"),
            ("COMMTRACE_STEPS", "a..b"),
            ("COMMTRACE_RANKS", "0,-1"),
            ("COMMTRACE_MAX_MB", "0"),
            ("COMMTRACE_MAX_MB", "99999999999999999999"),
            ("COMMTRACE_FLUSH_MS", "1s"),
            ("COMMTRACE_QUEUE", "0"),
            ("COMMTRACE_EVENTS", "1"),
            ("COMMTRACE_MERGE_TIMEOUT_S", "-1"),
        ] {
            let error = config(&[(variable, value)]).unwrap_err();
            assert_eq!((error.variable(), error.value()), (variable, value));
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }

    #[test]
    fn a_rank_that_is_not_wanted_is_off() {
        let launched =
            [("RANK", "1"), ("WORLD_SIZE", "4"), ("COMMTRACE", "summary"), ("COMMTRACE_RANKS", "0,2")];
        assert!(!config(&launched).unwrap().is_on());
    }
}
