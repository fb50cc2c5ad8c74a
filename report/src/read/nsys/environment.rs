//! What an export says of the job around the program: its rank by the launcher, and its clock.

use super::database::Database;

/// Variables of launchers: the rank, and the number of ranks.
const LAUNCHERS: [(&str, &str); 8] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
];

/// The rank that a launcher gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaunchedRank {
    /// The variable that says so.
    pub variable: &'static str,
    pub rank: u32,
    pub world_size: Option<u32>,
}

/// What an export says of the job.
#[derive(Debug, Default)]
pub(super) struct Environment {
    pub launched: Option<LaunchedRank>,
    /// Nanoseconds of UTC at which the export's times begin.
    pub start_utc_ns: Option<i64>,
}

impl Environment {
    pub fn read(database: &mut Database) -> Self {
        let mut ranks = [None; LAUNCHERS.len()];
        let mut sizes = [None; LAUNCHERS.len()];
        let mut note = |name: &str, value: &str| {
            for ((launcher, rank), size) in LAUNCHERS.iter().zip(&mut ranks).zip(&mut sizes) {
                if launcher.0 == name {
                    *rank = value.trim().parse().ok().or(*rank);
                } else if launcher.1 == name {
                    *size = value.trim().parse().ok().or(*size);
                }
            }
        };
        database.scan("TARGET_INFO_SYSTEM_ENV", &["name", "value"], |row| {
            let (Some(name), Some(value)) = (row.text(0), row.text(1)) else { return };
            if name != "DeviceEnvironment" {
                note(&name, &value);
                return;
            }
            // The whole environment in one value.
            for variable in value.split(['\0', '\n']) {
                if let Some((name, value)) = variable.split_once('=') {
                    note(name, value);
                }
            }
        });
        let launched = LAUNCHERS.iter().zip(ranks).zip(sizes).find_map(|((launcher, rank), size)| {
            let (rank, world_size): (u32, Option<u32>) = (rank?, size);
            let sound = world_size.is_none_or(|size| rank < size);
            sound.then_some(LaunchedRank { variable: launcher.0, rank, world_size })
        });
        let mut start_utc_ns = None;
        database.scan("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |row| {
            start_utc_ns = start_utc_ns.or(row.integer(0));
        });
        Self { launched, start_utc_ns }
    }
}
