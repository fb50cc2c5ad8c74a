//! Figures as people read them: units that fit the value, so that nothing small is rounded away.

/// Milliseconds in the unit that fits: `1.25 s`, `12.3 ms`, `85.0 us`, `12 ns`.
pub fn ms(value: f64) -> String {
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
pub fn known<T>(value: Option<T>, unit: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "unknown".to_string(), unit)
}

/// A ratio as a percentage: `34.5 %`, `0.02 %`.
pub fn percent(ratio: f64) -> String {
    let value = ratio * 100.0;
    if value == 0.0 {
        return "0 %".to_string();
    }
    format!("{} %", significant(value))
}

/// Bytes in binary units: `512 B`, `1.50 MiB`.
pub fn bytes(value: u64) -> String {
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
pub fn gbs(value: f64) -> String {
    significant(value)
}

/// Milliseconds since the Unix epoch as a time of day: `2026-11-30 03:50:37 UTC`.
pub fn utc(unix_ms: f64) -> String {
    let seconds = (unix_ms / 1e3).floor() as i64;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Days since 1970-01-01 as year, month and day of the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted from 1 March of year 0, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
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

    /// Against counting day by day.
    #[test]
    fn days_are_dates() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..200_000 {
            assert_eq!(civil(days), (year, month, day));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + i64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
        assert_eq!(utc(1_750_000_000_123.0), "2025-06-15 15:06:40 UTC");
        assert_eq!(utc(-1.0), "1969-12-31 23:59:59 UTC");
    }

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
