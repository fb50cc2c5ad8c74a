//! Figures as people read them: units that fit the value, so that nothing small is rounded away.

/// Milliseconds in the unit that fits: `1.25 s`, `12.3 ms`, `85.0 us`, `12 ns`.
pub(crate) fn ms(value: f64) -> String {
    let magnitude = value.abs();
    let (scaled, unit) = if magnitude == 0.0 {
        return "0 ms".to_string();
    } else if magnitude >= 1e3 {
        (value / 1e3, "s")
    } else if magnitude >= 1.0 {
        (value, "ms")
    } else if magnitude >= 1e-3 {
        (value * 1e3, "us")
    } else {
        (value * 1e6, "ns")
    };
    format!("{} {unit}", significant(scaled))
}

/// `value` in words by `unit`, or that it is not known.
pub(crate) fn known<T>(value: Option<T>, unit: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "unknown".to_string(), unit)
}

/// A ratio as a percentage: `34.5 %`, `0.02 %`.
pub(crate) fn percent(ratio: f64) -> String {
    let value = ratio * 100.0;
    if value == 0.0 {
        return "0 %".to_string();
    }
    format!("{} %", significant(value))
}

/// Bytes in binary units: `512 B`, `1.50 MiB`.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut scaled = value as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = next;
    }
    format!("{} {unit}", significant(scaled))
}

/// A bandwidth, in GB/s as nccl-tests does: `12.3`, `0.0054`.
pub(crate) fn gbs(value: f64) -> String {
    significant(value)
}

/// Three significant digits, more before the point if the number is long.
fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e15 {
        return format!("{value:.2e}");
    }
    if magnitude >= 99.95 {
        return format!("{value:.0}");
    }
    if magnitude >= 9.995 {
        return format!("{value:.1}");
    }
    if magnitude >= 0.9995 {
        return format!("{value:.2}");
    }
    if magnitude < 1e-6 {
        return format!("{value:.2e}");
    }
    // Leading zeros do not count as digits.
    let decimals = (2.0 - magnitude.log10().floor()) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_keep_their_digits() {
        assert_eq!(ms(0.0), "0 ms");
        assert_eq!(ms(1234.5), "1.23 s");
        assert_eq!(ms(5.04), "5.04 ms");
        assert_eq!(ms(0.085), "85.0 us");
        assert_eq!(ms(0.000_012), "12.0 ns");
        assert_eq!(ms(-2.0), "-2.00 ms");
        assert_eq!(percent(0.345), "34.5 %");
        assert_eq!(percent(0.000_2), "0.0200 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1536 * 1024), "1.50 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }
}
