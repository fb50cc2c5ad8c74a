//! Where on the host work was launched from.

use super::database::Database;
use super::thread::{Process, Thread};
use super::work::Kernel;
use std::collections::HashMap;

const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
const GRAPH_NODES: &str = "CUDA_GRAPH_NODE_EVENTS";
/// A node of a graph is a copy of one that was captured, at most of so many generations.
const GENERATIONS: usize = 8;

/// A place in the host's work: a call that began on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Site {
    pub thread: Thread,
    pub at_ns: i64,
}

impl Site {
    /// Not after any other.
    pub const MIN: Self = Self { thread: Thread::MIN, at_ns: i64::MIN };
}

/// The calls that launched kernels.
#[derive(Debug, Default)]
pub(super) struct Launches {
    by_correlation: HashMap<(Process, i64), Option<Site>>,
    nodes: HashMap<(Process, i64), Node>,
    /// Calls that launched nothing that was kept.
    pub other_calls: u64,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    site: Site,
    /// The node that it is a copy of; 0 if none.
    original: i64,
}

impl Launches {
    /// Finds the calls that launched `kernels`; for those that are nodes of CUDA graphs, also the calls that
    /// were captured.
    pub fn read(database: &mut Database, kernels: &[Kernel]) -> Self {
        let mut launches = Self::default();
        let mut any_without_process = false;
        for kernel in kernels.iter().filter(|kernel| kernel.correlation != 0) {
            launches.by_correlation.insert((kernel.process, kernel.correlation), None);
            any_without_process |= kernel.process == Process::UNKNOWN;
        }
        database.scan(CALLS, &["start", "globalTid", "correlationId"], |row| {
            let (Some(at_ns), Some(correlation)) = (row.integer(0), row.integer(2)) else { return };
            let site = Site { thread: Thread::new(row.integer(1)), at_ns };
            let process = site.thread.process();
            let mut slot = launches.by_correlation.get_mut(&(process, correlation));
            if slot.is_none() && any_without_process {
                slot = launches.by_correlation.get_mut(&(Process::UNKNOWN, correlation));
            }
            match slot {
                Some(slot) => {
                    slot.get_or_insert(site);
                }
                None => launches.other_calls += 1,
            }
        });
        if kernels.iter().any(|kernel| kernel.graph_node != 0) {
            launches.read_nodes(database);
        }
        launches
    }

    fn read_nodes(&mut self, database: &mut Database) {
        let columns = ["start", "globalTid", "graphNodeId", "originalGraphNodeId"];
        database.scan(GRAPH_NODES, &columns, |row| {
            let (Some(at_ns), Some(node)) = (row.integer(0), row.integer(2)) else { return };
            let site = Site { thread: Thread::new(row.integer(1)), at_ns };
            let original = row.integer(3).unwrap_or(0);
            self.nodes.entry((site.thread.process(), node)).or_insert(Node { site, original });
        });
    }

    /// The call that launched `kernel`, of a graph all its nodes.
    pub fn of(&self, kernel: &Kernel) -> Option<Site> {
        *self.by_correlation.get(&(kernel.process, kernel.correlation))?
    }

    /// The call that put `kernel` into a graph, when that was captured.
    fn captured(&self, kernel: &Kernel) -> Option<Site> {
        let mut node = *self.nodes.get(&(kernel.process, kernel.graph_node))?;
        for _ in 0..GENERATIONS {
            match self.nodes.get(&(kernel.process, node.original)).filter(|_| node.original != 0) {
                Some(&original) => node = original,
                None => break,
            }
        }
        Some(node.site)
    }

    /// The call that says what `kernel` does: the one that launched it, or put it into a graph.
    pub fn call_of(&self, kernel: &Kernel) -> Option<Site> {
        if kernel.graph_node != 0 { self.captured(kernel) } else { self.of(kernel) }
    }
}
