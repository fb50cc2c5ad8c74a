//! `commtrace estimate`: the latency–bandwidth cost model.

use crate::args::EstimateArgs;
use crate::failure::Failure;
use crate::output;
use clap::error::ErrorKind;
use commtrace_report::analyze::estimate_collective_time;
use std::fmt::Write;

pub fn run(args: &EstimateArgs) -> Result<(), Failure> {
    let text = text(args).map_err(|reason| Failure::usage("estimate", ErrorKind::ValueValidation, reason))?;
    output::write(None, false, |out| out.write_all(text.as_bytes()))?;
    Ok(())
}

fn text(args: &EstimateArgs) -> Result<String, String> {
    let estimate = |payload, latency, count| {
        estimate_collective_time(payload, latency, args.bandwidth, count).map_err(|error| error.to_string())
    };
    let total = estimate(args.payload_bytes, args.startup_latency, args.sync_count)?;
    let single = estimate(args.payload_bytes, args.startup_latency, 1)?;
    let startup = args.startup_latency;
    let transfer = estimate(args.payload_bytes, 0.0, 1)?;

    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<16}{value}");
    };
    line("estimate", &format!("{total} s ({})", readable(total)));
    line("collectives", &args.sync_count.to_string());
    line(
        "each",
        &format!("{}: startup {} + transfer {}", readable(single), readable(startup), readable(transfer)),
    );
    line("dominated by", &dominance(startup, transfer));
    Ok(text)
}

/// Which part decides, and what changes it.
fn dominance(startup: f64, transfer: f64) -> String {
    let single = startup + transfer;
    if single == 0.0 {
        return "nothing: no latency and no payload".to_owned();
    }
    let share = |part: f64| format!("{:.1} %", 100.0 * part / single);
    if startup > transfer {
        format!("startup ({}): fewer, larger collectives save most", share(startup))
    } else if startup < transfer {
        format!("transfer ({}): less payload or more bandwidth saves most", share(transfer))
    } else {
        "neither: startup and transfer cost the same".to_owned()
    }
}

/// Seconds in the unit that fits.
fn readable(seconds: f64) -> String {
    let (scaled, unit) = match seconds {
        0.0 => return "0 s".to_owned(),
        _ if seconds >= 1.0 => (seconds, "s"),
        _ if seconds >= 1e-3 => (seconds * 1e3, "ms"),
        _ if seconds >= 1e-6 => (seconds * 1e6, "us"),
        _ => (seconds * 1e9, "ns"),
    };
    if (1e-3..1e6).contains(&scaled) { format!("{scaled:.3} {unit}") } else { format!("{scaled:.3e} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(payload_bytes: u64, startup_latency: f64, bandwidth: f64, sync_count: u64) -> EstimateArgs {
        EstimateArgs { payload_bytes, startup_latency, bandwidth, sync_count }
    }

    #[test]
    fn the_larger_part_is_named() {
        assert!(text(&args(1_000_000, 1e-5, 1e9, 1)).unwrap().contains("transfer (99.0 %)"));
        assert!(text(&args(1_000, 1e-5, 1e9, 1)).unwrap().contains("startup (90.9 %)"));
        assert!(text(&args(100, 0.1, 1000.0, 3)).unwrap().contains("neither"));
        assert!(text(&args(0, 0.0, 1.0, 3)).unwrap().contains("nothing"));
    }

    #[test]
    fn units_fit_the_value() {
        assert_eq!(readable(0.6), "600.000 ms");
        assert_eq!(readable(2.5e-6), "2.500 us");
        assert_eq!(readable(3e-12), "0.003 ns");
        assert_eq!(readable(1e-20), "1.000e-11 ns");
        assert_eq!(readable(1e9), "1.000e9 s");
    }
}
