//! What is known of a record file when it is created: name and schema metadata.

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

/// The name of a rank's record file: `rank-00000.<pid>.<start>.arrows`, with `start` in
/// milliseconds since the Unix epoch.
pub fn file_name(header: &Header) -> String {
    format!("rank-{:05}.{}.{}.arrows", header.rank, header.pid, header.start_unix_ns / 1_000_000)
}
