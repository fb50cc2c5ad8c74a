//! The processes that recorded the ranks of a run: which of them belong to one start of the job.
//!
//! A job that is restarted under its run id has several processes of a rank, and each counts its
//! communicators' collectives from 0. What one start's ranks did must not be matched with another's.

use crate::timeline::ProcessRows;
use std::collections::BTreeSet;

/// The processes of all ranks, in the order of their records.
#[derive(Debug, Default)]
pub(super) struct Processes {
    all: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    rank: u32,
    start_unix_ns: i64,
    end_unix_ns: i64,
    /// Rows of communication that its rank's devices had when it began.
    rows: Vec<(Option<u32>, usize)>,
    /// The same over all devices.
    noted: usize,
    generation: u32,
}

impl Processes {
    /// A process of `rank` begins to be read; its rank's devices have `rows` of communication,
    /// `noted` together.
    pub fn begin(&mut self, rank: u32, start_unix_ns: i64, rows: Vec<(Option<u32>, usize)>, noted: usize) {
        let end_unix_ns = start_unix_ns;
        self.all.push(Process { rank, start_unix_ns, end_unix_ns, rows, noted, generation: 0 });
    }

    /// The last process of `rank` was seen to live until then.
    pub fn end(&mut self, rank: u32, end_unix_ns: i64) {
        if let Some(process) = self.all.iter_mut().rev().find(|process| process.rank == rank) {
            process.end_unix_ns = process.end_unix_ns.max(end_unix_ns);
        }
    }

    /// Adds the processes of other ranks.
    pub fn append(&mut self, mut other: Self) {
        self.all.append(&mut other.all);
    }

    /// Tells the starts of the job apart, once all processes are known.
    ///
    /// In order of their starts, a process opens a new generation if its rank has a process in the
    /// current one, or if all of the current one had ended before.
    pub fn assign(&mut self) {
        let several = {
            let mut ranks = BTreeSet::new();
            !self.all.iter().all(|process| ranks.insert(process.rank))
        };
        if !several {
            return;
        }
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_key(|&at| self.all.get(at).map(|process| (process.start_unix_ns, process.rank)));
        let (mut ranks, mut end_unix_ns, mut generation) = (BTreeSet::new(), i64::MIN, 0);
        for (at, index) in order.into_iter().enumerate() {
            let Some(process) = self.all.get_mut(index) else { continue };
            let over = at > 0 && process.start_unix_ns > end_unix_ns;
            if over || ranks.contains(&process.rank) {
                generation += 1;
                ranks.clear();
                end_unix_ns = i64::MIN;
            }
            ranks.insert(process.rank);
            end_unix_ns = end_unix_ns.max(process.end_unix_ns);
            process.generation = generation;
        }
    }

    /// The processes of a track; none if all of its rows are of the first start. `joined` says that the
    /// track holds what several devices recorded.
    pub fn rows(&self, rank: u32, device: Option<u32>, joined: bool) -> Vec<ProcessRows> {
        let rows: Vec<ProcessRows> = self
            .all
            .iter()
            .filter(|process| process.rank == rank)
            .map(|process| {
                let own = process.rows.iter().find(|(of, _)| *of == device).map_or(0, |(_, rows)| *rows);
                let first = if joined { process.noted } else { own };
                ProcessRows { first, generation: process.generation }
            })
            .collect();
        if rows.iter().all(|process| process.generation == 0) { Vec::new() } else { rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generations of processes given as `(rank, start, end)`.
    fn generations(processes: &[(u32, i64, i64)]) -> Vec<u32> {
        let mut all = Processes::default();
        for &(rank, start, end) in processes {
            all.begin(rank, start, Vec::new(), 0);
            all.end(rank, end);
        }
        all.assign();
        all.all.iter().map(|process| process.generation).collect()
    }

    #[test]
    fn a_job_that_was_not_restarted_is_one_generation_however_late_a_rank_joins() {
        assert_eq!(generations(&[(0, 0, 10), (1, 5, 20), (2, 100, 110)]), [0, 0, 0]);
    }

    #[test]
    fn all_ranks_start_again_some_of_them_earlier() {
        assert_eq!(generations(&[(0, 0, 10), (0, 22, 30), (1, 1, 9), (1, 20, 30)]), [0, 1, 0, 1]);
    }

    #[test]
    fn a_rank_whose_first_record_is_lost_belongs_to_the_second_start() {
        assert_eq!(generations(&[(0, 20, 30), (1, 0, 10), (1, 21, 30)]), [1, 0, 1]);
    }

    #[test]
    fn a_rank_that_alone_starts_again_is_matched_with_nobody() {
        assert_eq!(generations(&[(0, 0, 50), (1, 0, 10), (1, 20, 50)]), [0, 0, 1]);
    }

    #[test]
    fn rows_of_the_first_start_need_no_list() {
        let mut all = Processes::default();
        all.begin(0, 0, Vec::new(), 0);
        all.end(0, 5);
        all.begin(0, 10, vec![(None, 3), (Some(0), 4)], 7);
        all.assign();
        let first = |rows: Vec<ProcessRows>| rows.iter().map(|rows| rows.first).collect::<Vec<_>>();
        assert_eq!(first(all.rows(0, None, false)), [0, 3]);
        assert_eq!(first(all.rows(0, Some(0), true)), [0, 7]);
        assert!(all.rows(1, None, false).is_empty());
    }
}
