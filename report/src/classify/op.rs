//! The one vocabulary of communication operations.

use std::fmt;

/// A communication operation, whatever the input calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Every rank gets the reduction of all ranks' data.
    AllReduce,
    /// Every rank gets all ranks' data.
    AllGather,
    /// Every rank gets its part of the reduction.
    ReduceScatter,
    /// Every rank gets the root's data.
    Broadcast,
    /// The root gets the reduction.
    Reduce,
    /// Every rank sends an equal part to every rank.
    AllToAll,
    /// Every rank sends a part to every rank, in sizes that may differ.
    AllToAllV,
    /// To one rank.
    Send,
    /// From one rank.
    Recv,
    /// Sends and receives in one launch; gather and scatter are made of them.
    SendRecv,
    /// Nobody goes on before all have come.
    Barrier,
    /// Communication, the input does not say which.
    Unknown,
}

impl Op {
    /// The name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllToAll => "all_to_all",
            Self::AllToAllV => "all_to_all_v",
            Self::Send => "send",
            Self::Recv => "recv",
            Self::SendRecv => "send_recv",
            Self::Barrier => "barrier",
            Self::Unknown => "unknown",
        }
    }

    /// The operation that a collective's name says, as NCCL (`ncclAllReduce`), PyTorch
    /// (`_allgather_base`, `c10d::allreduce_`, `gloo:all_reduce`, `all_to_allv`) or MPI (`MPI_Bcast`)
    /// writes it; `None` if it says none.
    ///
    /// ```
    /// use commtrace_report::classify::Op;
    /// assert_eq!(Op::in_name("_reduce_scatter_base"), Some(Op::ReduceScatter));
    /// assert_eq!(Op::in_name("all_to_allv"), Some(Op::AllToAllV));
    /// assert_eq!(Op::in_name("wait"), None);
    /// ```
    pub fn in_name(name: &str) -> Option<Self> {
        // Longer words first: `reduce` is part of three others.
        const WORDS: [(&str, Op); 18] = [
            ("barrier", Op::Barrier),
            ("alltoallv", Op::AllToAllV),
            ("alltoallw", Op::AllToAllV),
            ("alltoall", Op::AllToAll),
            ("all2allv", Op::AllToAllV),
            ("all2all", Op::AllToAll),
            ("allreduce", Op::AllReduce),
            ("allgather", Op::AllGather),
            ("reducescatter", Op::ReduceScatter),
            ("broadcast", Op::Broadcast),
            ("bcast", Op::Broadcast),
            ("sendrecv", Op::SendRecv),
            ("gather", Op::SendRecv),
            ("scatter", Op::SendRecv),
            ("reduce", Op::Reduce),
            ("send", Op::Send),
            ("recv", Op::Recv),
            ("receive", Op::Recv),
        ];
        let letters: String =
            name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        WORDS.iter().find(|(word, _)| letters.contains(word)).map(|&(_, op)| op)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pytorch_nccl_and_mpi() {
        for (name, op) in [
            ("allreduce", Op::AllReduce),
            ("allreduce_coalesced", Op::AllReduce),
            ("c10d::allreduce_", Op::AllReduce),
            ("gloo:all_reduce", Op::AllReduce),
            ("nccl:all_reduce_barrier", Op::Barrier),
            ("_allgather_base", Op::AllGather),
            ("allgather_into_tensor_coalesced", Op::AllGather),
            ("nccl:_all_gather_base", Op::AllGather),
            ("reduce_scatter_tensor_coalesced", Op::ReduceScatter),
            ("ReduceScatter", Op::ReduceScatter),
            ("broadcast", Op::Broadcast),
            ("_broadcast_oop", Op::Broadcast),
            ("MPI_Bcast", Op::Broadcast),
            ("_reduce_oop", Op::Reduce),
            ("ncclReduce", Op::Reduce),
            ("all_to_all", Op::AllToAll),
            ("alltoall_base", Op::AllToAll),
            ("all_to_allv", Op::AllToAllV),
            ("MPI_Alltoallv", Op::AllToAllV),
            ("send", Op::Send),
            ("c10d::recv_", Op::Recv),
            ("c10d::recv_any_source_", Op::Recv),
            ("SendRecv", Op::SendRecv),
            ("gather", Op::SendRecv),
            ("scatter", Op::SendRecv),
            ("c10d::barrier", Op::Barrier),
        ] {
            assert_eq!(Op::in_name(name), Some(op), "{name}");
        }
        for name in ["wait", "init", "coalesced", ""] {
            assert_eq!(Op::in_name(name), None, "{name}");
        }
    }
}
