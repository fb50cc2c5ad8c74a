//! The track of a trace without kernels: operators of the host, and collectives that it runs itself.

use super::call::{Call, HostEvent};
use super::collect::{Collector, HostOp, Times};
use super::plausible::Plausible;
use crate::classify::{HostLayer, Op, payload_bytes};
use crate::timeline::{Comm, Compute, MatchKind, Sym, Track};
use std::cmp::Reverse;
use std::collections::HashSet;

/// Why a collective of a device has no time here.
const NOT_RECORDED: &str = "gpu_not_recorded";

/// The rule under which operators are compute.
const TOP_LEVEL: &str = "top-level operators";

/// Which calls are the communication itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Communicating {
    /// What a library such as gloo did, on whatever thread.
    Backend,
    /// Nothing tells when the library worked: the operators that call it.
    Operator,
    /// A device's collectives, whose kernels were not recorded.
    Device,
}

/// What an operation of the host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Compute,
    Comm,
    /// Part of what encloses it.
    Nested,
    /// The call that had the communication done elsewhere.
    Call,
    /// Communication of a device, of which only the call is known.
    Untimed,
}

/// The track of the host; `None` if it did nothing.
pub(super) fn track(collector: &mut Collector, rank: Option<u32>) -> Option<Track> {
    let mut ops = collector.host_ops.take().unwrap_or_default();
    let mut calls = std::mem::take(&mut collector.calls);
    let plausible = Plausible::around(ops.iter().map(|op| op.times.start_ns).collect());
    let before = ops.len() + collector.steps.len();
    ops.retain(|op| plausible.contains(op.times));
    let mut steps = std::mem::take(&mut collector.steps);
    steps.retain(|step| plausible.contains(Times { start_ns: step.start_ns, end_ns: step.end_ns }));
    collector.skip_all("implausible_time", (before - ops.len() - steps.len()) as u64);
    if ops.is_empty() && steps.is_empty() {
        return None;
    }
    let communicating = communicating(collector, &calls);
    let kinds = kinds(&ops, &mut calls, communicating);

    let mut track = Track { steps, ..Track::new(0, None) };
    for (op, kind) in ops.iter().zip(kinds) {
        let call = op.call.and_then(|number| calls.get(number as usize));
        match (kind, call) {
            (Kind::Compute, _) => {
                let Times { start_ns, end_ns } = op.times;
                track.compute.push(Compute { name: op.name, start_ns, end_ns, step: None });
                collector.rules.add(TOP_LEVEL, MatchKind::Compute, None, op.times.length_ns());
            }
            (Kind::Comm, Some(call)) => {
                let comm = comm(collector, call, rank);
                let op_name = collector.names.get(comm.op).to_owned();
                let rule = collector.names.get(call.name).to_owned();
                collector.rules.add(&rule, MatchKind::Comm, Some(&op_name), op.times.length_ns());
                track.comm.push(comm);
            }
            (Kind::Untimed, Some(call)) => {
                let comm = comm(collector, call, rank);
                track.untimed.count += 1;
                track.untimed.bytes = track.untimed.bytes.saturating_add(comm.bytes.unwrap_or(0));
                *track.untimed.reasons.entry(NOT_RECORDED.to_owned()).or_default() += 1;
            }
            (Kind::Call, _) => collector.skip("collective_call"),
            _ => collector.skip("nested"),
        }
    }
    Some(track)
}

fn communicating(collector: &Collector, calls: &[HostEvent]) -> Communicating {
    let mut backends = calls.iter().filter(|call| call.layer == HostLayer::Backend).peekable();
    if backends.peek().is_none() {
        return Communicating::Operator;
    }
    let on_device = |call: &HostEvent| {
        let name = collector.names.get(call.name);
        ["nccl:", "rccl:", "xccl:", "hccl:"].iter().any(|prefix| name.starts_with(prefix))
    };
    if backends.all(on_device) { Communicating::Device } else { Communicating::Backend }
}

/// An operation within which others begin.
struct Open {
    thread: Sym,
    end_ns: i64,
    /// The call, if it is one that communicates.
    comm: Option<u32>,
}

/// What each of `ops` is. Arguments that a call's own record has are added to the call.
fn kinds(ops: &[HostOp], calls: &mut [HostEvent], communicating: Communicating) -> Vec<Kind> {
    // A library's range on a thread that also calls it is the time until its completion was noticed, with
    // other operators beside it; on a thread of its own, what is within belongs to it.
    let callers: HashSet<Sym> =
        calls.iter().filter(|call| call.layer == HostLayer::Operator).map(|call| call.thread).collect();
    let mut order: Vec<usize> = (0..ops.len()).collect();
    order.sort_by_key(|&index| {
        (ops[index].thread, ops[index].times.start_ns, Reverse(ops[index].times.end_ns))
    });
    let mut kinds = vec![Kind::Nested; ops.len()];
    let mut open: Vec<Open> = Vec::new();
    for index in order {
        let op = &ops[index];
        while open.pop_if(|outer| outer.thread != op.thread || outer.end_ns <= op.times.start_ns).is_some() {}
        let layer = op.call.and_then(|number| calls.get(number as usize)).map(|call| call.layer);
        let kind = match (layer, communicating) {
            (None, _) if open.is_empty() => Kind::Compute,
            (None, _) => Kind::Nested,
            (Some(HostLayer::Backend), Communicating::Device) => Kind::Untimed,
            (Some(HostLayer::Backend), _) => Kind::Comm,
            (Some(layer), Communicating::Operator) => match open.iter().rev().find_map(|outer| outer.comm) {
                // Operators nest, and the innermost records the arguments.
                Some(outer) => {
                    if layer == HostLayer::Record {
                        complete(calls, outer, op.call);
                    }
                    Kind::Nested
                }
                None => Kind::Comm,
            },
            (Some(_), _) => Kind::Call,
        };
        kinds[index] = kind;
        let beside = layer == Some(HostLayer::Backend) && callers.contains(&op.thread);
        if !beside && op.times.end_ns > op.times.start_ns {
            let comm = op.call.filter(|_| kind == Kind::Comm);
            open.push(Open { thread: op.thread, end_ns: op.times.end_ns, comm });
        }
    }
    kinds
}

/// Gives the call `outer` the arguments of its record.
fn complete(calls: &mut [HostEvent], outer: u32, record: Option<u32>) {
    let Some(details) = record.and_then(|number| calls.get(number as usize)).map(|record| record.call) else {
        return;
    };
    if let Some(outer) = calls.get_mut(outer as usize)
        && !outer.call.has_details()
    {
        outer.call = Call { op: details.op.or(outer.call.op), ..details };
    }
}

/// A collective of the host.
fn comm(collector: &mut Collector, event: &HostEvent, rank: Option<u32>) -> Comm {
    let call = event.call;
    let op = call.op.unwrap_or(Op::Unknown);
    // Where there is only one process group, it is the one.
    let group = call.group.or(match collector.distributed.groups[..] {
        [only] => Some(only),
        _ => None,
    });
    let ranks = group.and_then(|group| collector.groups.get(&group));
    let size = call.size.or_else(|| u32::try_from(ranks?.len()).ok());
    let position = rank.and_then(|rank| ranks?.iter().position(|&member| member == rank));
    let comm_rank = position.and_then(|position| u32::try_from(position).ok());
    let bytes = match call.dtype {
        Some(dtype) => payload_bytes(op, call.sent, call.received, dtype.size, size),
        None if op == Op::Barrier => Some(0),
        None => None,
    };
    Comm {
        bytes,
        comm: group,
        seq: call.seq,
        comm_size: size,
        comm_rank,
        dtype: call.dtype.map(|dtype| collector.names.intern(dtype.name)),
        peer: match op {
            Op::Send => call.destination,
            Op::Recv => call.source,
            _ => None,
        },
        ..Comm::new(collector.names.intern(op.as_str()), event.times.start_ns, event.times.end_ns)
    }
}
