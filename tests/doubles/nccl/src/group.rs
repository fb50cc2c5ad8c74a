//! Groups: calls between `ncclGroupStart` and `ncclGroupEnd` take effect at the end of the outermost.

use crate::error::{Error, Result};
use crate::init::{self, Job};
use crate::launch::{self, Pending};
use std::cell::RefCell;

#[derive(Default)]
struct Group {
    depth: usize,
    jobs: Vec<Job>,
    calls: Vec<Pending>,
    /// The first call that failed; the group ends with its error.
    failed: Option<Error>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

pub fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

pub fn end() -> Result {
    let ended = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.checked_sub(1).ok_or_else(|| Error::usage("no group has started"))?;
        Ok(if group.depth == 0 { Some(std::mem::take(group)) } else { None })
    })?;
    let Some(group) = ended else { return Ok(()) };
    if let Some(error) = group.failed {
        return Err(error);
    }
    init::run_all(group.jobs)?;
    launch::launch(group.calls)
}

/// Adds what `make` gives to the group, or runs it at once outside one; errors of a group's calls are
/// also its own.
fn add<T>(make: Result<T>, keep: impl FnOnce(&mut Group, T), run: impl FnOnce(T) -> Result) -> Result {
    let depth = GROUP.with_borrow(|group| group.depth);
    match make {
        Ok(made) if depth == 0 => run(made),
        Ok(made) => {
            GROUP.with_borrow_mut(|group| keep(group, made));
            Ok(())
        }
        Err(error) => {
            if depth > 0 {
                GROUP.with_borrow_mut(|group| group.failed.get_or_insert(error.clone()).clone());
            }
            Err(error)
        }
    }
}

pub fn add_call(call: Result<Pending>) -> Result {
    add(call, |group, call| group.calls.push(call), |call| launch::launch(vec![call]))
}

pub fn add_job(job: Result<Job>) -> Result {
    add(job, |group, job| group.jobs.push(job), |job| init::run_all(vec![job]))
}
