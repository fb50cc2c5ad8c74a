//! Arrivals on clocks that agree only so far.
//!
//! The difference of two arrivals on different clocks is known to within the uncertainty of both
//! ([`Alignment::between_ns`]). A rank is taken to have waited for another one only if that one came later
//! by more; for ranks of its own clock, by anything. Its wait is that for the latest of those it is known
//! to have waited for.

use super::Alignment;

/// A rank's part in a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timed {
    /// The clock that it was timed with.
    pub clock: u32,
    /// Start on the common clock.
    pub start_ns: i64,
    /// End on the common clock.
    pub end_ns: i64,
}

/// When the ranks of a collective were there, on the common clock.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// As measured.
    pub measured: Vec<Timed>,
    /// As far as the clocks can tell: see [`tell_apart`]. Who of those that start last came last is not known.
    pub known: Vec<Timed>,
    /// The uncertainty that applied.
    pub uncertainty_ns: u64,
}

impl Arrivals {
    /// The last arrival; `None` of no rank.
    pub fn last_ns(&self) -> Option<i64> {
        self.known.iter().map(|part| part.start_ns).max()
    }
}

/// Moves each part so that it starts as long before the last one as its rank is known to have waited; parts
/// that cannot be told from the last one start with it. Durations stay. Returns the uncertainty that
/// applied, at most: 0 on one clock.
pub(crate) fn tell_apart(parts: &mut [Timed], alignment: &Alignment) -> u64 {
    let Some(first) = parts.first().copied() else { return 0 };
    if parts.iter().all(|part| part.clock == first.clock) {
        return 0;
    }
    let last_ns = parts.iter().map(|part| part.start_ns).max().unwrap_or(first.start_ns);
    let clocks = Latest::of_clocks(parts, alignment);
    for part in parts.iter_mut() {
        let wait_ns = wait_ns(part, &clocks, alignment);
        let duration_ns = part.end_ns.saturating_sub(part.start_ns);
        part.start_ns = last_ns.saturating_sub(wait_ns);
        part.end_ns = part.start_ns.saturating_add(duration_ns);
    }
    let mut worst = [0_u64; 2];
    for clock in clocks.iter().flat_map(|part| &part.clocks) {
        let uncertainty = alignment.uncertainty_ns(clock.0);
        if uncertainty > worst[0] {
            worst = [uncertainty, worst[0]];
        } else {
            worst[1] = worst[1].max(uncertainty);
        }
    }
    worst[0].saturating_add(worst[1])
}

/// The last arrivals on the clocks of one connected part.
#[derive(Debug)]
struct Latest {
    part: u32,
    /// Clock and its last arrival, by clock.
    clocks: Vec<(u32, i64)>,
    /// For each clock, the last arrival less the clock's uncertainty, in descending order, and the last
    /// arrival among those up to here.
    certain: Vec<(i64, i64)>,
}

impl Latest {
    fn of_clocks(parts: &[Timed], alignment: &Alignment) -> Vec<Self> {
        let mut arrivals: Vec<(u32, u32, i64)> =
            parts.iter().map(|part| (alignment.part(part.clock), part.clock, part.start_ns)).collect();
        arrivals.sort_unstable();
        arrivals
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|group| {
                let of_clock = group.chunk_by(|a, b| a.1 == b.1);
                let clocks: Vec<(u32, i64)> =
                    of_clock.filter_map(<[_]>::last).map(|&(_, clock, last)| (clock, last)).collect();
                let mut certain: Vec<(i64, i64)> = clocks
                    .iter()
                    .map(|&(clock, last)| (less(last, alignment.uncertainty_ns(clock)), last))
                    .collect();
                certain.sort_unstable_by(|a, b| b.cmp(a));
                let mut latest = i64::MIN;
                for entry in &mut certain {
                    latest = latest.max(entry.1);
                    entry.1 = latest;
                }
                Some(Self { part: group.first()?.0, clocks, certain })
            })
            .collect()
    }
}

/// How long a part is known to have waited for the last one.
fn wait_ns(part: &Timed, latest: &[Latest], alignment: &Alignment) -> i64 {
    let number = alignment.part(part.clock);
    let Some(latest) = latest.iter().find(|latest| latest.part == number) else { return 0 };
    let own = latest.clocks.binary_search_by_key(&part.clock, |clock| clock.0);
    let own = own.ok().and_then(|at| latest.clocks.get(at)).map_or(part.start_ns, |clock| clock.1);
    // Later than this by more than the other clock's uncertainty is later for certain.
    let threshold = part.start_ns.saturating_add_unsigned(alignment.uncertainty_ns(part.clock));
    let count = latest.certain.partition_point(|entry| entry.0 > threshold);
    let others = count.checked_sub(1).and_then(|at| latest.certain.get(at)).map_or(i64::MIN, |entry| entry.1);
    own.max(others).saturating_sub(part.start_ns)
}

fn less(ns: i64, by: u64) -> i64 {
    ns.saturating_sub_unsigned(by)
}

#[cfg(test)]
mod tests {
    use super::super::{Aligner, ClockedPart};
    use super::*;
    use proptest::prelude::*;

    /// Four clocks whose uncertainty was made by collectives whose ends differ by up to `spread` ns.
    fn alignment(spread: i64) -> Alignment {
        let mut aligner = Aligner::new(vec![1; 4]);
        for at in 0..64 {
            let part = |clock: u32| ClockedPart {
                clock,
                start_ns: at * 1000,
                end_ns: at * 1000 + 500 + (at * (i64::from(clock) * 7 + 3)) % (spread + 1),
            };
            aligner.add(0, &[part(0), part(1), part(2), part(3)]);
        }
        aligner.finish()
    }

    /// The rule word by word.
    fn slow_wait_ns(parts: &[Timed], index: usize, alignment: &Alignment) -> i64 {
        let one = parts[index];
        let waited = parts.iter().map(|other| {
            let later = other.start_ns - one.start_ns;
            let known = alignment.between_ns(one.clock, other.clock).expect("one part") as i64;
            if later > known { later } else { 0 }
        });
        waited.max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn waits_are_those_that_the_clocks_can_tell(
            spread in 0..200_i64,
            parts in prop::collection::vec((0..4_u32, 0..1000_i64, 0..1000_i64), 1..12),
        ) {
            let alignment = alignment(spread);
            let before: Vec<Timed> = parts
                .into_iter()
                .map(|(clock, start_ns, duration)| Timed { clock, start_ns, end_ns: start_ns + duration })
                .collect();
            let mut after = before.clone();
            let uncertainty = tell_apart(&mut after, &alignment) as i64;
            let last = before.iter().map(|part| part.start_ns).max().unwrap_or(0);
            let several = before.iter().any(|part| part.clock != before[0].clock);
            for (index, (was, is)) in before.iter().zip(&after).enumerate() {
                prop_assert_eq!(is.end_ns - is.start_ns, was.end_ns - was.start_ns);
                prop_assert_eq!(last - is.start_ns, slow_wait_ns(&before, index, &alignment));
                // No claim beyond the measured one, and none that the clocks could not bear out.
                prop_assert!(is.start_ns >= was.start_ns);
                if several && is.start_ns != was.start_ns {
                    prop_assert!(last - was.start_ns <= (last - is.start_ns) + uncertainty);
                }
            }
        }
    }

    #[test]
    fn on_one_clock_nothing_moves() {
        let part = |start_ns| Timed { clock: 2, start_ns, end_ns: 100 };
        let mut parts = [part(3), part(1), part(2)];
        assert_eq!(tell_apart(&mut parts, &alignment(50)), 0);
        assert_eq!(parts, [part(3), part(1), part(2)]);
    }

    #[test]
    fn of_clocks_that_nothing_ties_together_no_wait_is_known() {
        let mut parts = [
            Timed { clock: 0, start_ns: 0, end_ns: 10 },
            Timed { clock: 1, start_ns: 9000, end_ns: 9010 },
            Timed { clock: 0, start_ns: 4, end_ns: 10 },
        ];
        tell_apart(&mut parts, &Aligner::new(vec![1, 1]).finish());
        let starts: Vec<i64> = parts.iter().map(|part| part.start_ns).collect();
        // Only the second rank on the first clock is known to have been waited for.
        assert_eq!(starts, [8996, 9000, 9000]);
    }
}
