//! In which training step work was launched.

use super::launch::Site;
use super::range::StepRange;
use super::step_name::StepNumber;
use super::thread::{Process, Thread};
use crate::timeline::Step;
use std::collections::HashMap;

/// A step of a thread.
#[derive(Debug, Clone, Copy)]
struct Numbered {
    thread: Thread,
    step: Step,
}

/// The steps of each process.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// By start.
    by_process: HashMap<Process, Vec<Numbered>>,
    /// Ranges within a step of the same thread, which are no steps.
    pub nested: u64,
}

impl Steps {
    pub fn new(mut ranges: Vec<StepRange>) -> Self {
        ranges.sort_by_key(|range| (range.thread, range.start_ns, std::cmp::Reverse(range.end_ns)));
        let mut steps = Self::default();
        for thread in ranges.chunk_by(|a, b| a.thread == b.thread) {
            let mut end_ns = i64::MIN;
            let mut count = 0;
            for range in thread {
                if range.start_ns < end_ns {
                    steps.nested += 1;
                    continue;
                }
                end_ns = range.end_ns;
                let number = match range.number {
                    StepNumber::Is(number) => number,
                    StepNumber::Counted => count,
                };
                count += 1;
                let step = Step { step: number, start_ns: range.start_ns, end_ns: range.end_ns };
                let process = steps.by_process.entry(range.thread.process()).or_default();
                process.push(Numbered { thread: range.thread, step });
            }
        }
        for process in steps.by_process.values_mut() {
            process.sort_by_key(|one| (one.step.start_ns, one.step.end_ns));
        }
        steps
    }

    pub fn is_empty(&self) -> bool {
        self.by_process.is_empty()
    }

    /// The steps of a process, in order of start.
    pub fn of(&self, process: Process) -> impl Iterator<Item = Step> {
        self.by_process.get(&process).into_iter().flatten().map(|one| one.step)
    }

    /// The step in which something was launched: one of the same thread if there is one, else the one that
    /// began last on any thread of the process, since backward passes run on threads of their own.
    pub fn at(&self, site: Site) -> Option<i64> {
        /// Threads whose steps overlap, at most.
        const OVERLAPPING: usize = 64;
        let steps = self.by_process.get(&site.thread.process())?;
        let begun = steps.partition_point(|one| one.step.start_ns <= site.at_ns);
        let first = begun.saturating_sub(OVERLAPPING);
        let around = steps.get(first..begun)?.iter().rev().filter(|one| site.at_ns < one.step.end_ns);
        let mut last = None;
        for one in around {
            if one.thread == site.thread {
                return Some(one.step.step);
            }
            last.get_or_insert(one.step.step);
        }
        last
    }
}
