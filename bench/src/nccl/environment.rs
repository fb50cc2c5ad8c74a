//! What the parent knows and sets before it starts ranks.

use super::device;
use crate::event::EventFolder;
use crate::plan::Plan;
use crate::session::nccl_rank_log;
use commtrace_collectives::nccl;
use std::process::Command;

/// What NCCL is to log: who the ranks are, what the environment sets, which calls there are, and which algorithm was chosen
/// for each. Up to 2.22 the last of these does not say which call it is about, so that the calls are needed too.
const SUBSYSTEMS: &str = "INIT,ENV,COLL,TUNING";

/// Why no rank could run here; `None` if nothing speaks against it. `ranks` are those of this machine, if they are known.
pub(crate) fn problem(ranks: Option<u32>) -> Option<String> {
    let devices = match device::count() {
        Ok(devices) => devices,
        Err(problem) => return Some(problem),
    };
    if let Err(error) = nccl::version() {
        return Some(error.to_string());
    }
    device::are_enough(devices, ranks?).err()
}

/// Sets what the process of a rank needs, whatever this process has: the algorithm that is asked for, and a log
/// of its own. `launched` says whether a launcher's variables tell it its place.
pub(crate) fn prepare(command: &mut Command, plan: &Plan, events: &EventFolder, rank: u32, launched: bool) {
    command.env("NCCL_DEBUG", "INFO").env("NCCL_DEBUG_SUBSYS", SUBSYSTEMS);
    command.env("NCCL_DEBUG_FILE", nccl_rank_log(events, rank));
    match algorithm(&plan.algorithm, nccl::version().ok()) {
        Some(algorithm) => command.env("NCCL_ALGO", algorithm),
        None => command.env_remove("NCCL_ALGO"),
    };
    if !launched {
        let number = rank.to_string();
        command.env("RANK", &number).env("LOCAL_RANK", number).env("WORLD_SIZE", plan.world_size.to_string());
        // They are of another job.
        command.env_remove("MASTER_ADDR").env_remove("MASTER_PORT");
    }
}

/// Algorithms that NCCL has for some functions only, with these: the others must be free to run what they have, the barrier
/// before each repeat among them.
const OF_FUNCTIONS: [(&str, &[&str]); 6] = [
    ("tree", &["allreduce"]),
    ("nvlstree", &["allreduce"]),
    ("collnetchain", &["allreduce"]),
    ("collnetdirect", &["allreduce", "allgather", "reducescatter"]),
    ("nvls", &["allreduce", "allgather", "reducescatter"]),
    ("pat", &["allgather", "reducescatter"]),
];

/// The value of `NCCL_ALGO` that asks for an algorithm; `None` leaves it unset.
///
/// Since 2.24, NCCL fails a call that has no algorithm left, where it ran the only one before: what is for some functions only
/// is therefore asked for by their names, a form that came with that version.
fn algorithm(name: &str, version: Option<(u32, u32, u32)>) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    if lower == "auto" {
        return None;
    }
    let by_function = version.is_some_and(|(major, minor, _)| (major, minor) >= (2, 24));
    let functions = OF_FUNCTIONS.iter().find(|(algorithm, _)| by_function && *algorithm == lower);
    Some(match functions {
        Some((_, functions)) => {
            let parts: Vec<String> = functions.iter().map(|function| format!("{function}:{lower}")).collect();
            parts.join(";")
        }
        None => name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_are_asked_for_as_the_version_takes_them() {
        let value = |name: &str, minor: u32| algorithm(name, Some((2, minor, 3)));
        assert_eq!(value("Auto", 28), None);
        assert_eq!(value("Ring", 28).as_deref(), Some("Ring"));
        assert_eq!(value("Tree", 28).as_deref(), Some("allreduce:tree"));
        assert_eq!(value("Tree", 23).as_deref(), Some("Tree"));
        assert_eq!(value("PAT", 24).as_deref(), Some("allgather:pat;reducescatter:pat"));
        assert_eq!(value("Star", 28).as_deref(), Some("Star"), "for NCCL to refuse");
        assert_eq!(algorithm("Tree", None).as_deref(), Some("Tree"));
    }
}
