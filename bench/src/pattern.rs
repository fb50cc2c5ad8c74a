//! Inputs whose results are known exactly in every element type.

use crate::collective::Collective;
use crate::element::Number;

/// Sums stay at or below this, so that they are exact in every type (`bfloat16` is exact up to 256, `uint8` up to
/// 255), in whatever order they are added.
const MOST: u32 = 250;

/// What result buffers hold before a call: no input and no sum is that large, so that an element that a call does not
/// write is noticed.
const UNWRITTEN: u8 = 255;

/// Values repeat after this many elements: a prime, so that no power of two is a multiple of it and data that comes
/// from the wrong place is not the same by chance.
const PERIOD: usize = 16_381;

/// Inputs and expected results of one call.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    ranks: u32,
    /// Makes the values of one call differ from those of another, so that results of an earlier call are noticed.
    round: u32,
}

impl Pattern {
    /// For a call of `ranks` ranks.
    pub fn new(ranks: u32, round: u32) -> Self {
        Self { ranks: ranks.max(1), round }
    }

    /// What `rank` puts in at `index`.
    fn value(self, rank: u32, index: usize) -> u8 {
        let place = (index % PERIOD) as u32;
        // Of more ranks than the largest sum only some put in other than 0, in turns.
        if (rank.wrapping_add(place)) % self.ranks >= MOST {
            return 0;
        }
        let choices = MOST / self.ranks.min(MOST) + 1;
        let mixed = place
            .wrapping_add(rank.wrapping_mul(0x9E37_79B9))
            .wrapping_add(self.round.wrapping_mul(0x85EB_CA6B))
            .wrapping_mul(0xC2B2_AE35);
        ((mixed >> 15) % choices) as u8
    }

    /// One period of what `rank` puts in.
    fn period<T: Number>(self, rank: u32) -> Vec<T> {
        (0..PERIOD).map(|index| T::from_u8(self.value(rank, index))).collect()
    }

    /// One period of the sums over all ranks.
    fn period_of_sums<T: Number>(self) -> Vec<T> {
        let mut sums = vec![0_u8; PERIOD];
        for rank in 0..self.ranks {
            for (index, sum) in sums.iter_mut().enumerate() {
                *sum += self.value(rank, index);
            }
        }
        sums.into_iter().map(T::from_u8).collect()
    }

    /// What `rank` puts in.
    pub fn input<T: Number>(self, rank: u32, elements: usize) -> Vec<T> {
        repeated(&self.period(rank), 0, elements)
    }

    /// What is in a result buffer before the call.
    pub fn unwritten<T: Number>(elements: usize) -> Vec<T> {
        vec![T::from_u8(UNWRITTEN); elements]
    }

    /// What `rank` gets of `collective`, where every rank puts in `payload` elements. Broadcasts are from rank 0.
    pub fn expected<T: Number>(self, collective: Collective, rank: u32, payload: usize) -> Vec<T> {
        let part = payload / self.ranks as usize;
        match collective {
            Collective::AllReduce => repeated(&self.period_of_sums(), 0, payload),
            Collective::ReduceScatterAllGather => {
                repeated(&self.period_of_sums(), 0, part * self.ranks as usize)
            }
            Collective::ReduceScatter => repeated(&self.period_of_sums(), rank as usize * part, part),
            Collective::Broadcast => self.input(0, payload),
            Collective::AllGather => {
                (0..self.ranks).flat_map(|from| self.input::<T>(from, payload)).collect()
            }
            Collective::AllToAll => (0..self.ranks)
                .flat_map(|from| repeated(&self.period::<T>(from), rank as usize * part, part))
                .collect(),
        }
    }
}

/// `elements` elements from `start` on of `period` over and over.
fn repeated<T: Copy>(period: &[T], start: usize, elements: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(elements);
    let mut at = start % PERIOD;
    while all.len() < elements {
        let Some(rest) = period.get(at..).filter(|rest| !rest.is_empty()) else { break };
        let take = rest.len().min(elements - all.len());
        all.extend_from_slice(rest.get(..take).unwrap_or(rest));
        at = 0;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    /// Element by element, as the collectives are defined.
    fn slow(pattern: Pattern, collective: Collective, rank: u32, payload: usize) -> Vec<i64> {
        let ranks = pattern.ranks as usize;
        let part = payload / ranks;
        let put_in = |rank: usize, at: usize| i64::from(pattern.value(rank as u32, at));
        let sum = |at: usize| (0..ranks).map(|rank| put_in(rank, at)).sum::<i64>();
        let rank = rank as usize;
        match collective {
            Collective::AllReduce | Collective::ReduceScatterAllGather => (0..payload).map(sum).collect(),
            Collective::ReduceScatter => (0..part).map(|at| sum(rank * part + at)).collect(),
            Collective::Broadcast => (0..payload).map(|at| put_in(0, at)).collect(),
            Collective::AllGather => {
                (0..payload * ranks).map(|at| put_in(at / payload, at % payload)).collect()
            }
            Collective::AllToAll => {
                (0..payload).map(|at| put_in(at / part, rank * part + at % part)).collect()
            }
        }
    }

    #[test]
    fn expected_results_are_those_of_the_definitions() {
        for (ranks, payload) in [(1, 5), (2, 40_000), (3, 600), (7, 7 * 3000), (300, 600)] {
            for collective in Collective::ALL {
                for rank in [0, ranks / 2, ranks - 1] {
                    let pattern = Pattern::new(ranks, 3);
                    let fast: Vec<i64> = pattern.expected(collective, rank, payload);
                    assert_eq!(fast, slow(pattern, collective, rank, payload), "{collective}, {ranks} ranks");
                }
            }
        }
    }

    #[test]
    fn sums_are_exact_and_no_value_is_that_of_an_unwritten_element() {
        for ranks in [1, 2, 3, 16, 250, 251, 1000] {
            let pattern = Pattern::new(ranks, 1);
            let sums: Vec<i64> = pattern.expected(Collective::AllReduce, 0, 20_000);
            assert!(sums.iter().all(|&sum| (0..=i64::from(MOST)).contains(&sum)), "{ranks} ranks");
            let rounded: Vec<bf16> = pattern.expected(Collective::AllReduce, 0, 20_000);
            assert!(sums.iter().zip(rounded).all(|(&sum, rounded)| rounded.to_f64() == sum as f64));
        }
    }

    #[test]
    fn rounds_and_ranks_differ_in_most_elements() {
        let input = |rank, round| Pattern::new(2, round).input::<u8>(rank, 10_000);
        let equal = |a: Vec<u8>, b: Vec<u8>| a.iter().zip(b).filter(|(a, b)| *a == b).count();
        assert!(equal(input(0, 0), input(0, 24)) < 1000, "another round");
        assert!(equal(input(0, 0), input(1, 0)) < 1000, "another rank");
    }
}
