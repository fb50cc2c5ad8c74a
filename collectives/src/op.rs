//! The operations and how a span names them.

use std::fmt;

/// A collective or point-to-point operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Every rank ends with the reduction over all ranks.
    AllReduce,
    /// Every rank ends with the parts of all ranks, in rank order.
    AllGather,
    /// Every rank ends with its part of the reduction over all ranks.
    ReduceScatter,
    /// Every rank ends with the root's data.
    Broadcast,
    /// The root ends with the reduction over all ranks.
    Reduce,
    /// Every rank sends an equal part to every rank.
    AllToAll,
    /// Every rank sends parts of any length to every rank.
    AllToAllV,
    /// The sending side of a point-to-point call.
    Send,
    /// The receiving side of a point-to-point call.
    Recv,
    /// No rank leaves before all have come.
    Barrier,
}

impl Op {
    /// The name in spans and reports, for example `all_reduce`.
    pub fn as_str(self) -> &'static str {
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
            Self::Barrier => "barrier",
        }
    }

    /// Whether two ranks take part (a send and its receive) instead of the whole communicator.
    pub fn is_p2p(self) -> bool {
        matches!(self, Self::Send | Self::Recv)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
