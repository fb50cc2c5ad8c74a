//! What the environment asks of the stand-in. Every variable is described in tests/doubles/README.md.

use crate::error::Error;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

/// What makes a sticky error strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The call into a context with this number, counted from 1.
    Call(u64),
    /// The kernel or host function with this number, counted from 1 as they begin to run.
    Launch(u64),
}

/// All settings; the fields are named after their variables.
pub struct Settings {
    pub devices: i32,
    pub version: i32,
    pub memory_bytes: u64,
    pub drift_ppm: f64,
    pub lenient_capture: bool,
    /// Half-open ranges of the records, counted from 1, that never complete.
    pub stuck_events: Vec<(u64, u64)>,
    pub sticky: Option<(Error, Trigger)>,
    /// A device, and how much longer each of its kernels and host functions takes.
    pub slow: Option<(i32, Duration)>,
    /// What could not be understood: `cuInit` says it and fails.
    pub problem: Option<String>,
}

/// The settings, read once.
pub fn get() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| read(|name| std::env::var(name).ok()))
}

fn read(variable: impl Fn(&str) -> Option<String>) -> Settings {
    let mut problem = None;
    let mut say = |name: &str, value: &str| {
        problem
            .get_or_insert_with(|| format!("{name}={value} is not understood; see tests/doubles/README.md"));
    };
    macro_rules! setting {
        ($name:literal, $default:expr, $parse:expr) => {
            match variable($name) {
                None => $default,
                Some(text) => $parse(text.trim()).unwrap_or_else(|| {
                    say($name, &text);
                    $default
                }),
            }
        };
    }
    let settings = Settings {
        devices: setting!("DOUBLE_CUDA_DEVICES", 2, number),
        version: setting!("DOUBLE_CUDA_VERSION", 13_000, number),
        memory_bytes: setting!("DOUBLE_CUDA_MEMORY_MB", 4096_u64, number).saturating_mul(1 << 20),
        drift_ppm: setting!("DOUBLE_CUDA_DRIFT_PPM", 20.0, number),
        lenient_capture: setting!("DOUBLE_CUDA_CAPTURE", false, |text| match text {
            "strict" => Some(false),
            "lenient" => Some(true),
            _ => None,
        }),
        stuck_events: setting!("DOUBLE_CUDA_STUCK_EVENTS", Vec::new(), ranges),
        sticky: setting!("DOUBLE_CUDA_STICKY", None, |text| sticky(text).map(Some)),
        slow: setting!("DOUBLE_CUDA_SLOW", None, |text| slow(text).map(Some)),
        problem: None,
    };
    Settings { problem, ..settings }
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// `3`, `3,7`, `10..20` and `10..`, and lists of them.
fn ranges(text: &str) -> Option<Vec<(u64, u64)>> {
    text.split(',')
        .map(|part| match part.trim().split_once("..") {
            None => number(part.trim()).map(|at: u64| (at, at.saturating_add(1))),
            Some((from, "")) => Some((number(from)?, u64::MAX)),
            Some((from, to)) => Some((number(from)?, number(to)?)),
        })
        .collect()
}

/// `ERROR:calls:N` or `ERROR:launches:N`.
fn sticky(text: &str) -> Option<(Error, Trigger)> {
    let mut parts = text.split(':');
    let error = match parts.next()? {
        "illegal_address" => Error::ILLEGAL_ADDRESS,
        "launch_failed" => Error::LAUNCH_FAILED,
        "ecc" => Error::ECC_UNCORRECTABLE,
        "device_lost" => Error::DEVICE_UNAVAILABLE,
        "context_destroyed" => Error::CONTEXT_IS_DESTROYED,
        code => Error(number(code).filter(|code| *code > 0)?),
    };
    let (what, count) = (parts.next()?, number(parts.next()?)?);
    let trigger = match what {
        "calls" => Trigger::Call(count),
        "launches" => Trigger::Launch(count),
        _ => return None,
    };
    parts.next().is_none().then_some((error, trigger))
}

/// `DEVICE:NANOSECONDS`.
fn slow(text: &str) -> Option<(i32, Duration)> {
    let (device, delay_ns) = text.split_once(':')?;
    Some((number(device)?, Duration::from_nanos(number(delay_ns)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Settings {
        read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn without_variables_nothing_is_wrong_and_no_fault_is_asked_for() {
        let settings = from(&[]);
        assert_eq!((settings.devices, settings.problem), (2, None));
        assert!(settings.stuck_events.is_empty() && settings.sticky.is_none() && settings.slow.is_none());
    }

    #[test]
    fn faults_are_read() {
        let settings = from(&[
            ("DOUBLE_CUDA_STUCK_EVENTS", "3, 10..20,30.."),
            ("DOUBLE_CUDA_STICKY", "illegal_address:launches:7"),
            ("DOUBLE_CUDA_SLOW", "1:2000"),
        ]);
        assert_eq!(settings.problem, None);
        assert_eq!(settings.stuck_events, [(3, 4), (10, 20), (30, u64::MAX)]);
        assert_eq!(settings.sticky, Some((Error::ILLEGAL_ADDRESS, Trigger::Launch(7))));
        assert_eq!(settings.slow, Some((1, Duration::from_micros(2))));
        let by_code = from(&[("DOUBLE_CUDA_STICKY", "46:calls:1")]);
        assert_eq!(by_code.sticky, Some((Error::DEVICE_UNAVAILABLE, Trigger::Call(1))));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (name, value) in [
            ("DOUBLE_CUDA_DEVICES", "two"),
            ("DOUBLE_CUDA_STUCK_EVENTS", "3..x"),
            ("DOUBLE_CUDA_STICKY", "illegal_address:after:7"),
            ("DOUBLE_CUDA_STICKY", "0:calls:7"),
            ("DOUBLE_CUDA_SLOW", "1"),
            ("DOUBLE_CUDA_CAPTURE", "sometimes"),
        ] {
            let problem = from(&[(name, value)]).problem.expect("a problem");
            assert!(problem.starts_with(&format!("{name}={value} ")), "{problem}");
        }
    }
}
