//! Whether overlapping pays: a pure function of the times of both schedules.

use crate::quantile;
use crate::record::{Comparison, Decision, Verdict};

/// Times in milliseconds, by rank and then by repeat.
pub type Samples = [Vec<f64>];

/// The least that a rank's P95 must rise, as a share of what it was, to be called a new tail.
pub const LEAST_RISE: f64 = 0.01;

/// Compares both schedules; `None` without samples, or with some that are no times.
///
/// A rank has a new tail if its own P95 with overlapping is above that without by more than noise. Noise is how far
/// its P95 lies above its median without overlapping, and [`LEAST_RISE`] of that P95 at least: with the ten repeats that are
/// usual, P95 is nearly the slowest repeat, and moves by as much from run to run.
pub fn compare(serial: &Samples, overlapped: &Samples) -> Option<Comparison> {
    if serial.len() != overlapped.len() {
        return None;
    }
    let (before, after) = (max_over_ranks(serial), max_over_ranks(overlapped));
    let (median, median_after) = (quantile(&before, 0.5)?, quantile(&after, 0.5)?);
    let (p95, p95_after) = (quantile(&before, 0.95)?, quantile(&after, 0.95)?);
    let mut ranks_with_new_tail = Vec::new();
    for ((rank, before), after) in (0..).zip(serial).zip(overlapped) {
        let (median, p95) = (quantile(before, 0.5)?, quantile(before, 0.95)?);
        let noise = (p95 - median).max(LEAST_RISE * p95);
        if quantile(after, 0.95)? > p95 + noise {
            ranks_with_new_tail.push(rank);
        }
    }
    let saved_ms = median - median_after;
    Some(Comparison {
        saved_ms,
        overlap_gain_ratio: (median > 0.0).then(|| saved_ms / median),
        saved_p95_ms: p95 - p95_after,
        ranks_with_new_tail,
    })
}

/// How long each repeat took: as long as on the rank where it took longest.
fn max_over_ranks(samples: &Samples) -> Vec<f64> {
    let repeats = samples.iter().map(Vec::len).min().unwrap_or(0);
    let longest =
        |repeat: usize| samples.iter().filter_map(|rank| rank.get(repeat)).copied().fold(f64::MIN, f64::max);
    (0..repeats).map(longest).collect()
}

/// What follows: overlapping is adopted only if median and P95 improve and no rank has a new tail.
pub fn decide(comparison: &Comparison) -> Decision {
    let Comparison { saved_ms, overlap_gain_ratio, saved_p95_ms, ranks_with_new_tail } = comparison;
    let adopted = *saved_ms > 0.0 && *saved_p95_ms > 0.0 && ranks_with_new_tail.is_empty();
    let gain = overlap_gain_ratio.map_or(String::new(), |ratio| format!(" ({:.1} %)", 100.0 * ratio));
    let found = if adopted {
        format!(
            "overlapping saves {saved_ms:.3} ms of the median{gain} and {saved_p95_ms:.3} ms of P95, and no rank \
                 has a new tail"
        )
    } else {
        let mut against = Vec::new();
        if *saved_ms <= 0.0 {
            against.push(format!("the median does not improve ({saved_ms:.3} ms saved)"));
        }
        if *saved_p95_ms <= 0.0 {
            against.push(format!("P95 does not improve ({saved_p95_ms:.3} ms saved)"));
        }
        if !ranks_with_new_tail.is_empty() {
            let ranks: Vec<_> = ranks_with_new_tail.iter().map(u32::to_string).collect();
            against.push(format!("a new tail on rank {}", ranks.join(", ")));
        }
        against.join("; ")
    };
    let next: &[&str] = if adopted {
        &["exposed_comm_ms", "overlap_ratio", "step_time_ms"]
    } else {
        &["rank_elapsed_ms", "stream_priorities", "payload_bytes", "compute_dim"]
    };
    Decision {
        decision: if adopted { Verdict::AdoptOverlap } else { Verdict::KeepSerial },
        reason: format!(
            "{found}. This is what scheduling gains for one collective and one matrix product, both synthetic; it is no \
             real model's gain, whose buckets and dependencies are others."
        ),
        next_measurements: next.iter().map(|&name| name.to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(serial: &Samples, overlapped: &Samples) -> (Comparison, Verdict) {
        let comparison = compare(serial, overlapped).unwrap();
        let decision = decide(&comparison);
        assert!(decision.reason.contains("no real model's gain"), "{}", decision.reason);
        (comparison, decision.decision)
    }

    /// Maxima over ranks 10, 12, 10, 12, 14 and 8, 9, 8, 9, 9.
    #[test]
    fn better_in_all_is_adopted() {
        let serial = [vec![10.0, 11.0, 10.0, 11.0, 10.0], vec![9.0, 12.0, 9.0, 12.0, 14.0]];
        let overlapped = [vec![8.0, 8.0, 8.0, 8.0, 8.0], vec![7.0, 9.0, 7.0, 9.0, 9.0]];
        let (comparison, verdict) = verdict(&serial, &overlapped);
        assert_eq!(comparison.saved_ms, 3.0, "12 - 9");
        assert_eq!(comparison.overlap_gain_ratio, Some(0.25));
        assert!((comparison.saved_p95_ms - 4.6).abs() < 1e-12, "13.6 - 9: {comparison:?}");
        assert!(comparison.ranks_with_new_tail.is_empty());
        assert_eq!(verdict, Verdict::AdoptOverlap);
    }

    #[test]
    fn a_better_median_with_a_worse_p95_is_not() {
        let serial = [vec![10.0; 5]];
        let overlapped = [vec![8.0, 8.0, 8.0, 8.0, 30.0]];
        let (comparison, verdict) = verdict(&serial, &overlapped);
        assert!(comparison.saved_ms > 0.0 && comparison.saved_p95_ms < 0.0);
        assert_eq!(verdict, Verdict::KeepSerial);
    }

    /// Rank 1 is hidden behind rank 0, which is slower, and yet has a tail that it had not.
    #[test]
    fn a_new_tail_of_one_rank_is_not() {
        let serial = [vec![20.0, 20.0, 20.0, 20.0, 20.0], vec![5.0, 5.1, 5.0, 5.1, 5.0]];
        let overlapped = [vec![16.0, 16.0, 16.0, 16.0, 16.0], vec![5.0, 5.0, 5.0, 5.0, 12.0]];
        let (comparison, verdict) = verdict(&serial, &overlapped);
        assert!(comparison.saved_ms > 0.0 && comparison.saved_p95_ms > 0.0);
        assert_eq!(comparison.ranks_with_new_tail, [1]);
        assert_eq!(verdict, Verdict::KeepSerial);
        assert!(decide(&comparison).reason.contains("rank 1"));
    }

    /// Median 10, P95 11.8: up to 13.6 is noise.
    #[test]
    fn a_rise_within_the_noise_is_no_tail() {
        let serial = [vec![10.0, 10.0, 10.0, 11.0, 12.0]];
        let tails =
            |most: f64| compare(&serial, &[vec![9.0, 9.0, most, most, most]]).unwrap().ranks_with_new_tail;
        assert!(tails(13.5).is_empty());
        assert_eq!(tails(13.7), [0]);
        let steady = [vec![10.0; 5]];
        let tails = |all: f64| compare(&steady, &[vec![all; 5]]).unwrap().ranks_with_new_tail;
        assert!(tails(10.09).is_empty(), "one per cent");
        assert_eq!(tails(10.11), [0]);
    }

    #[test]
    fn what_cannot_be_compared() {
        assert_eq!(compare(&[], &[]), None);
        assert_eq!(compare(&[vec![1.0]], &[vec![1.0], vec![1.0]]), None);
        assert_eq!(compare(&[vec![f64::NAN]], &[vec![1.0]]), None);
        let (comparison, verdict) = verdict(&[vec![0.0]], &[vec![0.0]]);
        assert_eq!((comparison.overlap_gain_ratio, verdict), (None, Verdict::KeepSerial));
    }
}
