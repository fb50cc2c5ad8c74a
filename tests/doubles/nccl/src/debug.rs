//! What NCCL writes when `NCCL_DEBUG` asks for it, in the words of the version that the stand-in says it is.

use crate::collective::{Call, Kind};
use crate::comm::Comm;
use crate::mesh::Mesh;
use crate::{settings, tuning};
use double_common::lock;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, OnceLock};

/// A part of NCCL that writes lines of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subsystem {
    Init,
    Environment,
    Collective,
    Tuning,
}

impl Subsystem {
    fn name(self) -> &'static str {
        match self {
            Subsystem::Init => "INIT",
            Subsystem::Environment => "ENV",
            Subsystem::Collective => "COLL",
            Subsystem::Tuning => "TUNING",
        }
    }
}

struct Log {
    /// `NCCL_DEBUG_SUBSYS`; what NCCL writes about unasked without it.
    subsystems: String,
    to: Mutex<Box<dyn Write + Send>>,
    host: String,
}

/// The log, if `NCCL_DEBUG` is `INFO` or `TRACE`.
fn log() -> Option<&'static Log> {
    static LOG: OnceLock<Option<Log>> = OnceLock::new();
    let open = || {
        let level = std::env::var("NCCL_DEBUG").unwrap_or_default().to_ascii_uppercase();
        if !matches!(&level[..], "INFO" | "TRACE") {
            return None;
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().to_owned();
        let named = std::env::var("NCCL_DEBUG_FILE").ok().filter(|name| !name.is_empty());
        let named =
            named.map(|name| name.replace("%h", &host).replace("%p", &std::process::id().to_string()));
        // NCCL too writes to stdout what it cannot write to the file.
        let to: Box<dyn Write + Send> = match named.and_then(|name| File::create(name).ok()) {
            Some(file) => Box::new(file),
            None => Box::new(std::io::stdout()),
        };
        let subsystems = std::env::var("NCCL_DEBUG_SUBSYS").unwrap_or_else(|_| "INIT,ENV".into());
        Some(Log { subsystems: subsystems.to_ascii_uppercase(), to: Mutex::new(to), host })
    };
    LOG.get_or_init(open).as_ref()
}

/// Writes a line of `subsystem`, if it is asked for.
fn write(subsystem: Subsystem, device: i32, text: impl FnOnce() -> String) {
    let Some(log) = log() else { return };
    if log
        .subsystems
        .split(',')
        .any(|named| matches!(named.trim(), "ALL") || named.trim() == subsystem.name())
    {
        line(log, device, "NCCL INFO", &text());
    }
}

/// Writes a warning, which is of all subsystems.
pub fn warn(device: i32, text: &str) {
    if let Some(log) = log() {
        line(log, device, "stand-in NCCL WARN", text);
    }
}

fn line(log: &Log, device: i32, marker: &str, text: &str) {
    let pid = std::process::id();
    // A log that cannot be written to is no reason for a collective to fail.
    let _ = writeln!(lock(&log.to), "{}:{pid}:{pid} [{device}] {marker} {text}", log.host);
}

/// That a rank joins a communicator.
pub fn joining(comm: &Comm, name: &str, rank: usize, size: usize, state: &str) {
    let device = comm.device;
    if state == "START" {
        let version = settings::get().version;
        let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
        write(Subsystem::Init, device, || format!("NCCL version {major}.{minor}.{patch}+cuda13.0"));
        if let Ok(value) = std::env::var("NCCL_ALGO") {
            write(Subsystem::Environment, device, || format!("NCCL_ALGO set by environment to {value}."));
        }
    }
    write(Subsystem::Init, device, || {
        let id = name.bytes().fold(5381_u64, |hash, byte| hash.wrapping_mul(33) ^ u64::from(byte));
        format!(
            "ncclCommInitRank comm {:#x} rank {rank} nranks {size} cudaDev {device} nvmlDev {device} busId \
             {}000 commId {id:#x} - Init {state}",
            comm.handle,
            device + 1
        )
    });
}

/// That a rank makes a call, and on rank 0 which algorithm runs.
pub fn called(comm: &Comm, mesh: &Mesh, call: &Call, data_type: i32) {
    let Call { kind, send, receive, count, .. } = call;
    write(Subsystem::Collective, comm.device, || {
        format!(
            "{}: opCount 0 sendbuff {send:#x} recvbuff {receive:#x} count {count} datatype {data_type} op 0 root {} \
             comm {:#x} [nranks={}] stream 0x1",
            tuning::function(*kind),
            kind.other().unwrap_or(0),
            comm.handle,
            mesh.size
        )
    });
    let between = matches!(kind, Kind::AllToAll | Kind::Gather { .. } | Kind::Scatter { .. });
    if mesh.rank != 0 || between || kind.is_point_to_point() || settings::get().says_no_algorithm {
        return;
    }
    let said = settings::get().algorithm_said.clone();
    let algorithm = said.unwrap_or_else(|| tuning::algorithm(*kind, call.bytes()).to_owned());
    write(Subsystem::Tuning, comm.device, || {
        if settings::get().version >= 22_400 {
            let (name, bytes) = (tuning::function(*kind), call.bytes());
            let algorithm = algorithm.to_ascii_uppercase();
            format!("{name}: {bytes} Bytes -> Algo {algorithm} proto SIMPLE channel{{Lo..Hi}}={{0..1}}")
        } else {
            // The number in NCCL's table, and the size of the whole.
            let number = tuning::ALGORITHMS.iter().position(|known| known.eq_ignore_ascii_case(&algorithm));
            let parts = if matches!(kind, Kind::AllGather | Kind::ReduceScatter) { mesh.size } else { 1 };
            let (number, bytes) = (number.unwrap_or(tuning::ALGORITHMS.len()), call.bytes() * parts);
            format!("{bytes} Bytes -> Algo {number} proto 2 time 12.500000")
        }
    });
}
