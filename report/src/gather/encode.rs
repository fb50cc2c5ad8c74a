//! The binary form of a summary: a JSON text, and the samples behind it as they are.
//!
//! ```text
//! magic, version: u32 | length of the JSON: u64 | JSON | samples, one after another, lengths in the JSON
//! ```
//!
//! Integers are little-endian.

use super::{ProcessId, ProcessSummary, RunSummary, Sample};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

const MAGIC: [u8; 4] = *b"CTRS";

/// Version of the form. If you change it, raise this.
const VERSION: u32 = 1;

const HEAD: usize = 4 + 4 + 8;

/// Why bytes are no summary.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// They are something else, or of another version of this library.
    #[error("not a run summary of version {VERSION}: all ranks must use the same version of commtrace")]
    Foreign,
    /// They are cut or damaged.
    #[error("the run summary is damaged: {0}")]
    Damaged(&'static str),
    /// The JSON in them cannot be used.
    #[error("the run summary is damaged: {0}")]
    Json(#[from] serde_json::Error),
}

#[derive(Serialize, Deserialize)]
struct Contents<P> {
    processes: Vec<Entry<P>>,
    missing: BTreeSet<u32>,
}

#[derive(Serialize, Deserialize)]
struct Entry<P> {
    id: ProcessId,
    process: P,
    samples: Vec<Place>,
}

/// A sample in the list; its bytes follow those of the sample before.
#[derive(Serialize, Deserialize)]
struct Place {
    rank: u32,
    stride: u64,
    length: u64,
}

impl RunSummary {
    /// The summary as bytes, to be sent.
    ///
    /// # Errors
    ///
    /// [`SummaryError::Json`], if a figure has no JSON form.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SummaryError> {
        let processes = self.processes.iter().map(|(id, process)| Entry {
            id: id.clone(),
            process,
            samples: process.samples.iter().map(place).collect(),
        });
        let contents = Contents { processes: processes.collect(), missing: self.missing.clone() };
        let json = serde_json::to_vec(&contents)?;
        let mut bytes = Vec::with_capacity(HEAD + json.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(json.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&json);
        for sample in self.processes.values().flat_map(|process| &process.samples) {
            bytes.extend_from_slice(&sample.record);
        }
        Ok(bytes)
    }

    /// The summary that [`to_bytes`](Self::to_bytes) made these of.
    ///
    /// # Errors
    ///
    /// [`SummaryError`], if they are something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SummaryError> {
        let (magic, rest) = bytes.split_at_checked(4).ok_or(SummaryError::Foreign)?;
        let (version, rest) = rest.split_at_checked(4).ok_or(SummaryError::Foreign)?;
        if magic != MAGIC || version != VERSION.to_le_bytes() {
            return Err(SummaryError::Foreign);
        }
        let (length, rest) = rest.split_first_chunk().ok_or(SummaryError::Damaged("it ends early"))?;
        let (json, mut rest) = take(rest, u64::from_le_bytes(*length))?;
        let contents: Contents<ProcessSummary> = serde_json::from_slice(json)?;
        let mut summary = Self { missing: contents.missing, ..Self::default() };
        for Entry { id, mut process, samples } in contents.processes {
            for Place { rank, stride, length } in samples {
                let (record, behind) = take(rest, length)?;
                rest = behind;
                process.samples.push(Sample { rank, stride, record: record.to_vec() });
            }
            summary.processes.insert(id, process);
        }
        if rest.is_empty() { Ok(summary) } else { Err(SummaryError::Damaged("something follows its end")) }
    }
}

fn place(sample: &Sample) -> Place {
    Place { rank: sample.rank, stride: sample.stride, length: sample.record.len() as u64 }
}

fn take(bytes: &[u8], length: u64) -> Result<(&[u8], &[u8]), SummaryError> {
    let length = usize::try_from(length).ok();
    length.and_then(|length| bytes.split_at_checked(length)).ok_or(SummaryError::Damaged("it ends early"))
}
