//! Who pays for a wait: shares of the ranks that had not arrived yet.

/// A rank's part in a collective: `(arrival_ns, wait_ns)`.
pub(super) type Waiting = (i64, u64);

/// The waits of all ranks, shared out among those who caused them; the shares, in nanoseconds and in the
/// order of `parts`, add up to the waits.
///
/// Who waits, waits for those who have not arrived: at every instant, each of these bears an equal share.
/// So the wait from the second-to-last arrival on is the last rank's alone, which is also what would
/// be saved had it come with the second-to-last. Equal shares per increment are the Shapley value of
/// this game, known as the airport game (S. C. Littlechild, G. Owen, A simple expression for the Shapley
/// value in a special case, Management Science 20, 1973): two ranks that come equally late are blamed
/// equally, and who came first is never blamed.
pub(super) fn share_waits(parts: &[Waiting]) -> Vec<f64> {
    let mut arrivals: Vec<i64> = parts.iter().map(|part| part.0).collect();
    arrivals.sort_unstable();
    let mut ends: Vec<i64> =
        parts.iter().map(|&(at, wait)| at.saturating_add(i64::try_from(wait).unwrap_or(i64::MAX))).collect();
    ends.sort_unstable();

    // Wait so far, summed over the ranks, at each arrival: who has arrived and not left adds up time.
    let mut shares_at: Vec<(i64, f64)> = Vec::with_capacity(arrivals.len());
    let (mut share, mut left) = (0.0, 0);
    let mut previous: Option<i64> = None;
    for (arrived, &at) in arrivals.iter().enumerate() {
        if let Some(from) = previous.filter(|&from| from < at) {
            let mut waited = 0_u128;
            let mut since = from;
            while let Some(&end) = ends.get(left).filter(|&&end| end < at) {
                let end = end.max(since);
                waited += (arrived - left) as u128 * u128::from(end.abs_diff(since));
                since = end;
                left += 1;
            }
            waited += arrived.saturating_sub(left) as u128 * u128::from(at.abs_diff(since));
            share += waited as f64 / (arrivals.len() - arrived) as f64;
        }
        if previous != Some(at) {
            shares_at.push((at, share));
        }
        previous = Some(at);
    }
    parts
        .iter()
        .map(|&(at, _)| {
            let place = shares_at.partition_point(|&(other, _)| other < at);
            shares_at.get(place).map_or(0.0, |&(_, share)| share)
        })
        .collect()
}

/// The lower median of the other values, for each of `values`; 0 for one that has no other.
pub(super) fn medians_of_others(values: &[i64]) -> Vec<i64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let Some(middle) = values.len().checked_sub(2).map(|others| others / 2) else {
        return vec![0; values.len()];
    };
    // Taking out one value moves those above it down by a place.
    let at = |place: usize| sorted.get(place).copied().unwrap_or(0);
    values.iter().map(|&value| if value <= at(middle) { at(middle + 1) } else { at(middle) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_rank_alone_pays_for_the_wait_after_the_second_to_last() {
        // 0..6 one waits for two; 6..10 two wait for one.
        assert_eq!(share_waits(&[(0, 10), (6, 4), (10, 0)]), [0.0, 3.0, 11.0]);
        assert_eq!(share_waits(&[(7, 0), (0, 7)]), [7.0, 0.0]);
    }

    #[test]
    fn ranks_that_come_equally_late_pay_equally() {
        assert_eq!(share_waits(&[(5, 0), (0, 5), (5, 0), (0, 5)]), [5.0, 0.0, 5.0, 0.0]);
    }

    #[test]
    fn a_rank_that_left_early_waited_only_until_then() {
        assert_eq!(share_waits(&[(0, 3), (2, 8), (10, 0)]), [0.0, 1.0, 10.0]);
        assert_eq!(share_waits(&[]), [0.0; 0]);
        assert_eq!(share_waits(&[(i64::MIN, 0), (i64::MAX, 0)]), [0.0, 0.0]);
    }

    #[test]
    fn medians_without_oneself() {
        assert_eq!(medians_of_others(&[3, 9]), [9, 3]);
        assert_eq!(medians_of_others(&[1, 2, 9]), [2, 1, 1]);
        assert_eq!(medians_of_others(&[4, 4, 4, 7]), [4, 4, 4, 4]);
        assert_eq!(medians_of_others(&[5]), [0]);
    }

    /// Instant by instant.
    fn slow_shares(parts: &[Waiting]) -> Vec<f64> {
        let mut shares = vec![0.0; parts.len()];
        for instant in 0..64 {
            let waiting = parts
                .iter()
                .filter(|&&(at, wait)| at <= instant && instant < at + i64::try_from(wait).unwrap())
                .count() as f64;
            let missing = parts.iter().filter(|part| part.0 > instant).count() as f64;
            for (share, part) in shares.iter_mut().zip(parts) {
                if part.0 > instant {
                    *share += waiting / missing;
                }
            }
        }
        shares
    }

    proptest! {
        #[test]
        fn shares_are_those_of_every_instant(parts in proptest::collection::vec((0..40_i64, 0..30_u64), 0..9)) {
            let last = parts.iter().map(|part| part.0).max().unwrap_or(0);
            let parts: Vec<Waiting> =
                parts.into_iter().map(|(at, wait)| (at, wait.min(last.abs_diff(at)))).collect();
            let shares = share_waits(&parts);
            for (share, slow) in shares.iter().zip(slow_shares(&parts)) {
                prop_assert!((share - slow).abs() < 1e-9, "{shares:?}");
            }
            let waits: u64 = parts.iter().map(|part| part.1).sum();
            prop_assert!((shares.iter().sum::<f64>() - waits as f64).abs() < 1e-9);
        }

        #[test]
        fn medians_are_those_of_sorted_others(values in proptest::collection::vec(0..9_i64, 2..9)) {
            for (index, median) in medians_of_others(&values).into_iter().enumerate() {
                let mut others = values.clone();
                others.remove(index);
                others.sort_unstable();
                prop_assert_eq!(median, others[(others.len() - 1) / 2]);
            }
        }
    }
}
