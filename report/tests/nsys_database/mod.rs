//! Small exports of Nsight Systems, as its schema 3 has them, made where they are tested.

// Every test crate uses its own part.
#![allow(dead_code)]

use commtrace_report::read::{ReadError, ReadOptions, read};
use commtrace_report::timeline::{Timeline, Track};
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SCHEMA: &str = "
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, graphNodeId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        bytes INTEGER, copyKind INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
        eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
    CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
        globalTid INTEGER, textId INTEGER, domainId INTEGER, jsonTextId INTEGER, jsonText TEXT,
        binaryData TEXT);
    CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, idx INTEGER, type INTEGER,
        name TEXT, arrayOrUnionDetail INTEGER, offset INTEGER);
    CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
    CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT NOT NULL, value TEXT NOT NULL);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES
        (1, 1, 0, 18, 'NCCL communicator ID', NULL, NULL), (1, 1, 1, 5, 'No. of ranks', NULL, 8),
        (1, 1, 2, 5, 'Rank', NULL, 12), (1, 1, 3, 5, 'CUDA device', NULL, 16),
        (1, 2, 0, 18, 'NCCL communicator ID', NULL, NULL), (1, 2, 1, 22, 'Message size [bytes]', NULL, 8),
        (1, 2, 2, 5, 'Peer rank', NULL, 16);
";

/// A kernel's name in current versions of NCCL.
pub const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
pub const ALL_GATHER: &str = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
pub const SEND_RECV: &str = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
pub const GEMM: &str = "ampere_sgemm_128x64_tn";

/// `globalPid` of a process.
pub fn process(pid: i64) -> i64 {
    1 << 48 | pid << 24
}

/// `globalTid` of a thread.
pub fn thread(pid: i64, tid: i64) -> i64 {
    process(pid) | tid
}

/// An export that is being made.
pub struct Export {
    pub database: Connection,
    pub path: PathBuf,
    folder: TempDir,
}

impl Export {
    pub fn new() -> Self {
        Self::with_schema(SCHEMA)
    }

    pub fn with_schema(schema: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("export.sqlite");
        let database = Connection::open(&path).unwrap();
        database.execute_batch("PRAGMA synchronous = OFF").unwrap();
        database.execute_batch(schema).unwrap();
        Self { database, path, folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn sql(&self, sql: &str) {
        self.database.execute_batch(sql).unwrap();
    }

    fn string(&self, text: &str) -> i64 {
        let sql = "INSERT INTO StringIds (value) SELECT ?1 WHERE ?1 NOT IN (SELECT value FROM StringIds)";
        self.database.execute(sql, params![text]).unwrap();
        let sql = "SELECT id FROM StringIds WHERE value = ?1";
        self.database.query_row(sql, params![text], |row| row.get(0)).unwrap()
    }

    /// A kernel of `pid` on a device, stream 7, launched by the call with this correlation.
    pub fn kernel(&self, pid: i64, device: i64, name: &str, times: (i64, i64), correlation: i64) {
        self.graph_kernel(pid, device, name, times, correlation, None);
    }

    pub fn graph_kernel(
        &self,
        pid: i64,
        device: i64,
        name: &str,
        times: (i64, i64),
        correlation: i64,
        node: Option<i64>,
    ) {
        let name = self.string(name);
        let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 1, 7, ?, ?, ?, ?, ?)";
        let row = params![times.0, times.1, device, correlation, process(pid), name, name, node];
        self.database.execute(sql, row).unwrap();
    }

    /// A call of the CUDA runtime.
    pub fn launch(&self, thread: i64, at: i64, correlation: i64) {
        let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, NULL)";
        self.database.execute(sql, params![at, at + 1, thread, correlation]).unwrap();
    }

    /// A range with its name in its row.
    pub fn range(&self, thread: i64, text: &str, times: (i64, i64)) {
        let sql = "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId)
                   VALUES (?, ?, 59, ?, ?, 0)";
        self.database.execute(sql, params![times.0, times.1, text, thread]).unwrap();
    }

    /// A range of NCCL's domain, with the words of its payload if there is one: the schema first.
    pub fn nccl(&self, thread: i64, name: &str, times: (i64, i64), payload: Option<(u64, &[u64])>) {
        let binary = payload.map(|(schema, words)| {
            let size = words.len() as u64 * 8;
            let header = [1, schema, size, 32 + size];
            header.iter().chain(words).flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
        });
        let name = self.string(name);
        let sql = "INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid, domainId, binaryData)
                   VALUES (?, ?, 59, ?, ?, 1, ?)";
        self.database.execute(sql, params![times.0, times.1, name, thread, binary]).unwrap();
    }

    /// The making of a communicator.
    pub fn comm(&self, thread: i64, at: i64, comm: u64, (rank, ranks): (u64, u64), device: u64) {
        let words = [comm, rank << 32 | ranks, device];
        self.nccl(thread, "ncclCommInitRankConfig", (at, at + 1), Some((1, &words)));
    }

    pub fn read(&self) -> Timeline {
        self.read_with(&ReadOptions::default())
    }

    pub fn read_with(&self, options: &ReadOptions) -> Timeline {
        read(std::slice::from_ref(&self.path), options).unwrap()
    }

    /// The error that reading ends with, in words.
    pub fn error(&self) -> String {
        error(&self.path).to_string()
    }
}

pub fn error(path: &Path) -> ReadError {
    read(&[path.to_owned()], &ReadOptions::default()).unwrap_err()
}

/// Rank and device of each track.
pub fn places(timeline: &Timeline) -> Vec<(u32, Option<u32>)> {
    timeline.tracks.iter().map(|track| (track.rank, track.device)).collect()
}

/// What is told of the communication of a track: op, bytes, communicator, number, peer.
pub type Told<'a> = (&'a str, Option<u64>, Option<&'a str>, Option<u64>, Option<u32>);

pub fn told<'a>(timeline: &'a Timeline, track: &Track) -> Vec<Told<'a>> {
    let text = |sym| timeline.names.get(sym);
    track
        .comm
        .iter()
        .map(|comm| (text(comm.op), comm.bytes, comm.comm.map(text), comm.seq, comm.peer))
        .collect()
}

/// Whether a warning contains `text`.
#[track_caller]
pub fn assert_warns(timeline: &Timeline, text: &str) {
    assert!(timeline.warnings.iter().any(|warning| warning.contains(text)), "{:?}", timeline.warnings);
}

#[track_caller]
pub fn assert_no_warning(timeline: &Timeline) {
    assert!(timeline.warnings.is_empty(), "{:?}", timeline.warnings);
}
