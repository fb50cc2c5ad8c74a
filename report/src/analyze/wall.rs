//! Figures over time, where what runs side by side counts once.

use super::interval::{Cover, duration_ns};
use super::ms_from_ns;
use serde::{Deserialize, Serialize};

/// What one rank lost and used over time, in milliseconds: unions of intervals, so that concurrent
/// collectives on several streams count once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wall {
    /// Time with communication.
    pub comm_ms: f64,
    /// Time with communication and no compute.
    pub exposed_ms: f64,
    /// Time with compute.
    pub compute_ms: f64,
    /// Time with both.
    pub overlap_ms: f64,
    /// Time of the span with neither.
    pub idle_ms: f64,
    /// From the first start to the last end of any interval.
    pub span_ms: f64,
}

impl Wall {
    /// From lengths in nanoseconds: of the unions of communication and of compute, of their
    /// intersection, and of the span.
    pub fn from_ns(comm_ns: u64, compute_ns: u64, overlap_ns: u64, span_ns: u64) -> Self {
        let [comm, compute, overlap, span] = [comm_ns, compute_ns, overlap_ns, span_ns].map(u128::from);
        let busy = (comm + compute).saturating_sub(overlap);
        Self {
            comm_ms: ms_from_ns(comm),
            exposed_ms: ms_from_ns(comm.saturating_sub(overlap)),
            compute_ms: ms_from_ns(compute),
            overlap_ms: ms_from_ns(overlap),
            idle_ms: ms_from_ns(span.saturating_sub(busy)),
            span_ms: ms_from_ns(span),
        }
    }

    /// From the two unions and the first start and last end of all intervals (empty ones included).
    pub(super) fn from_covers(comm: &Cover, compute: &Cover, extent: Option<(i64, i64)>) -> Self {
        let span_ns = extent.map_or(0, |(first, last)| duration_ns(first, last));
        Self::from_ns(comm.total_ns(), compute.total_ns(), comm.intersection_ns(compute), span_ns)
    }
}

/// First start and last end over intervals that do not end before they start: those have at least one
/// wrong time, which must not stretch the span.
pub(super) fn extent<'a>(columns: impl IntoIterator<Item = (&'a [i64], &'a [i64])>) -> Option<(i64, i64)> {
    let mut extent: Option<(i64, i64)> = None;
    for (starts, ends) in columns {
        for (&start, &end) in starts.iter().zip(ends) {
            if end >= start {
                extent = Some(extent.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
            }
        }
    }
    extent
}

/// A wall that may be unknown, as an object all the same.
pub(super) mod or_nulls {
    use super::Wall;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// [`Wall`]: unions of intervals in milliseconds, so that concurrent collectives on several streams count
    /// once. All are null if communication has only durations.
    #[derive(Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "WallOrNulls"))]
    pub struct Figures {
        /// Time with communication.
        comm_ms: Option<f64>,
        /// Time with communication and no compute.
        exposed_ms: Option<f64>,
        /// Time with compute.
        compute_ms: Option<f64>,
        /// Time with both.
        overlap_ms: Option<f64>,
        /// Time of the span with neither.
        idle_ms: Option<f64>,
        /// From the first start to the last end of any interval.
        span_ms: Option<f64>,
    }

    pub fn serialize<S: Serializer>(wall: &Option<Wall>, serializer: S) -> Result<S::Ok, S::Error> {
        match wall {
            Some(wall) => wall.serialize(serializer),
            None => Figures::default().serialize(serializer),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Wall>, D::Error> {
        let figures = Figures::deserialize(deserializer)?;
        let wall = || {
            Some(Wall {
                comm_ms: figures.comm_ms?,
                exposed_ms: figures.exposed_ms?,
                compute_ms: figures.compute_ms?,
                overlap_ms: figures.overlap_ms?,
                idle_ms: figures.idle_ms?,
                span_ms: figures.span_ms?,
            })
        };
        Ok(wall())
    }
}
