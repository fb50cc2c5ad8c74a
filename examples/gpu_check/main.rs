//! What can be checked on a real GPU alone, in one call: `scripts/gpu-check.sh` runs it.
//!
//! Prints one verdict a line: PASS, FAIL or SKIP, what was checked, and the figure. Two ranks; on a
//! machine with one GPU they share it, for which NCCL wants `NCCL_MULTI_RANK_GPU_ENABLE=1`. On the
//! stand-ins of `tests/doubles` the same code runs, and says so: their figures are not a GPU's.
//!
//! The exit status is 1 if something failed, and 2 if nothing could be checked.

mod capture;
mod collectives;
mod cost;
mod machine;
mod timing;
mod traced;
mod verdict;

use machine::Machine;
use std::process::ExitCode;
use verdict::Verdicts;

fn main() -> ExitCode {
    let mut verdicts = Verdicts::default();
    let machine = match Machine::find() {
        Ok(machine) => machine,
        Err(problem) => {
            verdicts.skip("everything", problem);
            return verdicts.status();
        }
    };
    println!("{machine}");
    collectives::check(&machine, &mut verdicts);
    timing::check(&machine, &mut verdicts);
    capture::check(&machine, &mut verdicts);
    cost::check(&machine, &mut verdicts);
    verdicts.status()
}
