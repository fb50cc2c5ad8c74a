//! Figures from intervals: overlap, sums per op, unions over time, steps, and waits across ranks.
//!
//! [`analyze`] turns a [`Timeline`](crate::timeline::Timeline) into a [`Report`]; its parts can be used
//! alone:
//!
//! | part | what it is for |
//! | --- | --- |
//! | [`CommProfiler`] | a few intervals by hand, in milliseconds: the chapter's profiler |
//! | [`Cover`] | length of unions and intersections of many intervals |
//! | [`SummaryBuilder`] | sums per op, from events one by one |
//! | [`CrossRankAccumulator`] | which ranks waited for which, from matched collectives one by one |
//! | [`Aligner`] | one time scale for clocks that disagree, from synchronizing collectives |
//! | [`assemble`] | a report from figures that were aggregated elsewhere |
//! | [`desync`] | who is missing, who disagrees, who stopped: how a hang is found |
//! | [`estimate_collective_time`] | the latency–bandwidth cost model |
//!
//! Computation is in integer nanoseconds; each public figure is converted to milliseconds once.

mod accumulate;
mod align;
mod arrivals;
mod assemble;
mod bootstrap;
mod breakdown;
mod clocks;
mod conclude;
mod cost;
mod cross_rank;
pub mod desync;
mod filter;
mod hotspot;
mod interval;
mod matching;
mod merged;
mod point_to_point;
mod profiler;
mod rank;
mod report;
mod routing;
mod side_by_side;
mod steps;
mod stragglers;
mod summary;
mod sums;
mod tally;
mod totals;
mod waits;
mod wall;
mod worst;

pub use accumulate::{Collective, CrossRankAccumulator, Member, Position, last_arrival_ns};
pub use align::{Aligner, Alignment, ClockedPart, OrderCheck, OrderReport};
pub use assemble::{analyze, assemble};
pub(crate) use conclude::{LeftOut, conclude};
pub use cost::{CostModelError, estimate_collective_time};
pub use cross_rank::{
    Bandwidth, CommunicatorWaits, CrossRank, OpAcrossRanks, PeerWaits, PointToPoint, RankAlignment,
    SizeWaits, StepWaits, Unmatched, UnmatchedReason, Verdict, WaitFigures, WorstCollective,
};
pub use desync::{Desync, DesyncKind};
pub use filter::{AnalyzeOptions, StepRange, StepRangeError};
pub use hotspot::{OpHotspot, export_hotspot_events, find_priority_hotspot};
pub use interval::{Cover, duration_ns, overlaps_ns};
pub use matching::is_synchronizing;
pub(crate) use matching::{bytes_may_differ, is_point_to_point};
pub(crate) use merged::{Merged, merged};
pub use profiler::{CommProfiler, IntervalError, TimelineRecord};
pub use report::{InputReport, REPORT_SCHEMA_VERSION, RankReport, Report, RuleReport, UntimedReport};
pub use routing::{ExchangeFigures, ExpertRouting, PairBytes, PeerBytes, RankExchanges, RankRouting};
pub(crate) use routing::{RoutedCall, RoutingSums, add_throughput};
pub use steps::StepFigures;
pub(crate) use stragglers::{End, Ledger, Part, SpanTimes, block_of_time};
pub use stragglers::{Pattern, RankWaits, Straggler};
pub use summary::{OpSummary, Summary, SummaryBuilder};
pub use wall::Wall;

/// Nanoseconds to milliseconds, rounded once.
pub(crate) fn ms_from_ns(ns: u128) -> f64 {
    ns as f64 / 1e6
}
