//! Graphs: what a capture recorded, replayed as one piece of work in the order of capture.

use crate::capture;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::work::Work;
use double_common::handles::{Handle, Table};
use std::sync::Arc;

/// The nodes of a graph. Their order is that of capture, which keeps every dependency.
pub struct Graph {
    nodes: Arc<Vec<Work>>,
}

static GRAPHS: Table<Graph> = Table::new(0x44);
static EXECUTABLES: Table<Graph> = Table::new(0x55);

/// Flag of a graph that is launched from the device.
const DEVICE_LAUNCH: u64 = 4;
const AUTO_FREE_ON_LAUNCH: u64 = 1;

impl Graph {
    pub fn new(nodes: Vec<Work>) -> Graph {
        Graph { nodes: Arc::new(nodes) }
    }
}

/// Ends a capture and keeps its graph.
pub fn from_capture(stream: &Arc<Stream>) -> Result<Handle> {
    GRAPHS.insert(Arc::new(capture::end(stream)?)).ok_or(Error::OUT_OF_MEMORY)
}

pub fn create() -> Result<Handle> {
    GRAPHS.insert(Arc::new(Graph::new(Vec::new()))).ok_or(Error::OUT_OF_MEMORY)
}

pub fn node_count(graph: Handle) -> Result<usize> {
    Ok(GRAPHS.get(graph).ok_or(Error::INVALID_HANDLE)?.nodes.len())
}

pub fn destroy(graph: Handle) -> Result {
    GRAPHS.remove(graph).map(|_| ()).ok_or(Error::INVALID_HANDLE)
}

/// Makes a graph ready to be launched.
pub fn instantiate(graph: Handle, flags: u64) -> Result<Handle> {
    let graph = GRAPHS.get(graph).ok_or(Error::INVALID_HANDLE)?;
    if flags & DEVICE_LAUNCH != 0 && flags & AUTO_FREE_ON_LAUNCH != 0 {
        return Err(Error::INVALID_VALUE);
    }
    EXECUTABLES.insert(Arc::new(Graph { nodes: graph.nodes.clone() })).ok_or(Error::OUT_OF_MEMORY)
}

pub fn destroy_executable(executable: Handle) -> Result {
    EXECUTABLES.remove(executable).map(|_| ()).ok_or(Error::INVALID_HANDLE)
}

/// Launches a graph, or makes its nodes part of the capture of `stream`.
pub fn launch(executable: Handle, stream: &Arc<Stream>) -> Result {
    let graph = EXECUTABLES.get(executable).ok_or(Error::INVALID_HANDLE)?;
    if let Some(capture) = stream.capture() {
        return capture.add(stream, Work::Graph(graph.nodes.clone()));
    }
    stream.enqueue(|place| Work::Graph(resolve(&graph.nodes, stream, place))).map(|_| ())
}

/// The nodes for one launch: those that touch events get the records of this launch.
fn resolve(nodes: &Arc<Vec<Work>>, stream: &Stream, place: u64) -> Arc<Vec<Work>> {
    let touches_events =
        |work: &Work| matches!(work, Work::RecordNode(_) | Work::WaitNode(_) | Work::Graph(_));
    if !nodes.iter().any(touches_events) {
        return nodes.clone();
    }
    let resolved = nodes.iter().filter_map(|node| match node {
        Work::RecordNode(event) => Some(Work::Record(event.record_in_graph(stream, place))),
        Work::WaitNode(event) => event.last_record().filter(|record| !record.is_in(stream)).map(Work::Wait),
        Work::Graph(inner) => Some(Work::Graph(resolve(inner, stream, place))),
        other => Some(other.clone()),
    });
    Arc::new(resolved.collect())
}

/// Checks a handle, for calls that only need it to exist.
pub fn check_executable(executable: Handle) -> Result {
    EXECUTABLES.get(executable).map(|_| ()).ok_or(Error::INVALID_HANDLE)
}
