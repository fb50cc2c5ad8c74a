//! From the ranks' times to a row of the record.

use crate::event::Subject;
use crate::quantile::quantile;
use crate::record::Row;

/// The row of `subject`, whose elements are of `element_bytes` bytes, from `times_ms[rank][repeat]`.
///
/// A repeat takes as long as on the rank where it took longest; median and P95 are of these maxima, and not of any one
/// rank. `None` without ranks or repeats, if the ranks differ in their number of repeats, or if a time is not finite.
pub fn row(subject: Subject, element_bytes: u64, times_ms: &[Vec<f64>]) -> Option<Row> {
    let repeats = times_ms.first()?.len();
    if times_ms.iter().any(|times| times.len() != repeats) {
        return None;
    }
    let max_rank_ms: Vec<f64> = (0..repeats)
        .map(|repeat| {
            // A time that is not a number must not be lost among the others.
            let of_ranks = times_ms.iter().filter_map(|times| times.get(repeat).copied());
            of_ranks.reduce(|a, b| if a >= b || a.is_nan() { a } else { b })
        })
        .collect::<Option<_>>()?;
    let median = quantile(&max_rank_ms, 0.5)?;
    let ranks = u32::try_from(times_ms.len()).ok()?;
    let Subject { collective, schedule, payload_elements } = subject;
    let payload_bytes = payload_elements * element_bytes;
    let size_bytes = collective.size_elements(payload_elements, ranks) * element_bytes;
    // Bytes per millisecond are 10^-6 of 10^9 bytes per second.
    let gbps = |bytes: u64| (median > 0.0).then(|| bytes as f64 / median / 1e6);
    let algbw_gbps = if schedule.is_none() { gbps(size_bytes) } else { None };
    Some(Row {
        collective: collective.as_str().to_owned(),
        schedule,
        payload_elements,
        payload_bytes_per_rank: payload_bytes,
        size_bytes,
        median_max_rank_ms: median,
        p95_max_rank_ms: quantile(&max_rank_ms, 0.95)?,
        min_max_rank_ms: quantile(&max_rank_ms, 0.0)?,
        effective_payload_gbps: gbps(payload_bytes),
        algbw_gbps,
        busbw_gbps: algbw_gbps.zip(collective.busbw_factor(ranks)).map(|(algbw, factor)| algbw * factor),
        rank_mean_ms: times_ms.iter().map(|times| times.iter().sum::<f64>() / repeats as f64).collect(),
        rank_p95_ms: times_ms.iter().map(|times| quantile(times, 0.95)).collect::<Option<_>>()?,
        max_rank_ms,
        ..Row::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use proptest::prelude::*;

    fn subject(collective: Collective, payload_elements: u64) -> Subject {
        Subject { collective, schedule: None, payload_elements }
    }

    /// Each rank is fast in every other repeat, so the slowest rank's time is 8 or 10 in all of them, though no rank's
    /// own median is above 6.
    #[test]
    fn median_and_p95_are_of_the_slowest_rank_in_each_repeat() {
        let times = [vec![2.0, 8.0, 2.0, 10.0, 4.0], vec![8.0, 1.0, 8.0, 3.0, 8.0]];
        let row = row(subject(Collective::AllReduce, 1_000_000), 4, &times).unwrap();
        assert_eq!(row.max_rank_ms, [8.0, 8.0, 8.0, 10.0, 8.0]);
        assert_eq!(row.median_max_rank_ms, 8.0);
        // numpy.quantile([8, 8, 8, 10, 8], 0.95): 0.8 of the way from the fourth to the fifth in order.
        assert!((row.p95_max_rank_ms - 9.6).abs() < 1e-12);
        assert_eq!(row.min_max_rank_ms, 8.0);
        assert_eq!(row.rank_mean_ms, [5.2, 5.6]);
        assert_eq!(row.rank_p95_ms.len(), 2);
        // 4,000,000 bytes in 8 ms.
        assert_eq!(row.payload_bytes_per_rank, 4_000_000);
        assert_eq!(row.effective_payload_gbps, Some(0.5));
        assert_eq!((row.algbw_gbps, row.busbw_gbps), (Some(0.5), Some(0.5)), "the factor of 2 ranks is 1");
    }

    /// What comes out of an all_gather of 4 ranks is 4 times what each puts in.
    #[test]
    fn the_size_of_an_all_gather_is_what_comes_out() {
        let row =
            row(subject(Collective::AllGather, 1_000_000), 2, &[vec![1.0], vec![1.0], vec![1.0], vec![1.0]])
                .unwrap();
        assert_eq!((row.payload_bytes_per_rank, row.size_bytes), (2_000_000, 8_000_000));
        assert_eq!(row.effective_payload_gbps, Some(2.0));
        assert_eq!((row.algbw_gbps, row.busbw_gbps), (Some(8.0), Some(6.0)));
    }

    #[test]
    fn what_gives_no_row() {
        let subject = subject(Collective::Broadcast, 1);
        assert_eq!(row(subject, 4, &[]), None);
        assert_eq!(row(subject, 4, &[vec![]]), None);
        assert_eq!(row(subject, 4, &[vec![1.0], vec![1.0, 2.0]]), None, "a rank stopped early");
        assert_eq!(row(subject, 4, &[vec![f64::NAN], vec![1.0]]), None);
        assert_eq!(row(subject, 4, &[vec![1.0], vec![f64::NAN]]), None);
        let instant = row(subject, 4, &[vec![0.0]]).unwrap();
        assert_eq!(
            (instant.effective_payload_gbps, instant.busbw_gbps),
            (None, None),
            "unknown, not endless"
        );
    }

    proptest! {
        #[test]
        fn as_computed_slowly(times in (1_usize..6, 1_usize..30).prop_flat_map(|(ranks, repeats)| {
            prop::collection::vec(prop::collection::vec(0.001_f64..1e3, repeats), ranks)
        })) {
            let row = row(subject(Collective::AllToAll, 12), 8, &times).unwrap();
            let mut maxima = Vec::new();
            for repeat in 0..times[0].len() {
                let mut longest = 0.0;
                for rank in &times {
                    if rank[repeat] > longest { longest = rank[repeat]; }
                }
                maxima.push(longest);
            }
            prop_assert_eq!(&row.max_rank_ms, &maxima);
            // At least half of the repeats are on either side of the median.
            let below = maxima.iter().filter(|&&time| time <= row.median_max_rank_ms).count();
            let above = maxima.iter().filter(|&&time| time >= row.median_max_rank_ms).count();
            prop_assert!(2 * below >= maxima.len() && 2 * above >= maxima.len());
            prop_assert!(row.min_max_rank_ms <= row.median_max_rank_ms);
            prop_assert!(row.median_max_rank_ms <= row.p95_max_rank_ms);
        }
    }
}
