//! One collective: whose own doing each rank's lateness was.

use super::share::{medians_of_others, share_waits};

/// One rank's part, as far as stragglers are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The track's place among those of the analysis.
    pub(crate) track: u32,
    /// Arrival, on the common clock.
    pub(crate) start_ns: i64,
    /// From the arrival to the last rank's, but not longer than the rank was in the call.
    pub(crate) wait_ns: u64,
    /// The part of the wait without compute beside it.
    pub(crate) exposed_wait_ns: u64,
    /// Time until the arrival that the track spent in exposed communication, and all other time; each counted
    /// from any instant.
    pub(crate) away_ns: i64,
    pub(crate) busy_ns: i64,
}

/// Where a track stood when a collective ended on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// The track's place among those of the analysis.
    pub(crate) track: u32,
    /// The end, on the common clock.
    pub(crate) end_ns: i64,
    /// As in [`Part`], until the end.
    pub(crate) away_ns: i64,
    pub(crate) busy_ns: i64,
    /// Whether the track computed nothing as the collective ended: it may have waited for this end, and was
    /// not ahead with its work.
    pub(crate) blocked: bool,
}

/// What one rank's lateness cost the others, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Blame {
    /// Wait of others that its own time explains.
    pub(super) own_ns: f64,
    /// Wait of others that it passes on: it was late because it had waited in other communication.
    pub(super) inherited_ns: f64,
    /// How much later than the median of the others it came by its own time.
    pub(super) late_ns: f64,
}

/// Shares out the waits of a collective.
///
/// `since` are the ends of an earlier collective of the same communicator, from which all ranks went on
/// together; in the order of `parts`. From there to the arrival, a rank was either in exposed communication or spent
/// time of its own (compute, input, whatever the host did). A rank's share of the waits is divided into its
/// own doing and what it inherited like the excess of either over the median of the others:
///
/// ```text
/// own       = max(0, own time − median of the others' own time)
/// inherited = max(0, time in exposed communication − median of the others')
/// ```
///
/// So a rank that was held up by a neighbour in a tensor-parallel group is not blamed for coming late to its
/// data-parallel group. The division is that of delays and propagated delays (D. Böhme, M. Geimer,
/// L. Arnold, F. Voigtlaender, F. Wolf, Identifying the root causes of wait states in large-scale parallel
/// applications, ACM Transactions on Parallel Computing 3, 2016), by time and not by activity.
pub(super) fn blames(parts: &[Part], since: Option<&[End]>) -> Vec<Blame> {
    let waits: Vec<_> = parts.iter().map(|part| (part.start_ns, part.wait_ns)).collect();
    let shares = share_waits(&waits);
    let Some(since) = since.filter(|since| since.len() == parts.len()) else {
        // Nothing is known of what came before.
        return shares
            .into_iter()
            .map(|share| Blame { own_ns: share, inherited_ns: 0.0, late_ns: 0.0 })
            .collect();
    };
    let since = || parts.iter().zip(since);
    let own: Vec<i64> = since().map(|(part, end)| part.busy_ns.saturating_sub(end.busy_ns)).collect();
    let away: Vec<i64> = since().map(|(part, end)| part.away_ns.saturating_sub(end.away_ns)).collect();
    let arrivals: Vec<i64> = parts.iter().map(|part| part.start_ns).collect();
    let excess = |values: &[i64]| -> Vec<f64> {
        let medians = medians_of_others(values);
        values.iter().zip(medians).map(|(value, median)| value.saturating_sub(median).max(0) as f64).collect()
    };
    let (own, away, late) = (excess(&own), excess(&away), excess(&arrivals));
    shares
        .into_iter()
        .zip(own.into_iter().zip(away).zip(late))
        .map(|(share, ((own, away), late))| {
            let own_share = if own + away > 0.0 { own / (own + away) } else { 1.0 };
            Blame {
                own_ns: share * own_share,
                inherited_ns: share * (1.0 - own_share),
                late_ns: own.min(late),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(track: u32, start_ns: i64, last_ns: i64, busy_ns: i64) -> Part {
        let wait_ns = last_ns.abs_diff(start_ns);
        Part { track, start_ns, wait_ns, exposed_wait_ns: wait_ns, away_ns: start_ns - busy_ns, busy_ns }
    }

    fn end(track: u32) -> End {
        End { track, end_ns: 0, away_ns: 0, busy_ns: 0, blocked: true }
    }

    #[test]
    fn a_rank_that_computed_longer_is_to_blame() {
        let parts = [part(0, 10, 40, 10), part(1, 40, 40, 40), part(2, 10, 40, 10)];
        let blames = blames(&parts, Some(&[end(0), end(1), end(2)]));
        assert_eq!(blames[1], Blame { own_ns: 60.0, inherited_ns: 0.0, late_ns: 30.0 });
        assert_eq!(blames[0], Blame::default());
    }

    #[test]
    fn a_rank_that_was_held_up_elsewhere_passes_the_blame_on() {
        // Rank 1 spent 30 of its 40 waiting in another communicator.
        let parts = [part(0, 10, 40, 10), part(1, 40, 40, 10)];
        let blames = blames(&parts, Some(&[end(0), end(1)]));
        assert_eq!(blames[1], Blame { own_ns: 0.0, inherited_ns: 30.0, late_ns: 0.0 });
    }

    #[test]
    fn half_and_half() {
        let parts = [part(0, 10, 40, 10), part(1, 40, 40, 25)];
        let blames = blames(&parts, Some(&[end(0), end(1)]));
        assert_eq!(blames[1], Blame { own_ns: 15.0, inherited_ns: 15.0, late_ns: 15.0 });
    }

    #[test]
    fn one_early_rank_makes_no_straggler_of_the_others() {
        let parts = [part(0, 0, 20, 0), part(1, 20, 20, 20), part(2, 20, 20, 20), part(3, 20, 20, 20)];
        let blames = blames(&parts, Some(&[end(0), end(1), end(2), end(3)]));
        assert!(blames.iter().all(|blame| blame.late_ns == 0.0), "{blames:?}");
        assert!((blames.iter().map(|blame| blame.own_ns).sum::<f64>() - 20.0).abs() < 1e-9);
    }

    #[test]
    fn without_a_common_past_lateness_is_not_judged() {
        let parts = [part(0, 0, 20, 0), part(1, 20, 20, 20)];
        assert_eq!(blames(&parts, None)[1], Blame { own_ns: 20.0, inherited_ns: 0.0, late_ns: 0.0 });
    }
}
