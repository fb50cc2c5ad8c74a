//! What the environment asks of the stand-in. Every variable is described in tests/doubles/README.md.

use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

/// All settings.
pub struct Settings {
    /// What `ncclGetVersion` says.
    pub version: i32,
    /// A rank, and how late it joins each collective.
    pub slow_rank: Option<(usize, Duration)>,
    /// The least time from the arrival of the last rank to the end of a collective, or of a message's
    /// second side to its end.
    pub transfer: Duration,
    /// How long ranks wait for each other as a communicator is made.
    pub init_timeout: Duration,
    /// Whether several ranks may share a device, as NCCL's own variable says.
    pub ranks_share_devices: bool,
    /// The algorithm that the log names in place of the one that `NCCL_ALGO` asks for.
    pub algorithm_said: Option<String>,
    /// Whether the log names no algorithms, as that of a version before 2.19.
    pub says_no_algorithm: bool,
    /// A rank that gets a wrong bit in the result of every collective.
    pub wrong_rank: Option<usize>,
    /// What could not be understood: making a communicator says it and fails.
    pub problem: Option<String>,
}

/// The settings, read once.
pub fn get() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let mut problem = None;
        let version = setting("DOUBLE_NCCL_VERSION", number, &mut problem);
        let slow_rank = setting("DOUBLE_NCCL_SLOW_RANK", slow, &mut problem);
        let transfer_ns = setting("DOUBLE_NCCL_TRANSFER_NS", number, &mut problem);
        let wrong_rank = setting("DOUBLE_NCCL_WRONG_RANK", number, &mut problem);
        let seconds = setting("DOUBLE_NCCL_INIT_TIMEOUT_S", number, &mut problem);
        Settings {
            version: version.unwrap_or(22_809),
            slow_rank,
            transfer: Duration::from_nanos(transfer_ns.unwrap_or(0)),
            init_timeout: Duration::from_secs(seconds.unwrap_or(60)),
            ranks_share_devices: std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").is_ok_and(|it| it == "1"),
            algorithm_said: std::env::var("DOUBLE_NCCL_ALGORITHM_SAID").ok().filter(|it| it != "none"),
            says_no_algorithm: std::env::var("DOUBLE_NCCL_ALGORITHM_SAID").is_ok_and(|it| it == "none"),
            wrong_rank,
            problem,
        }
    })
}

fn setting<T>(name: &str, parse: fn(&str) -> Option<T>, problem: &mut Option<String>) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let value = parse(text.trim());
    if value.is_none() {
        *problem = Some(format!("{name}={text} is not understood; see tests/doubles/README.md"));
    }
    value
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// `RANK:NANOSECONDS`.
fn slow(text: &str) -> Option<(usize, Duration)> {
    let (rank, delay_ns) = text.split_once(':')?;
    Some((number(rank)?, Duration::from_nanos(number(delay_ns)?)))
}
