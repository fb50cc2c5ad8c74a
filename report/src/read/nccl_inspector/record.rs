//! One object of a dump.

use crate::classify::{Op, payload_bytes};
use serde::Deserialize;
use std::borrow::Cow;

/// The object as it is written; everything may be missing or of another kind.
#[derive(Debug, Deserialize)]
pub(super) struct Record<'a> {
    #[serde(borrow)]
    header: Header<'a>,
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    coll_perf: Option<Perf<'a>>,
    #[serde(borrow)]
    p2p_perf: Option<Perf<'a>>,
}

#[derive(Debug, Deserialize)]
struct Header<'a> {
    /// Missing in the dumps of plugins made after it.
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    comm_name: Option<Cow<'a, str>>,
    rank: u32,
    n_ranks: u32,
    nnodes: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata<'a> {
    #[serde(borrow)]
    inspector_output_format_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    hostname: Option<Cow<'a, str>>,
    pid: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Perf<'a> {
    #[serde(borrow, alias = "coll", alias = "p2p")]
    op: Cow<'a, str>,
    #[serde(alias = "coll_sn", alias = "p2p_sn")]
    sn: Option<u64>,
    p2p_peer: Option<i64>,
    #[serde(alias = "coll_msg_size_bytes", alias = "p2p_msg_size_bytes")]
    size: Option<u64>,
    /// Microseconds.
    #[serde(alias = "coll_exec_time_us", alias = "p2p_exec_time_us")]
    exec_time_us: Option<f64>,
    /// Of such plugins as well.
    #[serde(borrow)]
    coll_algo: Option<Cow<'a, str>>,
    #[serde(borrow)]
    coll_proto: Option<Cow<'a, str>>,
    #[serde(borrow, alias = "coll_timing_source", alias = "p2p_timing_source")]
    timing_source: Option<Cow<'a, str>>,
    /// `"nan"` is written as text.
    #[serde(alias = "coll_busbw_gbs", alias = "p2p_busbw_gbs")]
    busbw_gbs: Option<serde_json::Value>,
    event_trace_ts: Option<Trace>,
}

/// Instants in microseconds since the epoch; 0 where one was not seen.
#[derive(Debug, Deserialize)]
struct Trace {
    #[serde(alias = "coll_start_ts", alias = "p2p_start_ts")]
    start_ts: Option<u64>,
    #[serde(default)]
    kernel_events: Vec<KernelEvent>,
}

#[derive(Debug, Deserialize)]
struct KernelEvent {
    kernel_start_ts: Option<u64>,
    kernel_stop_ts: Option<u64>,
    kernel_record_ts: Option<u64>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event<'a> {
    pub name: &'a str,
    pub op: Option<Op>,
    pub point_to_point: bool,
    /// Empty if not named.
    pub comm: &'a str,
    pub comm_name: Option<&'a str>,
    pub rank: u32,
    pub nranks: u32,
    pub nnodes: Option<u32>,
    pub host: &'a str,
    pub pid: u64,
    pub format_version: Option<&'a str>,
    pub seq: Option<u64>,
    pub peer: Option<u32>,
    /// As nccl-tests counts it.
    pub payload: Option<u64>,
    pub duration_ns: i64,
    pub start_ns: Option<i64>,
    pub timing_source: Option<&'a str>,
    /// In lower case.
    pub algorithm: Option<String>,
    pub protocol: Option<String>,
    pub busbw_gbs: Option<f64>,
}

impl Record<'_> {
    /// The operation, or why it is of no use.
    pub fn event(&self) -> Result<Event<'_>, &'static str> {
        let (perf, point_to_point) = match (&self.coll_perf, &self.p2p_perf) {
            (Some(perf), _) => (perf, false),
            (None, Some(perf)) => (perf, true),
            (None, None) => return Err("no_operation"),
        };
        let header = &self.header;
        if header.n_ranks == 0 || header.rank >= header.n_ranks {
            return Err("bad_rank");
        }
        let op = Op::in_name(&perf.op);
        let trace = perf.event_trace_ts.as_ref();
        let source = perf.timing_source.as_deref();
        let start_us = trace.and_then(|trace| trace.start(source == Some("collective_cpu")));
        let duration_ns = match perf.exec_time_us.and_then(nanoseconds) {
            Some(duration) => duration,
            None => match start_us.zip(trace.and_then(Trace::last)) {
                Some((start, stop)) => {
                    let duration = stop.checked_sub(start).and_then(|us| us.checked_mul(1000));
                    duration.and_then(|ns| i64::try_from(ns).ok()).ok_or("no_duration")?
                }
                None => return Err("no_duration"),
            },
        };
        let payload = perf.size.and_then(|share| match op {
            Some(Op::AllToAll) => share.checked_mul(header.n_ranks.into()),
            Some(Op::ReduceScatter) => {
                payload_bytes(Op::ReduceScatter, None, Some(share), 1, Some(header.n_ranks))
            }
            Some(op) => payload_bytes(op, Some(share), None, 1, Some(header.n_ranks)),
            None => Some(share),
        });
        Ok(Event {
            name: &perf.op,
            op,
            point_to_point,
            comm: header.id.as_deref().unwrap_or(""),
            comm_name: header.comm_name.as_deref().filter(|name| !name.is_empty() && *name != "unknown"),
            rank: header.rank,
            nranks: header.n_ranks,
            nnodes: header.nnodes,
            host: self.metadata.hostname.as_deref().unwrap_or(""),
            pid: self.metadata.pid.unwrap_or(0),
            format_version: self.metadata.inspector_output_format_version.as_deref(),
            seq: perf.sn,
            peer: perf.p2p_peer.and_then(|peer| u32::try_from(peer).ok()),
            payload,
            duration_ns,
            start_ns: start_us.and_then(|us| i64::try_from(us).ok()?.checked_mul(1000)),
            timing_source: source,
            algorithm: perf.coll_algo.as_deref().map(str::to_ascii_lowercase),
            protocol: perf.coll_proto.as_deref().map(str::to_ascii_lowercase),
            busbw_gbs: perf.busbw_gbs.as_ref().and_then(serde_json::Value::as_f64),
        })
    }
}

/// Whole nanoseconds of a duration in microseconds.
fn nanoseconds(us: f64) -> Option<i64> {
    let ns = (us * 1e3).round();
    // Beyond this, f64 has no whole numbers any more; it is over a hundred days.
    (0.0..9.007_199_254_740_992e15).contains(&ns).then_some(ns as i64)
}

impl Trace {
    /// When the operation began on the device. What the host saw of its call is no such instant, except
    /// where nothing else was timed (`by_host`).
    fn start(&self, by_host: bool) -> Option<u64> {
        if by_host {
            return self.start_ts.filter(|&ts| ts > 0);
        }
        self.kernel_events.iter().filter_map(|event| event.kernel_start_ts).filter(|&ts| ts > 0).min()
    }

    fn last(&self) -> Option<u64> {
        let ends = self.kernel_events.iter().flat_map(|event| [event.kernel_stop_ts, event.kernel_record_ts]);
        ends.flatten().max().filter(|&ts| ts > 0)
    }
}
