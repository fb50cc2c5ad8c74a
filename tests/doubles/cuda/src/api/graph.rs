//! `cuGraph*`: graphs that a capture made.

use crate::abi::Out;
use crate::{context, graph, stream};
use double_common::handles::Handle;
use std::ffi::{c_char, c_uint, c_void};

driver! {
    fn cuGraphCreate(made: Out<Handle>, _flags: c_uint) { made.set(graph::create()?) }

    // Only how many nodes there are: they have no handles here.
    fn cuGraphGetNodes(graph: Handle, _nodes: *mut c_void, count: Out<usize>) {
        count.set(graph::node_count(graph)?)
    }

    fn cuGraphDestroy(graph: Handle) { graph::destroy(graph) }

    fn cuGraphInstantiateWithFlags(made: Out<Handle>, graph: Handle, flags: u64) {
        context::current()?;
        made.set(graph::instantiate(graph, flags)?)
    }

    fn cuGraphInstantiate_v2(
        made: Out<Handle>,
        graph: Handle,
        _error_node: *mut c_void,
        _log: *mut c_char,
        _log_size: usize,
    ) {
        context::current()?;
        made.set(graph::instantiate(graph, 0)?)
    }

    fn cuGraphLaunch(executable: Handle, stream: Handle) {
        graph::launch(executable, &stream::find(stream)?)
    }

    fn cuGraphUpload(executable: Handle, stream: Handle) {
        stream::find(stream)?;
        graph::check_executable(executable)
    }

    fn cuGraphExecDestroy(executable: Handle) { graph::destroy_executable(executable) }
}
