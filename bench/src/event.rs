//! What a rank says of itself while it runs: lines of JSON in a file of its own, so that what it said is known however
//! it ends.

use crate::collective::Collective;
use crate::record::{FailureKind, Host, Schedule};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What is measured into one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The collective.
    pub collective: Collective,
    /// The overlap experiment's schedule.
    pub schedule: Option<Schedule>,
    /// Elements that each rank puts in.
    pub payload_elements: u64,
}

/// One rank's part in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was measured.
    pub subject: Subject,
    /// This rank's time of each timed repeat, in milliseconds.
    pub times_ms: Vec<f64>,
    /// Elements of the checked results that were wrong on this rank.
    pub wrong_elements: u64,
    /// The first of them, in words.
    pub first_wrong: Option<String>,
}

/// Why a rank gave up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GaveUp {
    /// What kind of failure.
    pub kind: FailureKind,
    /// What went wrong, and what to do.
    pub message: String,
    /// The rank that it was waiting for, if that is why.
    pub because_of: Option<u32>,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankEvent {
    /// The rank has joined the others.
    Started {
        /// Where it runs.
        host: Host,
        /// The library that carries the collectives, with its version.
        library: Option<String>,
        /// Version of the CUDA driver.
        cuda_driver: Option<String>,
    },
    /// It begins with this.
    Running(Subject),
    /// It has the times of this.
    Measured(Measured),
    /// It cannot go on.
    GaveUp(GaveUp),
    /// It has run everything.
    Done,
    /// Its process, which was started for this rank alone, has ended; said by the process that started it.
    Ended {
        /// Whether its exit status was 0.
        success: bool,
        /// Whether it was told to end, because another rank had failed or the time was up.
        killed: bool,
        /// How it ended, in words.
        status: String,
        /// When, in milliseconds since 1970.
        unix_ms: u64,
    },
    /// Its process had to be ended, since the time was up; said by the process that started it.
    TimedOut,
}

/// The folder in which all ranks of a candidate leave their events.
#[derive(Debug, Clone)]
pub struct EventFolder {
    path: PathBuf,
}

impl EventFolder {
    /// Of this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, rank: u32) -> PathBuf {
        self.path.join(format!("rank-{rank:05}.jsonl"))
    }

    /// Opens a rank's file to add to it.
    ///
    /// # Errors
    ///
    /// The folder or the file cannot be made.
    pub fn append(&self, rank: u32) -> io::Result<EventFile> {
        fs::create_dir_all(&self.path)?;
        let file = OpenOptions::new().append(true).create(true).open(self.file(rank))?;
        Ok(EventFile { file })
    }

    /// What a rank has said so far: everything up to a line that is not whole. Nothing if it has no file.
    pub fn read(&self, rank: u32) -> Vec<RankEvent> {
        let text = fs::read(self.file(rank)).unwrap_or_default();
        parse(&text)
    }

    /// Forgets what a rank of an earlier job has said.
    pub(crate) fn clear(&self, rank: u32) {
        let _ = fs::remove_file(self.file(rank));
    }

    /// A rank's file as it is.
    pub(crate) fn raw(&self, rank: u32) -> Vec<u8> {
        fs::read(self.file(rank)).unwrap_or_default()
    }

    /// Stores what a rank of another host has said, unless its file is here.
    pub(crate) fn store_missing(&self, rank: u32, text: &[u8]) -> io::Result<()> {
        match File::create_new(self.file(rank)) {
            Ok(mut file) => file.write_all(text),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn parse(text: &[u8]) -> Vec<RankEvent> {
    text.split(|byte| *byte == b'\n').map_while(|line| serde_json::from_slice(line).ok()).collect()
}

/// A rank's file.
#[derive(Debug)]
pub struct EventFile {
    file: File,
}

impl EventFile {
    /// Adds an event. One write, so that a line is whole however the process ends.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn say(&mut self, event: &RankEvent) -> io::Result<()> {
        let mut line = serde_json::to_vec(event).map_err(io::Error::other)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_ends_what_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let events = EventFolder::new(folder.path().join("ranks"));
        assert_eq!(events.read(1), []);
        let running = RankEvent::Running(Subject {
            collective: Collective::Broadcast,
            schedule: None,
            payload_elements: 8,
        });
        let mut file = events.append(1).unwrap();
        file.say(&running).unwrap();
        file.say(&RankEvent::Done).unwrap();
        assert_eq!(events.read(1), [running.clone(), RankEvent::Done]);
        let text = events.raw(1);
        assert_eq!(parse(&text[..text.len() - 3]), [running]);
        events.store_missing(1, b"other").unwrap();
        assert_eq!(events.raw(1), text, "a file that is here stays");
        events.store_missing(0, &text).unwrap();
        assert_eq!(events.read(0).len(), 2);
    }
}
