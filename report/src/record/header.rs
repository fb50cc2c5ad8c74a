//! What is known of a record file when it is created: name and schema metadata.

use super::SCHEMA_VERSION;
use std::collections::HashMap;
use std::str::FromStr;

/// Schema metadata of a record file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Global rank.
    pub rank: u32,
    /// Host name.
    pub host: String,
    /// The host's boot id: files with the same one were timed by the same clock.
    pub boot_id: String,
    /// Process id.
    pub pid: u32,
    /// Identifier shared by all ranks of one run.
    pub run_id: String,
    /// Process start, nanoseconds since the Unix epoch.
    pub start_unix_ns: i64,
    /// The same instant on CLOCK_MONOTONIC.
    pub start_mono_ns: i64,
    /// Number of ranks, if the launcher said so.
    pub world_size: Option<u32>,
    /// Version of the library that wrote the file.
    pub writer_version: String,
}

/// Why schema metadata is not a record file's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The file says nothing of a schema version: Arrow data of another program.
    #[error("its schema metadata has no `{VERSION}`, so commtrace did not write it")]
    NotARecord,
    /// The file was written by a later version of this library.
    #[error(
        "it has record schema version {found}, this program reads up to {SCHEMA_VERSION}: \
         read it with the commtrace version that wrote it ({writer}), or a newer one"
    )]
    Newer {
        /// Version of the file.
        found: u32,
        /// Version of the library that wrote it.
        writer: String,
    },
    /// A key is missing.
    #[error("its schema metadata has no `{0}`: it is damaged or was not written by commtrace")]
    Missing(&'static str),
    /// A value cannot be parsed.
    #[error("its schema metadata has `{key}` = {value:?}, which is not a number in range")]
    Invalid {
        /// The key.
        key: &'static str,
        /// What stands there.
        value: String,
    },
}

const VERSION: &str = "commtrace.schema_version";
const RANK: &str = "commtrace.rank";
const HOST: &str = "commtrace.host";
const BOOT_ID: &str = "commtrace.boot_id";
const PID: &str = "commtrace.pid";
const RUN_ID: &str = "commtrace.run_id";
const START_UNIX: &str = "commtrace.start_unix_ns";
const START_MONO: &str = "commtrace.start_mono_ns";
const WORLD_SIZE: &str = "commtrace.world_size";
const WRITER: &str = "commtrace.writer_version";

impl Header {
    /// The metadata of the Arrow schema, [`SCHEMA_VERSION`] included.
    pub fn to_metadata(&self) -> HashMap<String, String> {
        let mut metadata: HashMap<String, String> = [
            (VERSION, SCHEMA_VERSION.to_string()),
            (RANK, self.rank.to_string()),
            (HOST, self.host.clone()),
            (BOOT_ID, self.boot_id.clone()),
            (PID, self.pid.to_string()),
            (RUN_ID, self.run_id.clone()),
            (START_UNIX, self.start_unix_ns.to_string()),
            (START_MONO, self.start_mono_ns.to_string()),
            (WRITER, self.writer_version.clone()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
        if let Some(size) = self.world_size {
            metadata.insert(WORLD_SIZE.to_owned(), size.to_string());
        }
        metadata
    }

    /// The header that [`to_metadata`](Self::to_metadata) wrote.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] if the metadata is another program's, of a newer schema version, or damaged.
    pub fn from_metadata(metadata: &HashMap<String, String>) -> Result<Self, HeaderError> {
        if !metadata.contains_key(VERSION) {
            return Err(HeaderError::NotARecord);
        }
        let found: u32 = number(metadata, VERSION)?;
        if found > SCHEMA_VERSION {
            let writer = metadata.get(WRITER).map_or("unknown", |writer| writer).to_owned();
            return Err(HeaderError::Newer { found, writer });
        }
        Ok(Self {
            rank: number(metadata, RANK)?,
            host: text(metadata, HOST)?,
            boot_id: text(metadata, BOOT_ID)?,
            pid: number(metadata, PID)?,
            run_id: text(metadata, RUN_ID)?,
            start_unix_ns: number(metadata, START_UNIX)?,
            start_mono_ns: number(metadata, START_MONO)?,
            world_size: metadata
                .contains_key(WORLD_SIZE)
                .then(|| number(metadata, WORLD_SIZE))
                .transpose()?,
            writer_version: text(metadata, WRITER)?,
        })
    }
}

fn text(metadata: &HashMap<String, String>, key: &'static str) -> Result<String, HeaderError> {
    metadata.get(key).cloned().ok_or(HeaderError::Missing(key))
}

fn number<T: FromStr>(metadata: &HashMap<String, String>, key: &'static str) -> Result<T, HeaderError> {
    let value = text(metadata, key)?;
    value.parse().map_err(|_| HeaderError::Invalid { key, value })
}

/// The name of a rank's record file: `rank-00000.<pid>.<start>.arrows`, with `start` in
/// milliseconds since the Unix epoch.
pub fn file_name(header: &Header) -> String {
    format!("rank-{:05}.{}.{}.arrows", header.rank, header.pid, header.start_unix_ns / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            rank: 3,
            host: "node7".into(),
            boot_id: "b0".into(),
            pid: 42,
            run_id: "job-1".into(),
            start_unix_ns: 1_700_000_000_123_456_789,
            start_mono_ns: 77,
            world_size: Some(8),
            writer_version: "0.1.0".into(),
        }
    }

    #[test]
    fn metadata_round_trip() {
        for world_size in [Some(8), None] {
            let header = Header { world_size, ..header() };
            assert_eq!(Header::from_metadata(&header.to_metadata()), Ok(header));
        }
    }

    #[test]
    fn newer_schema_names_both_versions() {
        let mut metadata = header().to_metadata();
        metadata.insert(VERSION.into(), (SCHEMA_VERSION + 1).to_string());
        metadata.insert(WRITER.into(), "9.9.9".into());
        let message = Header::from_metadata(&metadata).unwrap_err().to_string();
        assert!(message.contains(&format!("version {}", SCHEMA_VERSION + 1)), "{message}");
        assert!(message.contains("9.9.9"), "{message}");
    }

    #[test]
    fn foreign_and_damaged_metadata() {
        assert_eq!(Header::from_metadata(&HashMap::new()), Err(HeaderError::NotARecord));
        for key in [RANK, HOST, BOOT_ID, PID, RUN_ID, START_UNIX, START_MONO, WRITER] {
            let mut metadata = header().to_metadata();
            metadata.remove(key);
            assert_eq!(Header::from_metadata(&metadata), Err(HeaderError::Missing(key)));
        }
        for key in [VERSION, RANK, PID, START_UNIX, START_MONO, WORLD_SIZE] {
            let mut metadata = header().to_metadata();
            metadata.insert(key.into(), "-x".into());
            assert_eq!(
                Header::from_metadata(&metadata),
                Err(HeaderError::Invalid { key, value: "-x".into() })
            );
        }
    }

    #[test]
    fn file_names_sort_by_rank() {
        assert_eq!(file_name(&header()), "rank-00003.42.1700000000123.arrows");
    }
}
