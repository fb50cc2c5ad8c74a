//! Collectives among the calls of the host.

use super::Op;

/// Where in the stack a call of the host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostLayer {
    /// The library that communicates, for example `gloo:all_reduce`: what moves the bytes, on whatever
    /// thread, or (for `nccl:`) launches the kernels that do.
    Backend,
    /// PyTorch's operator, for example `c10d::allreduce_`: it may return before the communication ends.
    Operator,
    /// PyTorch's note of a collective's arguments (`record_param_comms`).
    Record,
}

/// A collective that the host calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCall {
    /// The operation, as far as the name tells.
    pub op: Op,
    /// Where in the stack.
    pub layer: HostLayer,
}

impl HostCall {
    /// The call that `name` means; `None` if it is no communication.
    ///
    /// ```
    /// use commtrace_report::classify::{HostCall, HostLayer, Op};
    /// let call = HostCall::named("gloo:all_reduce");
    /// assert_eq!(call, Some(HostCall { op: Op::AllReduce, layer: HostLayer::Backend }));
    /// assert_eq!(HostCall::named("aten::add"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        const BACKENDS: [&str; 8] =
            ["gloo:", "nccl:", "mpi:", "ucc:", "xccl:", "hccl:", "oneccl_bindings_for_pytorch::", "rccl:"];
        if name == "record_param_comms" {
            return Some(Self { op: Op::Unknown, layer: HostLayer::Record });
        }
        if let Some(rest) = BACKENDS.iter().find_map(|backend| name.strip_prefix(backend)) {
            let op = Op::in_name(rest).unwrap_or(Op::Unknown);
            return Some(Self { op, layer: HostLayer::Backend });
        }
        let rest = name.strip_prefix("c10d::").or_else(|| name.strip_prefix("_c10d_functional::"))?;
        // Other functions of that namespace (`wait_tensor`) wait for what another call has begun.
        Op::in_name(rest).map(|op| Self { op, layer: HostLayer::Operator })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers() {
        for (name, op, layer) in [
            ("gloo:all_to_all", Op::AllToAll, HostLayer::Backend),
            ("nccl:_all_gather_base", Op::AllGather, HostLayer::Backend),
            ("nccl:coalesced", Op::Unknown, HostLayer::Backend),
            ("c10d::_reduce_scatter_base_", Op::ReduceScatter, HostLayer::Operator),
            ("_c10d_functional::all_reduce", Op::AllReduce, HostLayer::Operator),
            ("record_param_comms", Op::Unknown, HostLayer::Record),
        ] {
            assert_eq!(HostCall::named(name), Some(HostCall { op, layer }), "{name}");
        }
        for name in ["aten::gather", "_c10d_functional::wait_tensor", "torch.distributed.ddp.reducer::copy"] {
            assert_eq!(HostCall::named(name), None, "{name}");
        }
    }
}
