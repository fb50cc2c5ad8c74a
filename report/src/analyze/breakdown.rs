//! The figures of one op by communicator, size and step, in bounded memory.

use super::tally::{Measured, Tally};
use super::{CommunicatorWaits, SizeWaits, StepWaits};
use indexmap::IndexMap;
use std::collections::{BTreeMap, HashMap};

/// Communicators and steps of one op that have figures of their own; further ones are only in the op's.
const MOST_COMMUNICATORS: usize = 4096;
const MOST_STEPS: usize = 10_000;

#[derive(Debug, Clone, Default)]
pub(super) struct Breakdown {
    communicators: IndexMap<String, (u32, Part)>,
    /// By the number of binary digits of the payload; unknown payloads first.
    sizes: BTreeMap<Option<u32>, Part>,
    steps: BTreeMap<i64, Tally>,
    left_out: u64,
}

/// Sums, and waits per member for the imbalance.
#[derive(Debug, Clone, Default)]
struct Part {
    tally: Tally,
    waits_ns: HashMap<usize, f64>,
}

impl Part {
    fn add(&mut self, one: &Measured, waits: &[(usize, u64)]) {
        self.tally.add(one);
        for &(member, wait_ns) in waits {
            *self.waits_ns.entry(member).or_default() += wait_ns as f64;
        }
    }

    /// (largest − smallest sum of waits) / sum of the longest durations, 0 to 1.
    fn imbalance(&self) -> f64 {
        let waits = || self.waits_ns.values().copied();
        let difference = waits().fold(f64::NEG_INFINITY, f64::max) - waits().fold(f64::INFINITY, f64::min);
        let longest = self.tally.longest_ns as f64;
        if longest > 0.0 && difference > 0.0 { (difference / longest).min(1.0) } else { 0.0 }
    }
}

impl Breakdown {
    /// Adds a collective of the communicator `comm` with `size` ranks; `waits` are its members' places
    /// and waits.
    pub(super) fn add(
        &mut self,
        (comm, size): (&str, u32),
        step: Option<i64>,
        one: &Measured,
        waits: &[(usize, u64)],
    ) {
        let mut left_out = false;
        let room = self.communicators.len() < MOST_COMMUNICATORS;
        match self.communicators.get_mut(comm) {
            Some((_, part)) => part.add(one, waits),
            None if room => {
                let (_, part) = self.communicators.entry(comm.to_owned()).or_insert((size, Part::default()));
                part.add(one, waits);
            }
            None => left_out = true,
        }
        self.sizes
            .entry(one.bytes.map(|bytes| u64::BITS - bytes.leading_zeros()))
            .or_default()
            .add(one, waits);
        if let Some(step) = step {
            if self.steps.len() < MOST_STEPS || self.steps.contains_key(&step) {
                self.steps.entry(step).or_default().add(one);
            } else {
                left_out = true;
            }
        }
        self.left_out += u64::from(left_out);
    }

    /// Collectives that a communicator or a step of their own would have had.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Those with the most exposed time first.
    pub(super) fn by_communicator(&self, partial: bool) -> Vec<CommunicatorWaits> {
        let mut all: Vec<CommunicatorWaits> = self
            .communicators
            .iter()
            .map(|(comm, (size, part))| CommunicatorWaits {
                comm: comm.clone(),
                comm_size: *size,
                rank_imbalance_ratio: part.imbalance(),
                figures: part.tally.figures(partial),
            })
            .collect();
        let cost = |one: &CommunicatorWaits| one.figures.exposed_wait_ms + one.figures.exposed_transfer_ms;
        all.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
        all
    }

    pub(super) fn by_size(&self, partial: bool) -> Vec<SizeWaits> {
        self.sizes
            .iter()
            .map(|(&digits, part)| {
                let (from_bytes, below_bytes) = digits.map_or((None, None), bounds);
                SizeWaits {
                    size: name(digits),
                    from_bytes,
                    below_bytes,
                    rank_imbalance_ratio: part.imbalance(),
                    figures: part.tally.figures(partial),
                }
            })
            .collect()
    }

    /// `imbalance` gives that of a step, where it was kept.
    pub(super) fn by_step(&self, partial: bool, imbalance: impl Fn(i64) -> Option<f64>) -> Vec<StepWaits> {
        self.steps
            .iter()
            .map(|(&step, tally)| StepWaits {
                step,
                rank_imbalance_ratio: imbalance(step),
                figures: tally.figures(partial),
            })
            .collect()
    }
}

/// The sizes with this many binary digits: the smallest, and the one after the largest.
fn bounds(digits: u32) -> (Option<u64>, Option<u64>) {
    match digits.checked_sub(1) {
        None => (Some(0), Some(1)),
        Some(exponent) => (1_u64.checked_shl(exponent), 1_u64.checked_shl(digits)),
    }
}

/// `1 MiB-2 MiB`.
fn name(digits: Option<u32>) -> String {
    match digits {
        None => "unknown".to_owned(),
        Some(0) => "0 B".to_owned(),
        Some(digits) => format!("{}-{}", power(digits - 1), power(digits)),
    }
}

/// 2 to the power of `exponent` bytes.
fn power(exponent: u32) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = UNITS.get(exponent as usize / 10).copied().unwrap_or_default();
    format!("{} {unit}", 1_u32 << (exponent % 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_by_the_powers_of_two_around_them() {
        let name_of = |bytes: u64| {
            let digits = u64::BITS - bytes.leading_zeros();
            let (from, below) = bounds(digits);
            assert!(from.is_some_and(|from| from <= bytes) && below.is_none_or(|below| bytes < below));
            name(Some(digits))
        };
        assert_eq!(name_of(0), "0 B");
        assert_eq!(name_of(1), "1 B-2 B");
        assert_eq!(name_of(1023), "512 B-1 KiB");
        assert_eq!(name_of(1 << 20), "1 MiB-2 MiB");
        assert_eq!(name_of((1 << 21) - 1), "1 MiB-2 MiB");
        assert_eq!(name_of(u64::MAX), "8 EiB-16 EiB");
        assert_eq!(name(None), "unknown");
    }
}
