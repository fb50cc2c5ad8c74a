//! The collectives of the experiment, and how long their buffers are.

use commtrace_report::nccl::busbw_factor;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A collective that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the sum over all ranks.
    AllReduce,
    /// A reduce_scatter and then an all_gather of its result: an all_reduce in two parts. That a library's all_reduce
    /// goes the same way does not follow.
    ReduceScatterAllGather,
    /// Every rank gets what every rank puts in.
    AllGather,
    /// Every rank gets its part of the sum over all ranks.
    ReduceScatter,
    /// Every rank gets what rank 0 puts in.
    Broadcast,
    /// Every rank gets its part of what every rank puts in.
    AllToAll,
}

impl Collective {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::ReduceScatterAllGather,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::AllToAll,
    ];

    /// The name as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::ReduceScatterAllGather => "reduce_scatter_all_gather",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all_to_all",
        }
    }

    /// Elements that a rank gets, where each of `ranks` ranks puts in `payload`.
    pub fn result_elements(self, payload: u64, ranks: u32) -> u64 {
        let ranks = u64::from(ranks.max(1));
        match self {
            Self::AllReduce | Self::ReduceScatterAllGather | Self::Broadcast | Self::AllToAll => payload,
            Self::AllGather => payload.saturating_mul(ranks),
            Self::ReduceScatter => payload / ranks,
        }
    }

    /// Elements of the size S as nccl-tests takes it: of all_gather what comes out, else what goes in.
    pub fn size_elements(self, payload: u64, ranks: u32) -> u64 {
        match self {
            Self::AllGather => self.result_elements(payload, ranks),
            _ => payload,
        }
    }

    /// Whether the payload is divided among the ranks, and so must be a multiple of their number.
    pub fn divides_payload(self) -> bool {
        matches!(self, Self::ReduceScatterAllGather | Self::ReduceScatter | Self::AllToAll)
    }

    /// What algorithm bandwidth is multiplied by to give bus bandwidth; `None` without ranks.
    ///
    /// Source: nccl-tests (`doc/PERFORMANCE.md`); of the two parts of an all_reduce together as of an all_reduce.
    pub fn busbw_factor(self, ranks: u32) -> Option<f64> {
        match self {
            Self::ReduceScatterAllGather => busbw_factor("all_reduce", ranks),
            _ => busbw_factor(self.as_str(), ranks),
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Collective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|collective| collective.as_str() == text);
        found.ok_or_else(|| {
            format!("no collective {text:?}: expected one of {}", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factors of nccl-tests' PERFORMANCE.md for 4 ranks, and sizes of 8 elements per rank.
    #[test]
    fn sizes_and_factors() {
        let figures = Collective::ALL.map(|collective| {
            let size = collective.size_elements(8, 4);
            (collective.as_str(), collective.result_elements(8, 4), size, collective.busbw_factor(4).unwrap())
        });
        assert_eq!(
            figures,
            [
                ("all_reduce", 8, 8, 1.5),
                ("reduce_scatter_all_gather", 8, 8, 1.5),
                ("all_gather", 32, 32, 0.75),
                ("reduce_scatter", 2, 8, 0.75),
                ("broadcast", 8, 8, 1.0),
                ("all_to_all", 8, 8, 0.75),
            ]
        );
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for collective in Collective::ALL {
            assert_eq!(collective.as_str().parse(), Ok(collective));
            assert_eq!(serde_json::to_value(collective).unwrap(), collective.as_str());
        }
        assert!("allreduce".parse::<Collective>().unwrap_err().contains("all_reduce"));
    }
}
