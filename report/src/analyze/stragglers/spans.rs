//! In which span a rank spends longer than the others.

use super::blocks::{Blocks, cell};
use crate::timeline::Sym;
use indexmap::IndexSet;
use std::collections::BTreeMap;

/// Spans of all ranks that are told apart; later ones are not looked at.
const MAX_SPANS: usize = 1 << 16;
/// Share of the lateness that a span has to explain.
const EXPLAINS: f64 = 0.5;
/// What counts as equally good an explanation as the best: spans may enclose each other.
const AS_GOOD: f64 = 0.8;

/// Compute time per rank, span and block of steps, in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct SpanTimes {
    /// Global rank, name and label of each column.
    columns: IndexSet<(u32, Sym, Option<Sym>)>,
    /// The columns of each rank's spans by name alone.
    by_name: BTreeMap<(u32, Sym), Vec<usize>>,
    blocks: Blocks,
}

/// A span in which a rank spends longer than the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SpanExcess {
    pub(super) name: Sym,
    /// If most of the excess has this label and others exist.
    pub(super) label: Option<Sym>,
    /// Time beyond the median of the others in the same steps, over the run.
    pub(super) excess_ns: f64,
}

impl SpanTimes {
    /// Adds compute of a span in the block `number`: a step.
    pub(crate) fn add(&mut self, rank: u32, name: Sym, label: Option<Sym>, number: i64, ns: u64) {
        let key = (rank, name, label);
        let column = match self.columns.get_index_of(&key) {
            Some(column) => column,
            None if self.columns.len() < MAX_SPANS => {
                let column = self.columns.insert_full(key).0;
                self.by_name.entry((rank, name)).or_default().push(column);
                column
            }
            None => return,
        };
        self.blocks.add(number, [(column, ns as f64)]);
    }

    /// The same times in `count` blocks of equal length.
    pub(super) fn stretched(self, count: u32) -> Self {
        Self { blocks: self.blocks.stretched(count), ..self }
    }

    /// The span in which `rank` spends longer than `others`, if it explains at least half of `late_ns`, the
    /// rank's lateness over the run.
    ///
    /// Spans may enclose each other (a layer in `forward`): of those that explain about as much as the best,
    /// the shortest is meant.
    pub(super) fn explain(&self, rank: u32, others: &[u32], late_ns: f64) -> Option<SpanExcess> {
        let mut found: Vec<(SpanExcess, f64)> = Vec::new();
        let of_rank = self.by_name.range((rank, Sym::FIRST)..=(rank, Sym::LAST));
        for (&(_, name), columns) in of_rank {
            let total = self.total_ns(columns);
            // What is shorter cannot be longer than the others' by that much.
            if total < EXPLAINS * late_ns {
                continue;
            }
            let named = |other| self.by_name.get(&(other, name)).map_or(&[][..], Vec::as_slice);
            let excess_ns =
                self.excess_ns(columns, &others.iter().map(|&other| named(other)).collect::<Vec<_>>());
            if excess_ns >= EXPLAINS * late_ns && excess_ns > 0.0 {
                let label = self.label(name, columns, others, excess_ns);
                found.push((SpanExcess { name, label, excess_ns }, total));
            }
        }
        let best = found.iter().map(|(span, _)| span.excess_ns).fold(0.0, f64::max);
        let as_good = found.into_iter().filter(|(span, _)| span.excess_ns >= AS_GOOD * best);
        as_good.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(span, _)| span)
    }

    /// The label under which most of the excess is; `None` if there is a single one.
    fn label(&self, name: Sym, columns: &[usize], others: &[u32], excess_ns: f64) -> Option<Sym> {
        if columns.len() < 2 {
            return None;
        }
        columns.iter().find_map(|column| {
            let label = self.columns.get_index(*column)?.2;
            let of_others: Vec<Option<usize>> =
                others.iter().map(|&other| self.columns.get_index_of(&(other, name, label))).collect();
            let of_others: Vec<&[usize]> = of_others.iter().map(Option::as_slice).collect();
            let excess = self.excess_ns(std::slice::from_ref(column), &of_others);
            if excess >= AS_GOOD * excess_ns { label } else { None }
        })
    }

    fn total_ns(&self, columns: &[usize]) -> f64 {
        self.blocks.rows().map(|(_, row)| time(row, columns)).sum()
    }

    /// Sum over the blocks of what `columns` have beyond the median of the others'.
    fn excess_ns(&self, columns: &[usize], others: &[&[usize]]) -> f64 {
        let mut times: Vec<f64> = Vec::with_capacity(others.len());
        let mut excess = 0.0;
        for (_, row) in self.blocks.rows() {
            times.clear();
            times.extend(others.iter().map(|columns| time(row, columns)));
            excess += time(row, columns) - lower_median(&mut times);
        }
        excess
    }
}

fn time(row: &[f64], columns: &[usize]) -> f64 {
    columns.iter().map(|&column| cell(row, column)).sum()
}

/// The lower median; 0 of nothing.
fn lower_median(values: &mut [f64]) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    *values.select_nth_unstable_by(last / 2, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Names;

    struct Spans {
        names: Names,
        times: SpanTimes,
    }

    impl Spans {
        fn new() -> Self {
            Self { names: Names::default(), times: SpanTimes::default() }
        }

        fn add(&mut self, rank: u32, span: &str, label: Option<&str>, step: i64, ns: u64) {
            let name = self.names.intern(span);
            let label = label.map(|label| self.names.intern(label));
            self.times.add(rank, name, label, step, ns);
        }

        /// Name and label of what explains `late_ns` of rank 1, and the excess.
        fn explain(&self, others: &[u32], late_ns: f64) -> Option<(&str, Option<&str>, f64)> {
            let found = self.times.explain(1, others, late_ns)?;
            Some((
                self.names.get(found.name),
                found.label.map(|label| self.names.get(label)),
                found.excess_ns,
            ))
        }
    }

    #[test]
    fn the_span_that_is_longer_than_that_of_the_others_is_named() {
        let mut spans = Spans::new();
        for step in 0..20 {
            for rank in 0..4 {
                spans.add(rank, "forward", None, step, if rank == 1 { 40 } else { 10 });
                spans.add(rank, "backward", None, step, 100);
            }
        }
        assert_eq!(spans.explain(&[0, 2, 3], 600.0), Some(("forward", None, 600.0)));
        assert_eq!(spans.explain(&[0, 2, 3], 1300.0), None, "half of the lateness is elsewhere");
    }

    #[test]
    fn a_span_that_only_the_late_rank_has_is_named() {
        let mut spans = Spans::new();
        for step in 0..20 {
            spans.add(0, "forward", None, step, 10);
            spans.add(1, "forward", None, step, 10);
            spans.add(1, "read_file", None, step, 30);
        }
        assert_eq!(spans.explain(&[0], 600.0), Some(("read_file", None, 600.0)));
    }

    #[test]
    fn a_label_is_named_where_the_excess_is_in_it_alone() {
        let mut spans = Spans::new();
        for step in 0..10 {
            for rank in 0..3 {
                for layer in ["0", "1", "2"] {
                    let slow = rank == 1 && layer == "2";
                    spans.add(rank, "backward", Some(layer), step, if slow { 50 } else { 20 });
                    spans.add(rank, "forward", Some(layer), step, if rank == 1 { 12 } else { 10 });
                }
            }
        }
        assert_eq!(spans.explain(&[0, 2], 360.0), Some(("backward", Some("2"), 300.0)), "one layer");
        let mut spans = Spans::new();
        for rank in 0..3 {
            for layer in ["0", "1", "2"] {
                spans.add(rank, "forward", Some(layer), 0, if rank == 1 { 20 } else { 10 });
            }
        }
        assert_eq!(spans.explain(&[0, 2], 30.0), Some(("forward", None, 30.0)), "all layers");
    }

    #[test]
    fn of_spans_that_enclose_each_other_the_inner_is_named() {
        let mut spans = Spans::new();
        for rank in 0..3 {
            let slow = if rank == 1 { 30 } else { 0 };
            spans.add(rank, "step", None, 0, 100 + slow);
            spans.add(rank, "forward", None, 0, 40 + slow);
            spans.add(rank, "attention", None, 0, 10 + slow);
        }
        assert_eq!(spans.explain(&[0, 2], 30.0), Some(("attention", None, 30.0)));
    }

    #[test]
    fn a_span_that_is_long_on_most_ranks_explains_nothing() {
        let mut spans = Spans::new();
        for rank in 0..5 {
            spans.add(rank, "forward", None, 0, if rank == 0 { 1 } else { 100 });
        }
        assert_eq!(spans.explain(&[0, 2, 3, 4], 50.0), None);
        assert_eq!(spans.explain(&[], 1000.0), None);
    }
}
