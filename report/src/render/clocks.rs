//! How ranks' clocks relate, in words and rows: ranks with the same clock stand together.

use crate::analyze::{CrossRank, RankAlignment};
use crate::units;
use std::collections::BTreeSet;

/// Columns of [`rows`].
pub(super) const COLUMNS: [&str; 4] = ["ranks", "offset", "drift", "uncertainty"];

/// Whether clocks had to be related: not where all ranks share one.
pub(super) fn differ(across: &CrossRank) -> bool {
    let same =
        |one: &RankAlignment| one.aligned && one.uncertainty_ms == Some(0.0) && one.offset_ms == Some(0.0);
    !across.alignment.iter().all(same)
}

/// What is to be known of the clocks, in a sentence or two.
pub(super) fn sentence(across: &CrossRank) -> String {
    if !differ(across) {
        return "One clock: all times are comparable as they are.".to_owned();
    }
    let clocks = clocks(&across.alignment);
    if clocks < 2 {
        return "No clock could be aligned with another: their ranks have no matched collective in common. \
                Nothing is said of waits between them."
            .to_owned();
    }
    let worst = across.alignment.iter().filter_map(|one| one.uncertainty_ms).fold(0.0, f64::max);
    let mut text = format!(
        "{clocks} clocks were aligned by the ends of collectives, to within {}. Waits that this leaves open \
         are not claimed.",
        units::ms(worst)
    );
    let apart = across.alignment.iter().filter(|one| !one.aligned).count();
    if apart > 0 {
        text += &format!(
            " {apart} of {} ranks share no collective with the others and are not aligned with them.",
            across.alignment.len()
        );
    }
    text
}

/// Number of clocks that are aligned: ranks with the same figures share one.
fn clocks(alignment: &[RankAlignment]) -> usize {
    let figures = |one: &RankAlignment| {
        let bits = |figure: Option<f64>| figure.map(f64::to_bits);
        (bits(one.offset_ms), bits(one.drift_ppm), bits(one.uncertainty_ms))
    };
    let aligned = alignment.iter().filter(|one| one.aligned);
    aligned.map(figures).collect::<BTreeSet<_>>().len()
}

/// One row per clock: its ranks, offset, drift and uncertainty.
pub(super) fn rows(across: &CrossRank) -> Vec<Vec<String>> {
    groups(&across.alignment)
        .into_iter()
        .map(|((first, last), clock)| {
            let ranks = if first == last { first.to_string() } else { format!("{first}-{last}") };
            if !clock.aligned {
                return vec![ranks, "not aligned".to_owned(), String::new(), String::new()];
            }
            vec![
                ranks,
                units::known(clock.offset_ms, |offset| format!("{offset:.6} ms")),
                units::known(clock.drift_ppm, |drift| format!("{drift:.3} ppm")),
                units::known(clock.uncertainty_ms, units::ms),
            ]
        })
        .collect()
}

/// Consecutive ranks with the same figures, which are those that share a clock.
fn groups(alignment: &[RankAlignment]) -> Vec<((u32, u32), &RankAlignment)> {
    let alike = |a: &RankAlignment, b: &RankAlignment| RankAlignment { rank: b.rank, ..*a } == *b;
    let mut groups = Vec::new();
    for group in alignment.chunk_by(|a, b| a.rank.checked_add(1) == Some(b.rank) && alike(a, b)) {
        if let (Some(first), Some(last)) = (group.first(), group.last()) {
            groups.push(((first.rank, last.rank), first));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aligned(rank: u32, offset_ms: f64) -> RankAlignment {
        let uncertainty_ms = Some(if offset_ms == 0.0 { 0.0 } else { 0.004 });
        RankAlignment { offset_ms: Some(offset_ms), uncertainty_ms, ..RankAlignment::reference(rank) }
    }

    #[test]
    fn ranks_of_a_host_stand_in_one_row() {
        let apart =
            RankAlignment { rank: 9, offset_ms: None, drift_ppm: None, uncertainty_ms: None, aligned: false };
        let alignment = vec![
            aligned(0, 0.0),
            aligned(1, 0.0),
            aligned(2, -5.25),
            aligned(3, -5.25),
            aligned(5, -5.25),
            apart,
        ];
        let across = CrossRank { alignment, ..CrossRank::default() };
        assert!(differ(&across));
        let rows = rows(&across);
        let ranks: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(ranks, ["0-1", "2-3", "5", "9"]);
        assert_eq!(rows[1], ["2-3", "-5.250000 ms", "0.000 ppm", "4.00 us"]);
        assert_eq!(rows[3][1], "not aligned");
        let sentence = sentence(&across);
        assert!(sentence.starts_with("2 clocks were aligned"), "{sentence}");
        assert!(sentence.contains("within 4.00 us") && sentence.contains("1 of 6 ranks"), "{sentence}");
    }

    #[test]
    fn ranks_without_a_common_collective_are_not_called_aligned() {
        let apart =
            RankAlignment { rank: 1, offset_ms: None, drift_ppm: None, uncertainty_ms: None, aligned: false };
        let across = CrossRank { alignment: vec![aligned(0, 0.0), apart], ..CrossRank::default() };
        assert!(sentence(&across).starts_with("No clock could be aligned"));
    }

    #[test]
    fn one_clock_is_said_to_be_one() {
        let across = CrossRank { alignment: vec![aligned(0, 0.0), aligned(7, 0.0)], ..CrossRank::default() };
        assert!(!differ(&across));
        assert!(sentence(&across).starts_with("One clock"));
    }
}
