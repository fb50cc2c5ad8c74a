//! A bounded part of a process's rows, the same part on all ranks.

use super::{Sample, Thinning};
use crate::record::{Header, RecordError, RecordWriter, Row, RowKind, meta};
use crate::timeline::{Names, Sym};
use std::collections::BTreeMap;

/// Keeps whole steps of what it is shown: all of them at first, and whenever that becomes too much, half of
/// those kept.
///
/// Which steps are kept follows from their numbers alone, so that ranks which do not know of each other keep
/// the same ones. Of rows that belong to no step, the first are kept, at most a quarter of the sample.
///
/// ```
/// use commtrace_report::gather::Sampler;
/// use commtrace_report::record::{Row, RowKind};
///
/// let mut sampler = Sampler::new(100);
/// for step in 0..1000 {
///     let times = Row { start_ns: Some(step * 10), dur_ns: Some(5), ..Row::new(RowKind::Comm, "all_reduce") };
///     sampler.push(0, &Row { step: Some(step), ..times });
/// }
/// assert!(sampler.rows() <= 100 && sampler.rows() > 20);
/// ```
#[derive(Debug, Clone)]
pub struct Sampler {
    names: Names,
    rows: Vec<Kept>,
    /// Communicators, which are not thinned.
    about: Vec<Kept>,
    most: usize,
    thinning: Thinning,
    without_step: usize,
    left_out: u64,
}

/// More communicators than a rank of any job has.
const MAX_COMMUNICATORS: usize = 1024;

/// A row with its texts as symbols.
#[derive(Debug, Clone, Copy)]
struct Kept {
    rank: u32,
    /// The numbers; texts are empty.
    row: Row<'static>,
    name: Sym,
    label: Option<Sym>,
    comm: Option<Sym>,
    dtype: Option<Sym>,
    stream: Option<Sym>,
}

impl Sampler {
    /// A sampler that keeps at most `rows` rows (and what describes communicators).
    pub fn new(rows: usize) -> Self {
        Self {
            names: Names::default(),
            rows: Vec::new(),
            about: Vec::new(),
            most: rows.max(16),
            thinning: Thinning::NONE,
            without_step: 0,
            left_out: 0,
        }
    }

    /// Rows kept so far.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// One in how many steps is kept.
    pub fn stride(&self) -> u64 {
        self.thinning.stride()
    }

    /// Rows without a step that are not kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Shows a row of `rank`. Intervals and communicators are kept; other rows, and intervals without a time, are
    /// passed over.
    pub fn push(&mut self, rank: u32, row: &Row<'_>) {
        match row.kind {
            RowKind::Meta if row.name == meta::COMMUNICATOR => {
                if self.about.len() < MAX_COMMUNICATORS {
                    let kept = self.keep(rank, row);
                    self.about.push(kept);
                }
                return;
            }
            RowKind::Meta | RowKind::Open => return,
            RowKind::Compute | RowKind::Comm | RowKind::Step => {}
        }
        if row.start_ns.is_none() || row.dur_ns.is_none() {
            return;
        }
        match row.step {
            Some(step) if !self.thinning.keeps(step) => return,
            Some(_) => {}
            None if self.without_step >= self.most / 4 => {
                self.left_out += 1;
                return;
            }
            None => self.without_step += 1,
        }
        let kept = self.keep(rank, row);
        self.rows.push(kept);
        self.limit(self.most);
    }

    /// Thins until at most `rows` rows are left.
    pub fn limit(&mut self, rows: usize) {
        self.most = rows.max(16);
        // A single step may be too large, and steps that are kept whatever the stride are few.
        while self.rows.len() > self.most && self.thinning.stride() < 1 << 40 {
            self.thinning = self.thinning.doubled();
            let thinning = self.thinning;
            self.rows.retain(|kept| kept.row.step.is_none_or(|step| thinning.keeps(step)));
        }
        self.rows.truncate(self.most);
    }

    fn keep(&mut self, rank: u32, row: &Row<'_>) -> Kept {
        let names = &mut self.names;
        let mut sym = |text: Option<&str>| text.map(|text| names.intern(text));
        Kept {
            rank,
            label: sym(row.label),
            comm: sym(row.comm),
            dtype: sym(row.dtype),
            stream: sym(row.stream),
            name: names.intern(row.name),
            row: Row {
                name: "",
                label: None,
                comm: None,
                dtype: None,
                stream: None,
                untimed: None,
                // How bytes spread over ranks is summed up in figures, which are of all steps.
                phase: None,
                token_bytes: None,
                sent_bytes: None,
                received_bytes: None,
                ..*row
            },
        }
    }

    /// The sample of each rank, as record files in memory with `header` (but for the rank).
    ///
    /// # Errors
    ///
    /// [`RecordError::Encode`], if rows cannot be encoded.
    pub fn samples(&self, header: &Header) -> Result<Vec<Sample>, RecordError> {
        let mut by_rank: BTreeMap<u32, Vec<&Kept>> = BTreeMap::new();
        for kept in self.about.iter().chain(&self.rows) {
            by_rank.entry(kept.rank).or_default().push(kept);
        }
        let text = |sym: Option<Sym>| sym.map(|sym| self.names.get(sym));
        by_rank
            .into_iter()
            .map(|(rank, rows)| {
                let mut writer = RecordWriter::new(Vec::new(), &Header { rank, ..header.clone() })?;
                for kept in rows {
                    writer.push(&Row {
                        name: self.names.get(kept.name),
                        label: text(kept.label),
                        comm: text(kept.comm),
                        dtype: text(kept.dtype),
                        stream: text(kept.stream),
                        ..kept.row
                    });
                }
                writer.push(&Row::new(RowKind::Meta, meta::END));
                Ok(Sample { rank, stride: self.stride(), record: writer.finish()? })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(step: Option<i64>, at: i64) -> Row<'static> {
        Row { start_ns: Some(at), dur_ns: Some(1), step, ..Row::new(RowKind::Comm, "all_reduce") }
    }

    #[test]
    fn two_ranks_keep_the_same_steps_whatever_they_record_beside_them() {
        let steps = |extra: i64| {
            let mut sampler = Sampler::new(200);
            for step in 0..5000 {
                for at in 0..=extra {
                    sampler.push(0, &comm(Some(step), step * 100 + at));
                }
            }
            let kept: std::collections::BTreeSet<i64> =
                sampler.rows.iter().filter_map(|kept| kept.row.step).collect();
            (sampler.stride(), kept, sampler.rows())
        };
        let ((few, small, rows), (many, large, more)) = (steps(0), steps(2));
        assert!(rows <= 200 && more <= 200 && few < many, "{few} {many}");
        assert!(small.is_superset(&large) && !large.is_empty());
        // Whole steps.
        assert_eq!(more, large.len() * 3);
    }

    #[test]
    fn rows_without_a_step_are_bounded_and_counted() {
        let mut sampler = Sampler::new(100);
        for at in 0..1000 {
            sampler.push(0, &comm(None, at));
        }
        assert_eq!((sampler.rows(), sampler.left_out(), sampler.stride()), (25, 975, 1));
        for step in 0..1000 {
            sampler.push(0, &comm(Some(step), 1000 + step));
        }
        assert!(sampler.rows() <= 100 && sampler.stride() > 1);
        assert_eq!(sampler.rows.iter().filter(|kept| kept.row.step.is_none()).count(), 25);
    }

    #[test]
    fn a_single_step_without_end_does_not_fill_memory() {
        let mut sampler = Sampler::new(100);
        // Kept by every stride, as its hash is 0.
        for at in 0..10_000 {
            sampler.push(0, &comm(Some(0), at));
        }
        assert!(sampler.rows() <= 100, "{}", sampler.rows());
    }
}
